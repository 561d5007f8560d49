"""Windows, and what lies in them."""

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.windows import (
    apportion,
    clip_rows,
    intersect_windows,
    narrow_charges,
    narrow_gaps,
    rows_starting_inside,
    selected_windows,
)
from tests.tiny import Row, kernel, launch, opened, timeline_of

ROWS: tuple[Row, ...] = (
    opened(0, 100, "load"),
    opened(200, 300, "forward"),
    launch(10, 20, 1),
    launch(210, 220, 2),
    launch(230, 240, 3),
    kernel(20, 60, 1),
    kernel(220, 260, 2),
    kernel(250, 290, 3, device=1),
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), [(0, 20, 260), (1, 250, 290)]),
        (Options(device=1), [(1, 250, 290)]),
        (Options(from_ns=50, to_ns=255), [(0, 50, 255), (1, 250, 255)]),
        (Options(range="forward"), [(0, 220, 260), (1, 250, 290)]),
        (Options(range="forward", device=0, from_ns=230), [(0, 230, 260)]),
    ],
)
def test_a_window_is_what_all_options_agree_on(
    options: Options, expected: list[tuple[int, int, int]]
) -> None:
    timeline = timeline_of(*ROWS, options=options)
    windows = selected_windows(
        timeline.events, timeline.attribution, timeline.ops, timeline.steps, options
    )
    assert windows.select("device_no", "start_ns", "end_ns").sort("device_no").rows() == expected


AXIS = Axis(origin_ns=0, stride_ns=1_000)


def spans(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Device, start and end."""
    schema = {"device_no": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def gaps(*rows: dict[str, int]) -> pl.DataFrame:
    """Gaps of device 0 with `start`, `end` and causes."""
    return pl.DataFrame(
        [
            {
                "gap": number,
                "start_ns": row["start"],
                "end_ns": row["end"],
                **{f"{cause}_ns": row.get(cause, 0) for cause in CAUSES},
            }
            for number, row in enumerate(rows)
        ]
    ).with_columns(pl.col("gap").cast(pl.UInt32), pl.lit(0, pl.UInt32).alias("device_no"))


def test_what_starts_at_the_end_of_a_window_is_outside() -> None:
    rows = spans((0, 5, 9), (0, 10, 11), (0, 20, 30), (1, 15, 16))
    assert rows_starting_inside(rows, spans((0, 10, 20)), AXIS)["start_ns"].to_list() == [10]


def test_rows_are_cut_at_the_edges_and_doubled_by_two_windows() -> None:
    cut = clip_rows(spans((0, 0, 100)), spans((0, 10, 20), (0, 90, 200)), AXIS)
    assert cut.select("start_ns", "end_ns").rows() == [(10, 20), (90, 100)]


def test_windows_intersect_device_by_device() -> None:
    both = intersect_windows(spans((0, 0, 50), (1, 0, 50)), spans((0, 40, 90), (0, 45, 60)), AXIS)
    assert both.rows() == [(0, 40, 50)]


def test_a_gap_cut_by_a_window_keeps_its_causes_in_proportion() -> None:
    whole = gaps({"start": 0, "end": 100, "sync": 60, "host": 40})
    (half,) = narrow_gaps(whole, spans((0, 50, 1_000)), AXIS).to_dicts()
    assert (half["sync_ns"], half["host_ns"]) == (30, 20)


def test_nanoseconds_that_are_left_go_to_the_largest_fractions() -> None:
    whole = gaps({"start": 0, "end": 3, "sync": 1, "alloc": 1, "host": 1})
    (cut,) = narrow_gaps(whole, spans((0, 0, 2)), AXIS).to_dicts()
    assert (cut["sync_ns"], cut["alloc_ns"], cut["host_ns"]) == (1, 1, 0)  # ties: table order


def test_calls_are_charged_what_is_left_of_their_gaps() -> None:
    whole = gaps({"start": 0, "end": 100, "sync": 100})
    charges = pl.DataFrame(
        {"gap": [0, 0], "call": [7, 8], "cause": ["sync", "sync"], "ns": [75, 25]},
        schema={"gap": pl.UInt32, "call": pl.UInt32, "cause": pl.Enum([*CAUSES]), "ns": pl.Int64},
    )
    cut = narrow_charges(charges, narrow_gaps(whole, spans((0, 0, 20)), AXIS), whole)
    assert dict(cut.select("call", "ns").rows()) == {7: 15, 8: 5}


@pytest.mark.parametrize("total", [0, 1, 99, 10**13])
def test_shares_always_sum_to_their_total(total: int) -> None:
    shares = pl.DataFrame({"of": [0] * 3, "tie": [0, 1, 2], "ns": [10**13, 1, 7], "total": total})
    assert apportion(shares, by="of", ties="tie")["ns"].sum() == total
