"""Places in changes: a phase with what is inside it, a phase itself, and outside all phases."""

import pytest

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.base.errors import UnknownName
from tests.analysis.replay.replays import (
    call,
    kernel,
    kernel_starts,
    launch,
    opened,
    replayed,
    timeline_of,
    upload,
    without,
)

# outside: 100 us, step itself: 60 us, step/log: 40 us of Python before the launches
TIMELINE = timeline_of(
    launch(0, 5, 1),
    kernel(7, 10, 1),
    opened(105, 300, "step"),
    opened(165, 205, "log"),
    launch(205, 210, 2),
    kernel(212, 220, 2),
)


@pytest.mark.parametrize(
    ("phase", "start"),
    [("step", 112), ("step/.", 152), ("step/log", 172), ("step/log/.", 172), (OUTSIDE, 112)],
)
def test_the_host_s_time_is_taken_from_the_place_alone(phase: str, start: float) -> None:
    begun = kernel_starts(TIMELINE, Changes(faster_host=((phase, 0.0),)))
    assert begun == [7, start]


WAITING = timeline_of(
    launch(0, 5, 1),
    kernel(7, 100, 1),
    call(10, 101, "cudaDeviceSynchronize"),
    opened(110, 400, "step"),
    launch(120, 125, 2),
    kernel(127, 200, 2),
    call(130, 201, "cudaDeviceSynchronize"),
    opened(210, 390, "log"),
    launch(220, 225, 3),
    kernel(227, 300, 3),
    call(230, 301, "cudaDeviceSynchronize"),
)


@pytest.mark.parametrize(
    ("place", "gone"),
    [
        ("step", [False, True, True]),
        ("step/.", [False, True, False]),
        ("log", [False, False, True]),
        (OUTSIDE, [True, False, False]),
    ],
)
def test_the_waits_are_taken_from_the_place_alone(place: str, gone: list[bool]) -> None:
    calls = replayed(WAITING, without("sync", place)).calls
    assert [calls["end_ns"][k] == calls["start_ns"][k] for k in (1, 3, 5)] == gone


def test_a_copy_can_be_scaled_by_its_name() -> None:
    timeline = timeline_of(
        launch(0, 5, 1, name="cudaMemcpyAsync"),
        upload(7, 107, 1, source="pinned"),
        launch(6, 11, 2),
        kernel(108, 120, 2),
    )
    assert kernel_starts(timeline, Changes(scaled=(("memcpy HtoD", 0.0),)))[1] < 20
    with pytest.raises(UnknownName, match="no kernel or copy"):
        kernel_starts(timeline, Changes(scaled=(("memcpy DtoH", 0.0),)))
