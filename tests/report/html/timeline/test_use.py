"""What a reader does with the timeline: by pointer, by keys, and by an address."""

from typing import Any, Final

import polars as pl
import pytest

from tests.analyses import analysed
from tests.report.html.made import made
from tests.report.html.timeline.inside import canvas, heading, timeline_of

NAME: Final = "h200-gpu-metrics"


@pytest.fixture
def page(browser: Any) -> Any:
    """The page of a small report."""
    with timeline_of(browser, made(NAME).file) as shown:
        yield shown


def selected(page: Any) -> list[Any]:
    """`[report, table, row]` of what is selected."""
    found: list[Any] = page.evaluate(
        "() => inside.state.selected && Object.values(inside.state.selected)"
    )
    return found


def click_on(page: Any, table: str, row: int) -> None:
    """Click in the middle of a slice that is in sight."""
    place = page.evaluate(
        """([table, row]) => {
            const place = inside.placeOf({report: 0, table, row});
            const {left, right, top, bottom} = inside.boxOf(place, inside.lanesScale());
            return {x: (left + right) / 2, y: (top + bottom) / 2};
        }""",
        [table, row],
    )
    canvas(page).click(position=place)


def longest_gap() -> dict[str, Any]:
    """The longest gap, with its row."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    gaps = analysed(NAME).tracks.gaps.with_columns(length).with_row_index("row")
    return gaps.sort("ns", "row", descending=[True, False]).row(0, named=True)


def test_a_click_goes_from_a_gap_to_what_is_to_blame(page: Any) -> None:
    gap = longest_gap()
    canvas(page).press("g")
    canvas(page).press("Escape")
    click_on(page, "gaps", gap["row"])
    assert selected(page) == [0, "gaps", gap["row"]]
    page.locator("#timeline-details .go[data-role=culprit]").click()
    assert selected(page) == [0, "calls", gap["culprit_call"]]
    assert heading(page) == analysed(NAME).tracks.calls["name"][gap["culprit_call"]]


def test_a_kernel_leads_to_its_launch_and_back(page: Any) -> None:
    calls = analysed(NAME).tracks.operations["call"]
    page.evaluate("() => inside.select(0, 'operations', 17)")
    page.locator("#timeline-details .go[data-role=launch]").click()
    assert selected(page) == [0, "calls", calls[17]]
    page.locator("#timeline-details .go[data-role=work]").first.click()
    assert selected(page) == [0, "operations", 17]


def test_an_address_leads_back_to_its_place(browser: Any, page: Any) -> None:
    page.evaluate("() => { inside.setView(2e6, 3e6); inside.select(0, 'operations', 5); }")
    page.locator("#timeline-search").fill("launch")
    page.wait_for_function("location.hash.includes('q=launch')")
    address = page.evaluate("location.hash")
    state = (
        "() => { const {view, selected, query} = inside.state; return {view, selected, query}; }"
    )
    left = page.evaluate(state)
    assert left["selected"] == {"report": 0, "table": "operations", "row": 5}
    with timeline_of(browser, made(NAME).file, at=address) as again:
        assert again.evaluate(state) == left
        assert heading(again) == heading(page)
        again.evaluate("location.hash = '#t=4000000,5000000'")
        again.wait_for_function("inside.state.view.start === 4e6")


def test_an_address_that_says_nonsense_is_left_alone(browser: Any) -> None:
    with timeline_of(browser, made(NAME).file, at="#t=9,3&at=7.calls.1&q=%") as page:
        assert selected(page) is None
        assert page.evaluate("inside.state.view.end - inside.state.view.start") > 1


def test_keys_alone_find_a_gap_and_go_to_its_culprit(page: Any) -> None:
    page.locator("#timeline-search").focus()
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "timeline-canvas":
            break
    gap = longest_gap()
    page.keyboard.press("g")
    assert selected(page) == [0, "gaps", gap["row"]]
    assert "the GPU idles" in page.locator("#timeline-said").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "timeline-details"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert selected(page) == [0, "calls", gap["culprit_call"]]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "timeline-canvas"
    page.keyboard.press("Escape")
    assert selected(page) is None


def test_keys_move_along_and_across_the_lanes(page: Any) -> None:
    page.evaluate("() => inside.select(0, 'operations', 5)")
    canvas(page).press("]")
    assert selected(page) == [0, "operations", 6]
    canvas(page).press("[")
    assert selected(page) == [0, "operations", 5]
    canvas(page).press("ArrowUp")
    assert selected(page)[1] == "gaps"
    canvas(page).press("ArrowDown")
    assert selected(page)[1] == "operations"


def test_a_question_mark_lists_the_keys(page: Any) -> None:
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys of the timeline")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_search_counts_every_slice_of_the_name(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("cudaLaunchKernel")
    page.keyboard.press("Enter")
    calls = analysed(NAME).tracks.calls
    expected = calls.filter(pl.col("name").cast(pl.String).str.contains("cudaLaunchKernel"))
    words = page.locator("#timeline-found").inner_text()
    assert words.startswith(f"{expected.height:,} found")
    first = selected(page)
    assert first[1] == "calls"
    page.keyboard.press("Enter")
    later = selected(page)
    page.keyboard.press("Shift+Enter")
    assert later != first
    assert selected(page) == first


def test_a_cause_in_the_legend_makes_its_gaps_stand_out(page: Any) -> None:
    entry = page.get_by_role("button", name="launch overhead")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "true"
    expected = analysed(NAME).tracks.gaps.filter(pl.col("launch_ns") > 0)
    shown = page.evaluate("[inside.surface.marked.count, inside.surface.marked.ns]")
    assert shown == [expected.height, expected["launch_ns"].sum()]
    entry.click()
    assert page.evaluate("inside.surface.marked") is None


def test_a_stretch_that_is_dragged_with_shift_is_measured(page: Any) -> None:
    box = canvas(page).bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 60, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    start, end = page.evaluate("() => Object.values(inside.surface.measured)")
    per_px = page.evaluate("inside.lanesScale().nsPerPixel")
    assert end - start == pytest.approx(200 * per_px, rel=0.01)
    assert "idles" in page.locator("#timeline-details").inner_text()


def test_the_wheel_zooms_around_the_pointer(page: Any) -> None:
    box = canvas(page).bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    time = "inside.lanesScale().time(500 - inside.surface.titles)"
    before, width = page.evaluate(f"[{time}, inside.lanesScale().nsPerPixel]")
    page.wait_for_timeout(500)
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"inside.lanesScale().nsPerPixel < {width}")
    assert page.evaluate(time) == pytest.approx(before, abs=2 * width)


def test_a_closed_group_keeps_its_lanes_to_one_line(page: Any) -> None:
    height = "inside.surface.layout.height"
    before = page.evaluate(height)
    canvas(page).click(position={"x": 20, "y": 36})
    assert page.evaluate(height) < before
    canvas(page).click(position={"x": 20, "y": 36})
    assert page.evaluate(height) == before
