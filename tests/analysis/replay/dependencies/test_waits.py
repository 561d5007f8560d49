"""What a call waits for. Each trace scales a kernel, and looks where the calls end then.

The launch takes [0, 5), its kernel [10, 110); scaled by 2 the kernel ends at 210.
"""

import pytest

from nsysflow.analysis.replay.changes.declared import Changes
from tests.analysis.replay.replays import (
    Row,
    call,
    call_ends,
    kernel,
    launch,
    timeline_of,
    upload,
)

SLOW = Changes(scaled=(("k", 2.0),))


def last_end(*rows: Row) -> float:
    return call_ends(timeline_of(launch(0, 5, 1), kernel(10, 110, 1), *rows), SLOW)[-1]


@pytest.mark.parametrize(
    "name", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cuCtxSynchronize", "cudaFree"]
)
def test_a_wait_ends_as_long_after_its_kernel_as_it_did(name: str) -> None:
    assert last_end(call(6, 113, name)) == 213


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFreeAsync", "cuMemAlloc"])
def test_what_does_not_wait_takes_what_it_took(name: str) -> None:
    assert last_end(call(6, 113, name)) == 113


def test_a_kernel_that_was_still_running_was_not_waited_for() -> None:
    assert last_end(call(6, 100, "cudaStreamSynchronize")) == 100


def test_a_wait_that_came_late_did_not_wait_but_would_have_to() -> None:
    # 3 us are its own cost, before the change at 120 and after it at 210
    assert last_end(call(120, 123, "cudaDeviceSynchronize")) == 213


def test_a_kernel_launched_after_the_call_is_not_waited_for() -> None:
    other = launch(0, 5, 1), kernel(10, 110, 1)
    rows = call(6, 300, "cudaStreamSynchronize", thread=1 << 24 | 3), launch(120, 125, 2)
    timeline = timeline_of(*other, *rows, kernel(130, 230, 2, name="other"))
    assert call_ends(timeline, SLOW)[-1] == 400  # 190 after the first kernel, as before


def test_an_event_s_wait_is_for_the_latest_that_had_ended_where_nothing_names_it() -> None:
    assert last_end(call(6, 113, "cudaEventSynchronize")) == 213


def test_a_named_event_waits_for_what_was_launched_before_its_record() -> None:
    #  k on stream 7 [10, 110), event recorded behind it; other on stream 13 [10, 100)
    timeline = timeline_of(
        launch(0, 5, 1),
        launch(5, 6, 2, name="cudaEventRecord"),
        launch(6, 9, 3),
        launch(10, 113, 4, name="cudaEventSynchronize"),
        kernel(10, 110, 1, name="other"),
        kernel(11, 112, 3, stream=13),
        records=((2, 7, 1),),
        waits=((4, 13, 1),),
    )
    # k ends at 213 now, but the event stands behind the other kernel
    assert call_ends(timeline, SLOW)[-1] == 113


def test_a_blocking_copy_waits_for_its_own_operation() -> None:
    rows = launch(6, 130, 2, name="cudaMemcpyAsync"), upload(112, 125, 2, source="pageable")
    assert last_end(*rows) == 230
