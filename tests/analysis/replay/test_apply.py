"""What the names in a change stand for, and which calls only read values back."""

import polars as pl
import pytest

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes import MOST_PRINTED, CallKey, Changes
from nsysflow.analysis.replay.read_loops import acting_calls, read_loops
from nsysflow.base.errors import UnknownName
from tests.analyses import analysed
from tests.analysis.replay.replays import (
    Row,
    call,
    kernel,
    launch,
    opened,
    replayed,
    timeline_of,
    without,
)

TIMELINE = analysed("nan_check-sync").timeline


@pytest.mark.parametrize(
    ("changes", "near"),
    [
        (without("sync", "nan_check.py:124"), "nan_check.py:125"),
        (without("all", "step/metric"), "step/metrics"),
        (Changes(graphs=("foward",)), "forward"),
        (Changes(faster_host=(("dta", 0.5),)), "data"),
        (Changes(scaled=(("reduce_kernels", 0.5),)), "reduce_kernel"),
    ],
)
def test_the_nearest_names_are_proposed(changes: Changes, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        replayed(TIMELINE, changes)
    assert caught.value.exit_code == 2
    assert near in caught.value.advice


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(graphs=("xyz123",)), r"There are:.*step"),
        (Changes(removed_calls=(CallKey(1, 2, 3),)), "1 of 1 calls are not in"),
        (Changes(scaled=(("memcpy DtoD", 0.0),)), "no kernel or copy"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(changes: Changes, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        replayed(TIMELINE, changes)


def window_end(changes: Changes) -> int:
    return int(replayed(TIMELINE, changes).ops.select(pl.max("end_ns")).item())


def test_a_wait_is_found_by_its_line_its_frame_its_phase_and_the_phase_around_it() -> None:
    places = ("nan_check.py:125", "nan_check.py:125 in check", "metrics", "step/metrics", "step")
    found = {window_end(without("sync", place)) for place in places}
    assert len(found) == 1
    assert found != {window_end(Changes())}
    assert window_end(without("sync", "data")) == window_end(Changes())


def test_of_several_factors_of_one_kernel_the_smallest_counts() -> None:
    names = TIMELINE.ops.filter(pl.col("short_name") == "reduce_kernel")["name"].cast(pl.String)
    both = Changes(scaled=(("reduce_kernel", 0.5), *((name, 0.25) for name in names.unique())))
    quarter = Changes(scaled=(("reduce_kernel", 0.25),))
    assert replayed(TIMELINE, both).ops.equals(replayed(TIMELINE, quarter).ops)


def test_only_the_first_kernels_of_many_are_printed() -> None:
    scaled = tuple((f"kernel_{number}", 0.5) for number in range(9))
    assert [*Changes(scaled=scaled).options()][1::2] == [
        f"kernel_{number}=0.5" for number in range(MOST_PRINTED)
    ]


WAITING = timeline_of(
    *(launch(0, 5, 1), kernel(7, 100, 1), call(10, 101, "cudaDeviceSynchronize")),
    opened(110, 400, "step"),
    *(launch(120, 125, 2), kernel(127, 200, 2), call(130, 201, "cudaDeviceSynchronize")),
    opened(210, 390, "log"),
    *(launch(220, 225, 3), kernel(227, 300, 3), call(230, 301, "cudaDeviceSynchronize")),
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


def test_of_two_factors_for_one_name_the_smaller_counts() -> None:
    parts = [Changes(scaled=(("k", factor),)) for factor in (0.5, 0.25, 0.75)]
    assert Changes.together(parts) == Changes(scaled=(("k", 0.25),))


READ, WAIT = "cudaStreamSynchronize", "cudaDeviceSynchronize"

CALLS = {"w": READ, "s": WAIT, "a": "cudaMalloc"}
KERNELS = {"k": "reduce_kernel", "m": "sgemm_128x64", "t": "triton_poi_fused_0"}


def rows_of(calls: str) -> list[Row]:
    """Calls of one thread: kernels of `KERNELS` launched, and others of `CALLS`."""
    rows: list[Row] = []
    for place, letter in enumerate(calls):
        at = 100 * place
        if letter in CALLS:
            rows.append(call(at, at + 20, CALLS[letter]))
        else:
            ran = kernel(at + 7, at + 15, place + 1, name=KERNELS[letter])
            rows += [launch(at, at + 5, place + 1), ran]
    return rows


@pytest.mark.parametrize(
    ("calls", "going"),
    [
        ("kwkw", "...."),  # two reads are no loop
        ("kwkwkw", "KWKWKW"),
        ("wwwwk", "WWWW."),
        ("mkkkwkkwkwkkwk", "...KWKKWKWKKW."),  # before the first read as many as the fewest
        ("kkkkwkkkkwkkkkwkkkkw", "KKKKWKKKKWKKKKWKKKKW"),
        ("kwkwkwkwkkkkkwkwkwkw", "KWKWKWKW....KWKWKWKW"),  # five kernels part two loops
        ("kwkwkmwkwk", ".........."),
        ("kwkwktwkwk", ".........."),
        ("kwkwkswkwk", ".........."),
        ("kwkwkawkwk", ".........."),
        ("mwkwkwkw", ".WKWKWKW"),  # work before the first read stays
    ],
)
def test_what_goes_with_a_loop(calls: str, going: str) -> None:
    events = timeline_of(*rows_of(calls)).events
    reads = events.calls.filter(pl.col("name") == READ)["call"]
    loops = read_loops(acting_calls(events), reads)
    gone = {*loops["call"]}
    marks = "".join(letter.upper() if place in gone else "." for place, letter in enumerate(calls))
    assert marks == going
    assert loops["kernels"].sum() == marks.count("K")
