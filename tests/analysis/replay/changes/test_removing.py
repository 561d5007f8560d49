"""Calls that are not there any more."""

from nsysflow.analysis.replay.changes.declared import Changes
from tests.analysis.replay.replays import (
    MAIN,
    call,
    call_ends,
    kernel,
    kernel_starts,
    launch,
    opened,
    timeline_of,
    upload,
    without,
)

#  launch 0--5  sync 5----115  launch 120--125
#  kernel 10--------110        kernel 130--230
SYNC = (
    launch(0, 5, 1),
    call(5, 115, "cudaStreamSynchronize"),
    launch(120, 125, 2),
    kernel(10, 110, 1),
    kernel(130, 230, 2),
)


def test_without_a_wait_the_host_goes_on_and_the_gpu_s_queue_is_full() -> None:
    # the second launch begins at 10, and its kernel 1 us after the first one's end
    assert call_ends(timeline_of(*SYNC), without("sync")) == [5, 5, 15]
    assert kernel_starts(timeline_of(*SYNC), without("sync")) == [10, 111]


def test_other_kinds_of_waits_stay() -> None:
    assert kernel_starts(timeline_of(*SYNC), without("alloc")) == [10, 130]
    assert kernel_starts(timeline_of(*SYNC), without("all")) == [10, 111]


def test_a_wait_that_takes_over_stays() -> None:
    twice = (*SYNC[:2], call(115, 118, "cudaDeviceSynchronize"), *SYNC[2:])
    timeline = timeline_of(*twice, opened(4, 114, "first"))
    # the second one waits for the kernel now, and takes its 3 us
    assert call_ends(timeline, without("sync", "first")) == [5, 5, 113, 120]


def test_an_allocation_that_is_removed_saves_what_it_took() -> None:
    timeline = timeline_of(
        launch(0, 5, 1), call(5, 95, "cudaMalloc"), launch(95, 100, 2),
        kernel(10, 20, 1), kernel(105, 110, 2),
    )  # fmt: skip
    assert kernel_starts(timeline, without("alloc")) == [10, 21]


def test_a_blocking_copy_becomes_a_launch() -> None:
    #  a pageable copy: the host copies until 100, the GPU 104--120, and the call ends at 125
    timeline = timeline_of(
        launch(0, 125, 1, name="cudaMemcpyAsync"), launch(130, 135, 2),
        upload(104, 120, 1, source="pageable"), kernel(140, 150, 2),
    )  # fmt: skip
    # the launch of a copy takes 5 us, its operation 10 us as the kernel's does; then 5 us of work
    assert call_ends(timeline, without("copy")) == [5, 15]
    assert kernel_starts(timeline, without("copy")) == [10, 27]


def test_asynchronous_copies_lose_the_sync_behind_them() -> None:
    timeline = timeline_of(
        launch(0, 5, 1, name="cudaMemcpyAsync"),
        call(6, 60, "cudaStreamSynchronize"),
        launch(70, 75, 2),
        call(80, 190, "cudaStreamSynchronize"),
        upload(10, 55, 1, source="pinned"),
        kernel(80, 180, 2),
    )
    # the kernel begins 1 us behind the copy, at 56, and the other sync takes 10 us after its end
    assert call_ends(timeline, Changes(async_copies=True)) == [5, 6, 21, 166]


def test_single_calls_are_named_by_the_system_s_ids_or_the_report_s_keys() -> None:
    timeline = timeline_of(*SYNC)
    by_ids = Changes(removed_calls=((1, 1, 5_000),))
    by_keys = Changes(removed_calls=((1 << 24, MAIN, 5_000),))
    assert kernel_starts(timeline, by_ids) == kernel_starts(timeline, by_keys) == [10, 111]


def test_a_call_that_is_no_wait_can_be_removed_too() -> None:
    timeline = timeline_of(
        launch(0, 5, 1), call(10, 90, "cudaMemGetInfo"), launch(100, 105, 2),
        kernel(10, 20, 1), kernel(110, 120, 2),
    )  # fmt: skip
    assert call_ends(timeline, Changes(removed_calls=((1, 1, 10_000),))) == [5, 25]
