"""The timeline draws every row of the picture: what it decodes and sums up is what was analysed."""

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from tests.analyses import CAUSE_COLUMNS, analysed
from tests.report.html.made import made
from tests.report.html.timeline.inside import timeline_of
from tests.report.html.unpacked import page_of, run_of_these
from tests.tiny import analysis_of, kernel, launch

RUNS: Final = (("h200-gpu-metrics",), ("h200-hf-trainer",), ("h200-ddp-rank0", "h200-ddp-rank1"))

_TABLES: Final = (
    *("operations", "calls", "ranges", "steps", "gaps", "profiler", "host_stacks", "stack_frames"),
)

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


@pytest.mark.parametrize("names", RUNS, ids="-".join)
def test_the_page_decodes_the_times_and_sums_them_up_as_analysed(
    browser: Any, names: tuple[str, ...]
) -> None:
    with timeline_of(browser, made(*names).file) as page:
        decoded = page.evaluate(_TIMES, _TABLES)
        rows_in_levels = page.evaluate(_SUMS_OF_LEVELS)
        idle = page.evaluate(_IDLE_BY_CAUSE)
    tracks = [analysed(name).tracks for name in names]
    for frames, tables in zip(tracks, decoded, strict=True):
        for table, rows in zip(_TABLES, tables, strict=True):
            times = getattr(frames, table).select("start_ns", "end_ns").rows()
            assert rows == [[start - times[0][0], end - start] for start, end in times], table
    assert {row["table"] for row in rows_in_levels} >= {"operations", "calls", "gaps"}
    for row in rows_in_levels:
        assert row["levels"] == pytest.approx([row["total"]] * len(row["levels"]))
    assert idle == [
        list(gaps.select(pl.sum(*CAUSE_COLUMNS)).row(0))
        for frames in tracks
        for gaps in frames.gaps.partition_by("lane", maintain_order=True)
    ]


def test_the_page_decodes_times_a_minute_apart(browser: Any, tmp_path: Path) -> None:
    starts = [5, 60_000_000_005, 60_000_000_105]
    calls = [launch(start - 5, start, number) for number, start in enumerate(starts, start=1)]
    kernels = [kernel(start, start + 50, number) for number, start in enumerate(starts, start=1)]
    page_of(run_of_these(analysis_of(*calls, *kernels)), tmp_path)
    with timeline_of(browser, tmp_path / "report.html") as page:
        (rows,) = page.evaluate(_TIMES, ["operations"])
    assert rows == [[[start - 5, 50] for start in starts]]
