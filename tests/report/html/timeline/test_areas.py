"""What the tables of an area say: of one area, and of two beside each other."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl
import pytest
from playwright.sync_api import expect

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options
from tests.analyses import CAUSE_COLUMNS, analysed, loaded
from tests.browser import wait_until
from tests.report.html.made import made
from tests.report.html.timeline.inside import canvas, timeline_of

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
