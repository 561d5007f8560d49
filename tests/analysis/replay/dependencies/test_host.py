"""Which call follows which."""

from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.analysis.replay.dependencies.host import host_calls
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
    without,
)


def predecessors(*rows: Row) -> list[int | None]:
    calls = host_calls(timeline_of(*rows).events).calls
    return calls["pred"].to_list()


def test_a_call_follows_the_one_before_it_on_its_thread() -> None:
    assert predecessors(launch(0, 5, 1), launch(10, 15, 2), launch(20, 25, 3)) == [None, 0, 1]


def test_a_call_inside_another_is_a_part_of_it() -> None:
    assert predecessors(
        call(0, 50, "cudaStreamSynchronize"),
        call(1, 49, "cuStreamSynchronize"),
        launch(60, 65, 1),
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
