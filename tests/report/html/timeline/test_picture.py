"""What the canvas shows: every row of the picture, each slice at least a pixel at any zoom; and
what the tables of an area say: of one area, and of two beside each other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from playwright.sync_api import expect

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analyses import CAUSE_COLUMNS, analysed, loaded
from tests.browser import wait_for_picture, wait_until
from tests.report.html.made import made, made_of, run_of_these
from tests.report.html.timeline.inside import canvas, timeline_of

SECOND: Final = 1_000_000_000

_IS_SEEN: Final = """([report, table, row]) => {
    const place = inside.placeOf({report, table, row});
    const scale = inside.lanesScale();
    const {left, right, bottom} = inside.boxOf(place, scale);
    const {raster, theme, ratio} = inside.surface;
    const x = Math.floor(Math.min(left + 0.01, right) * ratio);
    const y = Math.round(bottom * ratio) - 1;
    const pixel = raster.pixels[y * raster.width + x];
    return pixel !== theme.ground && pixel !== theme.outside;
}"""

_ALL_SEEN: Final = """() => {
    const missing = [];
    const {raster, theme} = inside.surface;
    const scale = inside.lanesScale();
    for (const lane of inside.lanes) for (const row of lane.rows ?? []) {
        for (let slice = 0; slice < row.n; slice++) {
            const box = inside.boxOf({row, slice}, scale);
            if (box.bottom > inside.surface.height) continue;
            const x = Math.floor(box.left + 1e-6);
            const line = (box.bottom - 1) * raster.width;
            const columns = [x, x + 1].map(at => raster.pixels[line + at]);
            const empty = columns.every(pixel => pixel === theme.ground || pixel === theme.outside);
            if (empty) missing.push([lane.title, inside.tableRow(row, slice)]);
        }
    }
    return missing;
}"""

_STEPS_IN_VIEW: Final = """() => {
    const {start, end} = inside.reports[0].tables.steps;
    const {view} = inside.state;
    return [...start].filter((time, at) => time >= view.start && end[at] <= view.end).length;
}"""

_SHARE_OF_VIEW: Final = """row => {
    const {start, duration} = inside.reports[0].tables.operations;
    const {view} = inside.state;
    const inView = start[row] >= view.start && start[row] + duration[row] <= view.end;
    return inView && duration[row] / (view.end - view.start);
}"""


def press(page: Any, key: str) -> None:
    """Press a key on the canvas, and wait until its picture is there."""
    canvas(page).press(key)
    wait_for_picture(page)


def tiny_page(*rows: tiny.Row) -> Path:
    return made_of(run_of_these(tiny.analysis_of(*rows))).file


def test_a_report_without_gpu_work_is_drawn(browser: Any) -> None:
    with timeline_of(browser, tiny_page(tiny.call(0, 100, "cudaMalloc"))) as page:
        press(page, "0")
        press(page, "g")
        assert page.evaluate("inside.state.selected") is None


def test_a_short_kernel_in_an_empty_second_is_seen(browser: Any) -> None:
    rows: list[tiny.Row] = []
    for number, start in enumerate((0, SECOND, 2 * SECOND)):
        rows.append(tiny.launch(start, start + 5_000, number))
        rows.append(tiny.kernel(start + 10_000, start + 10_100, number))
    with timeline_of(browser, tiny_page(*rows)) as page:
        press(page, "0")
        assert page.evaluate(_IS_SEEN, [0, "operations", 1])


def test_the_view_opens_on_three_steps_and_not_on_the_whole_trace(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file) as page:
        assert page.evaluate(_STEPS_IN_VIEW) == 3


@pytest.mark.parametrize("name", ["h200-gpu-metrics", "h200-nvtx-domain"])
def test_zoomed_out_no_slice_is_left_out(browser: Any, name: str) -> None:
    with timeline_of(browser, made(name).file) as page:
        press(page, "0")
        assert page.evaluate(_ALL_SEEN) == []


def test_a_kernel_that_is_zoomed_to_fills_most_of_the_width(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file, at="#at=0.operations.17") as page:
        press(page, "z")
        assert page.evaluate(_SHARE_OF_VIEW, 17) == pytest.approx(1 / 1.2, rel=0.01)
        assert page.evaluate(_IS_SEEN, [0, "operations", 17])


def test_a_pointer_that_moves_draws_no_bars(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file) as page:
        box = canvas(page).bounding_box()
        wait_for_picture(page)
        before = page.evaluate("inside.surface.pictures")
        for x in (400, 500):
            page.mouse.move(box["x"] + x, box["y"] + 60)
            wait_until(page, f"inside.surface.pointerX === {x}")
            wait_for_picture(page)
        assert page.evaluate("inside.surface.pictures") == before


_TICKS: Final = {
    (0, 1_000_000): (0, 100_000),
    (5_000_000_000, 5_000_001_000): (5_000_000_000, 100),
    (0, 20): (0, 2),
    (123_456_789, 123_456_799): (123_456_700, 1),
}
"""The base and the step of the ticks of a view that is 1100 px wide."""


def test_ticks_are_round_and_count_from_a_round_time(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file) as page:
        views = [list(view) for view in _TICKS]
        found = page.evaluate("views => views.map(view => inside.ticksOf(...view, 1100))", views)
    for ((start, _), (base, step)), axis in zip(_TICKS.items(), found, strict=True):
        assert (axis["base"], axis["step"]) == (base, step)
        assert all(tick % step == 0 for tick in axis["ticks"])
        assert start <= axis["ticks"][0] < start + step


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


def test_the_page_decodes_times_a_minute_apart(browser: Any) -> None:
    starts = [5, 60_000_000_005, 60_000_000_105]
    calls = [tiny.launch(start - 5, start, number) for number, start in enumerate(starts)]
    kernels = [tiny.kernel(start, start + 50, number) for number, start in enumerate(starts)]
    with timeline_of(browser, tiny_page(*calls, *kernels)) as page:
        (rows,) = page.evaluate(_TIMES, ["operations"])
    assert rows == [[[start - 5, 50] for start in starts]]


NAME: Final = "h200-hf-trainer"  # with samples of Python
CONTENTS: Final = """() => {
    const {work, idle, stacks} = inside.contentsOf(inside.state.area);
    return [work, stacks, idle].map(sums => Object.fromEntries(sums));
}"""

Sums = dict[str, dict[str, int]]
Span = tuple[int, int]


def cut_gaps() -> Span:
    """A stretch whose edges are inside of gaps."""
    gaps = analysed(NAME).tracks.gaps.filter(pl.col("end_ns") - pl.col("start_ns") > 3_000)
    (first, last) = (gaps.row(at, named=True) for at in (100, 900))
    return first["start_ns"] + 1_001, last["end_ns"] - 1_003


def zero_ns(page: Any) -> int:
    return int(page.evaluate("Number(inside.reports[0].described.zero_ns)"))


def by_name(table: str, span: Span) -> Sums:
    """How many rows of a picture's table are in a stretch, and how long they are there."""
    inside = pl.col("end_ns").clip(*span) - pl.col("start_ns").clip(*span)
    rows = getattr(analysed(NAME).tracks, table)
    found = rows.filter(pl.col("end_ns") > span[0], pl.col("start_ns") < span[1])
    named = found.group_by(pl.col("name").cast(pl.String)).agg(count=pl.len(), ns=inside.sum())
    return {name: {"count": count, "ns": ns} for name, count, ns in named.rows()}


