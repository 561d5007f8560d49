"""The picture where the oracle says nothing: without rows, names, or all of a report."""

from dataclasses import replace

from nsysflow.analysis.options import Options
from nsysflow.analysis.tracks.tracks import Tracks
from tests.tiny import Row, analysis_of, call, kernel, launch

STALL = (
    launch(0, 10, 1),
    kernel(10, 1_000, 1),
    call(20, 5_000, "cudaDeviceSynchronize"),
    launch(5_100, 5_200, 2),
    kernel(5_300, 6_000, 2),
)


def tracks_of(*rows: Row) -> Tracks:
    return analysis_of(*rows).tracks


def test_a_trace_without_rows_has_no_lanes() -> None:
    tracks = tracks_of()
    assert tracks.lanes.is_empty()
    assert tracks.gaps.is_empty()


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
