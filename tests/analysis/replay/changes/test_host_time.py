"""Host time that takes less."""

from nsysflow.analysis.replay.changes.declared import Changes
from tests import tiny
from tests.analysis.replay.replays import (
    AUTOGRAD,
    US,
    call_ends,
    launch,
    opened,
    timeline_of,
)
from tests.oracle.model import Overhead


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