def listed(page: Any, title: str) -> list[int]:
    """The first figure in ns of each row of a table of the panel, and of its total."""
    table = page.locator(f"#timeline-details [data-area='{title}']")
    cells = table.locator("tr td:nth-of-type(2)[data-ns], tr td:nth-of-type(1)[data-ns]")
    return [int(ns) for ns in cells.evaluate_all("all => all.map(each => each.dataset.ns)")]


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with timeline_of(browser, made(NAME).file) as shown:
        yield shown


def test_an_area_holds_what_the_analysis_of_this_stretch_does(page: Any) -> None:
    span = cut_gaps()
    zero = zero_ns(page)
    page.evaluate(f"() => inside.setArea({{start: {span[0] - zero}, end: {span[1] - zero}}})")
    work, stacks, idle = page.evaluate(CONTENTS)
    assert (work, stacks) == (by_name("operations", span), by_name("host_stacks", span))
    narrowed = nsysflow.analyze(loaded(NAME), Options(from_ns=span[0], to_ns=span[1]))
    (row,) = narrowed.accounting.select(CAUSE_COLUMNS).rows()
    expected = {str(at): ns for at, (_, ns) in enumerate(zip(CAUSES, row, strict=True)) if ns}
    assert {cause: each["ns"] for cause, each in idle.items()} == expected
    for title, sums in (("Idle by cause", idle), ("GPU work", work), ("Python", stacks)):
        longest = sorted((each["ns"] for each in sums.values()), reverse=True)
        for button in page.get_by_role("button", name=f"All {len(longest)}").all():
            button.click()
        expect(page.locator(f"[data-area='{title}'] tbody tr")).to_have_count(len(longest))
        assert listed(page, title) == [*longest, sum(longest)]


