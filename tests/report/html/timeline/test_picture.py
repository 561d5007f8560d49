"""What the canvas shows: every slice is at least a pixel, at any zoom."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests import tiny
from tests.report.html.made import Made, made, page_of
from tests.report.html.timeline.inside import timeline_of

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


def whole(page: Any) -> None:
    """Show the whole trace, and wait until it is drawn."""
    page.locator("#timeline-canvas").press("0")
    drawn(page)


def drawn(page: Any) -> None:
    """Wait for two pictures of the screen."""
    frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frame)


@pytest.fixture(scope="module")
def lonely() -> Made:
    """A kernel of 100 ns in the middle of two seconds without any other."""
    rows: list[tiny.Row] = []
    for number, start in enumerate((0, SECOND, 2 * SECOND)):
        rows.append(tiny.launch(start, start + 5_000, number))
        rows.append(tiny.kernel(start + 10_000, start + 10_100, number))
    return page_of([tiny.analysis_of(*rows)], {"tiny": Path("tiny.sqlite")})


def test_a_report_without_gpu_work_is_drawn(browser: Any) -> None:
    bare = page_of(
        [tiny.analysis_of(tiny.call(0, 100, "cudaMalloc"))], {"tiny": Path("tiny.sqlite")}
    )
    with timeline_of(browser, bare.file) as page:
        whole(page)
        page.locator("#timeline-canvas").press("g")
        assert page.evaluate("inside.state.selected") is None


def test_a_short_kernel_in_an_empty_second_is_seen(browser: Any, lonely: Made) -> None:
    with timeline_of(browser, lonely.file) as page:
        whole(page)
        assert page.evaluate(_IS_SEEN, [0, "operations", 1])


@pytest.mark.parametrize("name", ["h200-gpu-metrics", "h200-nvtx-domain"])
def test_zoomed_out_no_slice_is_left_out(browser: Any, name: str) -> None:
    with timeline_of(browser, made(name).file) as page:
        whole(page)
        assert page.evaluate(_ALL_SEEN) == []


def test_a_kernel_that_is_zoomed_to_fills_most_of_the_width(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file, at="#at=0.operations.17") as page:
        page.locator("#timeline-canvas").press("z")
        drawn(page)
        seen = page.evaluate(
            """() => {
                const {start, duration} = inside.reports[0].tables.operations;
                const {view} = inside.state;
                const inView = start[17] >= view.start && start[17] + duration[17] <= view.end;
                return [inView, duration[17] / (view.end - view.start)];
            }"""
        )
        assert page.evaluate(_IS_SEEN, [0, "operations", 17])
    assert seen[0]
    assert seen[1] == pytest.approx(1 / 1.2, rel=0.01)


def test_the_view_opens_on_three_steps_and_not_on_the_whole_trace(browser: Any) -> None:
    with timeline_of(browser, made("h200-gpu-metrics").file) as page:
        shown = page.evaluate(
            """() => {
                const {start, end} = inside.reports[0].tables.steps;
                const {view} = inside.state;
                const inView = (from, to) => from >= view.start && to <= view.end;
                return [...start].filter((time, step) => inView(time, end[step])).length;
            }"""
        )
    assert shown == 3


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
