"""Parts of gaps, end to end."""

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import CAUSE
from nsysflow.report.perfetto.trace import gap_parts

NONE = {f"{cause}_ns": 0 for cause in CAUSES}


def parts_of(*gaps: dict[str, object]) -> list[tuple[int, str, int, int, bool]]:
    ns = pl.Int64()
    schema = pl.Schema({"start_ns": ns, "end_ns": ns, "cause": CAUSE, **dict.fromkeys(NONE, ns)})
    return gap_parts(pl.DataFrame([NONE | gap for gap in gaps], schema=schema)).rows()


def test_the_largest_part_comes_last() -> None:
    gap = {"start_ns": 100, "end_ns": 160, "cause": "sync", "sync_ns": 40, "host_ns": 5}
    assert parts_of(gap | {"launch_ns": 15}) == [
        (0, "host", 100, 105, False),
        (0, "launch", 105, 120, False),
        (0, "sync", 120, 160, True),
    ]


def test_of_two_equal_parts_the_cause_of_the_gap_comes_last() -> None:
    gap = {"start_ns": 0, "end_ns": 20, "cause": "sync", "sync_ns": 10, "host_ns": 10}
    assert [part for _, part, *_ in parts_of(gap)] == ["host", "sync"]


def test_each_gap_begins_anew() -> None:
    first = {"start_ns": 0, "end_ns": 10, "cause": "host", "host_ns": 10}
    second = {"start_ns": 50, "end_ns": 57, "cause": "api", "api_ns": 7}
    assert parts_of(first, second) == [(0, "host", 0, 10, True), (1, "api", 50, 57, True)]


def test_no_gap_has_no_part() -> None:
    assert parts_of() == []