def drag(page: Any, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Drag over the lanes with Shift."""
    box = canvas(page).bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + start[0], box["y"] + start[1])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0], box["y"] + end[1], steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")


def middle_of(page: Any, kind: str) -> int:
    """The height on the canvas of the middle of the first lane of a kind."""
    place = """kind => {
        const {top, height} = inside.lanes.find(lane => lane.kind === kind);
        return top + height / 2 + 26;
    }"""
    return int(page.evaluate(place, kind))


def test_a_drag_selects_time_and_across_lanes_only_these(page: Any) -> None:
    idle, stream = middle_of(page, "gaps"), middle_of(page, "stream")
    drag(page, (400, idle), (600, idle + 3))
    per_px = page.evaluate("inside.lanesScale().nsPerPixel")
    start, end, lanes = page.evaluate("Object.values(inside.state.area)")
    assert end - start == pytest.approx(200 * per_px, rel=0.01)
    assert lanes is None
    expect(page.locator("[data-area='GPU work'] tfoot")).to_be_visible()
    drag(page, (400, idle), (600, stream))
    expect(page.locator("[data-area='Python']")).to_have_count(0)
    found = page.evaluate("inside.state.area.lanes.map(id => inside.lanes[id].kind)")
    assert found == ["gaps", "stream"]
    canvas(page).press("Escape")
    assert page.evaluate("inside.state.area") is None


def test_a_kept_area_is_compared_with_the_next_one(browser: Any, page: Any) -> None:
    for step, keys in ((1, "mA"), (2, "m")):
        page.evaluate(f"() => inside.select(0, 'steps', {step})")
        for key in keys:
            canvas(page).press(key)
    steps = analysed(NAME).tracks.steps.sort("start_ns").select("start_ns", "end_ns").rows()
    both = [by_name("operations", span) for span in steps[1:3]]
    a, b = (sum(each["ns"] for each in sums.values()) for sums in both)
    total = page.locator("[data-area='GPU work'] tfoot td")
    expect(total).to_have_count(3)
    assert [int(ns) for ns in total.evaluate_all("all => all.map(td => td.dataset.ns)")] == [
        *(a, b, b - a)
    ]
    wait_until(page, "location.hash.includes('kept=')")
    address = page.evaluate("location.hash")
    with timeline_of(browser, made(NAME).file, at=address) as again:
        expect(again.locator("[data-area='GPU work'] tfoot td")).to_have_count(3)
        assert again.evaluate("inside.state.kept") == page.evaluate("inside.state.kept")
