"""The lanes of the picture, and the rows of their slices."""

from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.options import Options
from nsysflow.analysis.tracks.lanes import depths
from nsysflow.analysis.tracks.tracks import Tracks
from tests.oracle.model import Overhead
from tests.oracle.tracks import first_free
from tests.tiny import (
    AUTOGRAD,
    MAIN,
    PROCESS,
    WORKER,
    Row,
    analysis_of,
    call,
    copy,
    kernel,
    launch,
    opened,
    sample,
)

STALL = (
    launch(0, 10, 1),
    kernel(10, 1_000, 1),
    call(20, 5_000, "cudaDeviceSynchronize"),
    launch(5_100, 5_200, 2),
    kernel(5_300, 6_000, 2),
)


def tracks_of(*rows: Row) -> Tracks:
    return analysis_of(*rows).tracks


def test_the_main_thread_comes_first_and_autograd_next() -> None:
    tracks = tracks_of(
        call(0, 1, "cudaEventQuery", thread=WORKER),
        call(0, 1, "cudaEventQuery", thread=AUTOGRAD),
        call(0, 1, "cudaEventQuery", thread=MAIN),
    )
    assert tracks.lanes["title"].to_list() == [
        "main thread: CUDA calls",
        "pt_autograd_0 2: CUDA calls",
        "thread 3: CUDA calls",
    ]


def test_a_thread_has_its_ranges_above_its_calls_and_what_it_ran_below() -> None:
    tracks = tracks_of(
        *STALL,
        opened(0, 6_000, "step"),
        sample(10, "f"),
        sample(1_000, "f"),
        Overhead(30, 40, PROCESS, MAIN, "Buffer flush"),
    )
    assert tracks.lanes["kind"].to_list() == [
        *("phases", "calls", "host_stack", "stack", "profiler", "gaps", "stream")
    ]


def test_a_frame_that_two_samples_share_is_one_slice_unless_its_caller_changed() -> None:
    stacks = (("f", "train"), ("g", "train"), ("g", "evaluate"))
    tracks = tracks_of(*STALL, *(sample(100 * at, *stack) for at, stack in enumerate(stacks, 1)))
    frames = tracks.stack_frames.select("depth", "start_ns", "end_ns", "name").rows()
    assert [(depth, start, end, name.split()[0]) for depth, start, end, name in frames] == [
        (0, 0, 251, "train"),
        (1, 0, 151, "f"),
        (1, 151, 251, "g"),
        (0, 251, 501, "evaluate"),
        (1, 251, 501, "g"),
    ]


def test_a_lane_says_how_many_depths_it_needs() -> None:
    tracks = tracks_of(opened(0, 9, "a"), opened(1, 8, "b"), opened(2, 3, "c"), *STALL)
    rows = dict(tracks.lanes.select("kind", "rows").rows())
    assert (rows["phases"], rows["calls"]) == (3, 1)


def test_a_trace_without_rows_has_no_lanes() -> None:
    tracks = tracks_of()
    assert tracks.lanes.is_empty()
    assert tracks.gaps.is_empty()


def test_a_copy_says_its_direction_and_its_bytes() -> None:
    tracks = tracks_of(
        launch(0, 5, 1, name="cudaMemcpyAsync"), copy(6, 9, 1, "HtoD", "pinned", "device")
    )
    (op,) = tracks.operations.to_dicts()
    assert (op["class"], op["bytes"], op["call"]) == ("copy HtoD", 1_000, 0)


def test_a_kernel_without_a_name_has_a_class() -> None:
    nameless = replace(kernel(6, 9, 1), name=None, short_name=None)  # type: ignore[arg-type]
    (op,) = tracks_of(launch(0, 5, 1), nameless).operations.to_dicts()
    assert op["class"] == "other"


def test_what_is_selected_does_not_change_the_picture() -> None:
    whole, part = (
        analysis_of(*STALL, options=options).tracks for options in (None, Options(to_ns=1_500))
    )
    assert whole.gaps.equals(part.gaps)
    assert whole.operations.equals(part.operations)


SCHEMA = {"lane": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}

Slice = tuple[int, int, int]


def depths_of(*rows: Slice) -> list[int]:
    return depths(pl.DataFrame(rows, schema=SCHEMA, orient="row")).to_list()


_SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)))


@given(_SLICES)
def test_every_slice_takes_the_first_free_depth_of_its_lane(drawn: list[Slice]) -> None:
    rows = sorted(
        ((lane, start, start + length) for lane, start, length in drawn),
        key=lambda row: (row[0], row[1], -row[2]),
    )
    expected = [
        depth
        for lane in range(3)
        for depth in first_free(row[1:] for row in rows if row[0] == lane)
    ]
    assert depths_of(*rows) == expected
