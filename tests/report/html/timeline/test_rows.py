"""The timeline draws every row of the picture: what it decodes and sums up is what was analysed."""

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from tests.analyses import analysed
from tests.report.html.made import made
from tests.report.html.timeline.inside import timeline_of
from tests.report.html.unpacked import page_of, run_of_these
from tests.tiny import analysis_of, kernel, launch

RUNS: Final = (
    ("h200-gpu-metrics",),
    ("h200-hf-trainer",),
    ("h200-ddp-rank0", "h200-ddp-rank1"),
)
every_run = pytest.mark.parametrize("names", RUNS, ids="-".join)

_TABLES: Final = ("operations", "calls", "ranges", "steps", "gaps", "profiler", "host_stacks")

_TIMES: Final = """names => inside.reports.map(({tables}) => names.map(name => {
    const {start, duration} = tables[name];
    return [...start].map((time, row) => [time - start[0], duration[row]]);
}))"""

_SUMS_OF_LEVELS: Final = """() => inside.lanes.flatMap(({rows, table}) => rows ?? []).map(row => ({
    table: row.lane.table.key,
    total: row.end.reduce((sum, end, slice) => sum + end - row.start[slice], 0),
    levels: inside.pyramidOf(row).map(({sums}) => sums.reduce((sum, ns) => sum + ns, 0)),
}))"""

_IDLE_BY_CAUSE: Final = """() => inside.lanes.filter(({kind}) => kind === "gaps").map(lane =>
    [...inside.idleWithin(lane, -Infinity, Infinity)])"""

_IDLE_WITHIN: Final = """([start, end]) => {
    const [lane] = inside.lanes.filter(({kind}) => kind === "gaps");
    return [...inside.idleWithin(lane, start, end)];
}"""


@every_run
def test_the_page_decodes_the_times_that_were_analysed(
    browser: Any,
    names: tuple[str, ...],
) -> None:
    with timeline_of(browser, made(*names).file) as page:
        decoded = page.evaluate(_TIMES, _TABLES)
    for name, tables in zip(names, decoded, strict=True):
        for table, rows in zip(_TABLES, tables, strict=True):
            times = getattr(analysed(name).tracks, table).select("start_ns", "end_ns").rows()
            assert rows == [[start - times[0][0], end - start] for start, end in times], table


def test_the_page_decodes_times_a_minute_apart(browser: Any, tmp_path: Path) -> None:
    starts = [5, 60_000_000_005, 60_000_000_105]
    calls = [launch(start - 5, start, number) for number, start in enumerate(starts, start=1)]
    kernels = [kernel(start, start + 50, number) for number, start in enumerate(starts, start=1)]
    page_of(run_of_these(analysis_of(*calls, *kernels)), tmp_path)
    with timeline_of(browser, tmp_path / "report.html") as page:
        (rows,) = page.evaluate(_TIMES, ["operations"])
    assert rows == [[[start - 5, 50] for start in starts]]


@every_run
def test_every_level_of_a_pyramid_sums_up_to_its_row(
    browser: Any,
    names: tuple[str, ...],
) -> None:
    with timeline_of(browser, made(*names).file) as page:
        rows = page.evaluate(_SUMS_OF_LEVELS)
    assert {row["table"] for row in rows} >= {"operations", "calls", "gaps"}
    for row in rows:
        assert row["levels"] == pytest.approx([row["total"]] * len(row["levels"]))


@every_run
def test_a_gpu_idles_by_cause_as_the_table_of_gaps_says(
    browser: Any,
    names: tuple[str, ...],
) -> None:
    with timeline_of(browser, made(*names).file) as page:
        shown = page.evaluate(_IDLE_BY_CAUSE)
    frames = [analysed(name).tracks.gaps for name in names]
    expected = [
        list(gaps.select(pl.sum(*(f"{cause}_ns" for cause in CAUSES))).row(0))
        for frame in frames
        for gaps in frame.partition_by("lane", maintain_order=True)
    ]
    assert shown == expected


def test_a_measured_stretch_cuts_gaps_in_proportion(browser: Any) -> None:
    name = "h200-gpu-metrics"
    gaps = analysed(name).tracks.gaps.sort("start_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    longest = gaps.with_columns(length.alias("ns")).sort("ns").row(-1, named=True)
    middle = (longest["start_ns"] + longest["end_ns"]) // 2
    window = (middle, gaps["end_ns"].to_list()[-1] - 1)
    with timeline_of(browser, made(name).file) as page:
        zero_ns = page.evaluate("Number(inside.reports[0].described.zero_ns)")
        shown = page.evaluate(_IDLE_WITHIN, [time - zero_ns for time in window])
    inside = pl.min_horizontal("end_ns", pl.lit(window[1])) - pl.max_horizontal(
        "start_ns", pl.lit(window[0])
    )
    share = inside.clip(lower_bound=0) / length
    expected = gaps.select((pl.col(f"{cause}_ns") * share).sum() for cause in CAUSES).row(0)
    assert shown == pytest.approx(list(expected), abs=1e-3)
