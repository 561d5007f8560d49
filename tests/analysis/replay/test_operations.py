"""What an operation waits for."""

from nsysflow.analysis.replay.changes import Changes
from tests.analysis.replay.replays import call, kernel, kernel_starts, launch, opened, timeline_of

SLOW = Changes(scaled=(("slow", 2.0),))


def test_an_operation_follows_the_one_before_it_on_its_stream() -> None:
    timeline = timeline_of(
        launch(0, 5, 1), launch(5, 10, 2), kernel(10, 110, 1, name="slow"), kernel(111, 120, 2)
    )
    assert kernel_starts(timeline, SLOW) == [10, 211]


def test_the_bound_that_is_reached_last_is_exact_and_the_others_are_usual() -> None:
    #  launches 0--5, 100--105 with a lag of 10; the second kernel waits for its launch, 90 us after
    #  the first kernel: if that takes twice as long, 1 us lies between them, as in any queue
    timeline = timeline_of(
        launch(0, 5, 1), launch(100, 105, 2), kernel(10, 20, 1, name="slow"), kernel(110, 120, 2)
    )
    assert kernel_starts(timeline, SLOW) == [10, 110]
    assert kernel_starts(timeline, Changes(scaled=(("slow", 12.0),))) == [10, 131]


def test_an_operation_waits_for_the_event_that_its_stream_waits_for() -> None:
    #  stream 7: slow [10, 110); stream 13: waits for it, k [112, 150)
    rows = (
        launch(0, 5, 1),
        launch(5, 6, 2, name="cudaEventRecord"),
        launch(6, 7, 3, name="cudaStreamWaitEvent"),
        launch(8, 12, 4),
        kernel(10, 110, 1, name="slow"),
        kernel(112, 150, 4, stream=13),
    )
    timeline = timeline_of(*rows, records=((2, 7, 1),), waits=((3, 13, 1),))
    assert kernel_starts(timeline, SLOW) == [10, 212]


def test_without_its_event_an_operation_waits_for_what_ended_just_before() -> None:
    rows = launch(0, 5, 1), launch(5, 10, 2)
    late = timeline_of(*rows, kernel(10, 110, 1, name="slow"), kernel(115, 150, 2, stream=13))
    assert kernel_starts(late, SLOW) == [10, 215]


def test_kernels_of_streams_that_never_overlap_keep_their_order() -> None:
    #  k of stream 13 is launched late enough to be explained by its launch: 118 + 10
    rows = launch(0, 5, 1), launch(118, 120, 2)
    timeline = timeline_of(*rows, kernel(10, 110, 1, name="slow"), kernel(128, 150, 2, stream=13))
    assert kernel_starts(timeline, SLOW) == [10, 211]


def test_kernels_of_streams_that_overlap_anywhere_do_not_wait_for_each_other() -> None:
    timeline = timeline_of(
        launch(0, 5, 1),
        launch(118, 120, 2),
        launch(120, 122, 3),
        kernel(10, 110, 1, name="slow"),
        kernel(128, 150, 2, stream=13),
        kernel(130, 140, 3),
    )
    assert kernel_starts(timeline, SLOW) == [10, 128, 211]


def test_an_operation_never_starts_before_its_launch() -> None:
    timeline = timeline_of(
        opened(11, 99, "data"),
        launch(0, 5, 1),
        call(5, 11, "cudaStreamSynchronize"),
        launch(101, 106, 2),
        kernel(3, 9, 1),
        kernel(104, 109, 2),
    )
    # 88 us of work go: the launch begins at 13, its kernel 3 us later
    assert kernel_starts(timeline, Changes(faster_host=(("data", 0.0),))) == [3, 16]
