"""What changes do to a recorded program."""

from nsysflow.analysis.replay.changes import CallKey, Changes
from tests import tiny
from tests.analysis.replay.replays import (
    AUTOGRAD,
    MAIN,
    US,
    Row,
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
from tests.oracle.model import Overhead

GRAPH = Changes(graphs=("forward",))


def three(*, at: int = 0) -> list[Row]:
    """Launches of 5 us, 20 us apart, each with a kernel of 5 us after 10 us."""
    return [
        row
        for i in range(3)
        for start in [at + 20 * i]
        for row in (
            launch(start, start + 5, at + i + 1),
            kernel(start + 10, start + 15, at + i + 1),
        )
    ]


def test_a_phase_s_launches_are_one_call_and_its_operations_follow_each_other() -> None:
    timeline = timeline_of(opened(0, 50, "forward"), *three(), launch(60, 65, 9))
    # 10 us of work lie between the phase and the launch behind it
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 23]
    assert kernel_starts(timeline, GRAPH) == [10, 15.5, 21]


def test_a_row_of_launches_ends_at_a_wait() -> None:
    timeline = timeline_of(
        opened(0, 145, "forward"), *three(), call(60, 62, "cudaStreamSynchronize"), *three(at=80)
    )
    # the last kernel ends at 26 and the wait takes 2 us more; after 18 us of work the second graph
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 28, 54, 54, 54]


def test_a_row_of_launches_ends_with_its_instance() -> None:
    timeline = timeline_of(
        opened(0, 50, "forward"), opened(80, 130, "forward"), *three(), *three(at=80)
    )
    # 30 us between the phases, and the 5 us behind the first one's last launch are a little
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 51, 51, 51]


def test_launches_outside_the_phase_stay() -> None:
    timeline = timeline_of(opened(75, 130, "forward"), *three(), *three(at=80))
    assert call_ends(timeline, GRAPH)[:3] == [5, 25, 45]


def test_of_the_host_s_time_in_a_whole_phase_only_a_little_stays() -> None:
    timeline = timeline_of(opened(5, 130, "forward"), launch(0, 5, 99), *three(at=80))
    # 25 of 75 us before the first launch
    assert call_ends(timeline, GRAPH) == [5, 38, 38, 38]


def test_the_host_s_time_in_a_phase_with_a_wait_stays() -> None:
    wait = call(140, 141, "cudaStreamSynchronize")
    timeline = timeline_of(opened(5, 145, "forward"), launch(0, 5, 99), *three(at=80), wait)
    assert call_ends(timeline, GRAPH)[:4] == [5, 88, 88, 88]


def test_only_the_part_inside_the_phase_is_faster() -> None:
    timeline = timeline_of(opened(20, 60, "data"), launch(0, 5, 1), launch(100, 105, 2))
    assert call_ends(timeline, Changes(faster_host=(("data", 0.5),))) == [5, 85]


def test_calls_inside_the_phase_keep_their_length() -> None:
    timeline = timeline_of(opened(0, 105, "data"), launch(0, 5, 1), launch(100, 105, 2))
    assert call_ends(timeline, Changes(faster_host=(("data", 0.0),))) == [5, 10]


def test_backward_s_thread_is_in_the_phase_of_the_main_one() -> None:
    timeline = timeline_of(
        opened(0, 105, "backward"),
        launch(0, 5, 1),
        launch(55, 60, 2, thread=AUTOGRAD),
        launch(100, 105, 3, thread=AUTOGRAD),
    )
    assert call_ends(timeline, Changes(faster_host=(("backward", 0.5),))) == [5, 35, 60]


def test_the_profiler_s_work_goes_from_between_calls_and_from_inside_them() -> None:
    rows = launch(0, 5, 1), launch(100, 145, 2), launch(150, 155, 3)
    overhead = [
        Overhead(start * US, end * US, tiny.PROCESS, tiny.MAIN, "CUPTI Buffer flush")
        for start, end in ((20, 50), (110, 140))
    ]
    timeline = tiny.timeline_of(*rows, *overhead)
    assert call_ends(timeline, Changes(no_profiler=True)) == [5, 85, 95]


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
    by_ids = Changes(removed_calls=(CallKey(1, 1, 5_000),))
    by_keys = Changes(removed_calls=(CallKey(1 << 24, MAIN, 5_000),))
    assert kernel_starts(timeline, by_ids) == kernel_starts(timeline, by_keys) == [10, 111]


def test_a_call_that_is_no_wait_can_be_removed_too() -> None:
    timeline = timeline_of(
        launch(0, 5, 1), call(10, 90, "cudaMemGetInfo"), launch(100, 105, 2),
        kernel(10, 20, 1), kernel(110, 120, 2),
    )  # fmt: skip
    assert call_ends(timeline, Changes(removed_calls=(CallKey(1, 1, 10_000),))) == [5, 25]
