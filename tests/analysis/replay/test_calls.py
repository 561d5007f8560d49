"""What calls wait for."""

import pytest

from nsysflow.analysis.replay.calls import host_calls
from nsysflow.analysis.replay.changes import Changes
from tests.analysis.replay.replays import (
    AUTOGRAD,
    MAIN,
    WORKER,
    Row,
    call,
    call_ends,
    kernel,
    launch,
    opened,
    timeline_of,
    upload,
    without,
)


def predecessors(*rows: Row) -> list[int | None]:
    calls = host_calls(timeline_of(*rows).events).calls
    return calls["pred"].to_list()


def test_a_call_follows_the_one_before_it_on_its_thread() -> None:
    assert predecessors(launch(0, 5, 1), launch(10, 15, 2), launch(20, 25, 3)) == [None, 0, 1]


def test_a_call_inside_another_is_a_part_of_it() -> None:
    assert predecessors(
        call(0, 50, "cudaStreamSynchronize"), call(1, 49, "cuStreamSynchronize"), launch(60, 65, 1)
    ) == [None, 0]


def test_other_calls_are_the_host_s_work() -> None:
    rows = launch(0, 5, 1), call(6, 9, "cudaGetDevice"), launch(10, 15, 2)
    calls = host_calls(timeline_of(*rows).events).calls
    assert calls["work_ns"].to_list() == [0, 5_000]


def test_backward_goes_on_where_the_main_thread_stopped_and_the_other_way_round() -> None:
    #  main      0--5                     60--65
    #  autograd        20--25   40--45
    rows = (
        launch(0, 5, 1),
        launch(60, 65, 4),
        launch(20, 25, 2, thread=AUTOGRAD),
        launch(40, 45, 3, thread=AUTOGRAD),
    )
    assert predecessors(*rows) == [None, 3, 0, 2]


def test_a_wait_removed_in_backward_moves_what_the_main_thread_does_after_it() -> None:
    #  main      0--5                           160--165
    #  autograd        20--25   30--------150
    timeline = timeline_of(
        launch(0, 5, 1),
        launch(20, 25, 2, thread=AUTOGRAD),
        call(30, 150, "cudaStreamSynchronize", thread=AUTOGRAD),
        launch(160, 165, 3),
        kernel(10, 140, 2),
    )
    # the wait takes nothing from 30 on; 10 us of work later the launch begins, and takes 5
    assert call_ends(timeline, without("sync")) == [5, 45, 25, 30]


def test_threads_that_take_turns_all_the_time_do_not_wait_for_each_other() -> None:
    rows = [launch(20 * i, 20 * i + 5, i, thread=(MAIN, WORKER)[i % 2]) for i in range(10)]
    assert predecessors(*rows) == [None, 0, 1, 2, 3, None, 5, 6, 7, 8]


def test_threads_with_few_turns_hand_over_to_each_other() -> None:
    first = [launch(20 * i, 20 * i + 5, i) for i in range(10)]
    second = [launch(300 + 20 * i, 305 + 20 * i, 20 + i, thread=WORKER) for i in range(10)]
    assert predecessors(*first, *second)[10] == 9


def test_less_work_before_a_call_moves_what_follows() -> None:
    timeline = timeline_of(opened(5, 100, "data"), launch(0, 5, 1), launch(105, 110, 2))
    assert call_ends(timeline, Changes(faster_host=(("data", 0.2),))) == [5, 34]


WORK = 200
LAUNCHES = 1056


def test_a_faster_host_is_held_up_by_a_full_queue() -> None:
    """A launch of 1 us every 201 us, kernels of 100 us. Without the work between them the launches
    would be done after 1056 us, while the GPU takes 101 us for each kernel."""
    rows: list[Row] = []
    for i in range(LAUNCHES):
        start = i * (WORK + 1)
        rows += [launch(start, start + 1, i + 1), kernel(start + 2, start + 102, i + 1)]
    timeline = timeline_of(opened(0, LAUNCHES * (WORK + 1), "step"), *rows)
    ends = call_ends(timeline, Changes(faster_host=(("step", 0.0),)))
    assert ends[1023] == 1024
    # the 1041st returns when the 17th kernel is done, the first at 2 and 1 us between them
    assert ends[1040] == 2 + 17 * 101 - 1
    assert ends[1041] == ends[1040] + 1
    assert ends[1055] == ends[1040] + 15


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
