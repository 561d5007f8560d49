"""What the canvas shows: every slice is at least a pixel, at any zoom."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests import tiny
from tests.browser import wait_for_picture, wait_until
from tests.report.html.made import Made, made, page_of
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


def tiny_page(*rows: tiny.Row) -> Made:
    return page_of([tiny.analysis_of(*rows)], {"plain": Path("plain.sqlite")})


def test_a_report_without_gpu_work_is_drawn(browser: Any) -> None:
    with timeline_of(browser, tiny_page(tiny.call(0, 100, "cudaMalloc")).file) as page:
        press(page, "0")
        press(page, "g")
        assert page.evaluate("inside.state.selected") is None


def test_a_short_kernel_in_an_empty_second_is_seen(browser: Any) -> None:
    rows: list[tiny.Row] = []
    for number, start in enumerate((0, SECOND, 2 * SECOND)):
        rows.append(tiny.launch(start, start + 5_000, number))
        rows.append(tiny.kernel(start + 10_000, start + 10_100, number))
    with timeline_of(browser, tiny_page(*rows).file) as page:
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
