"""What a reader does with the timeline: by pointer, keys and address, and on the ways to it."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl
import pytest
from playwright.sync_api import expect

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration
from tests.analyses import analysed
from tests.browser import wait_until
from tests.report.html.made import made
from tests.report.html.timeline.inside import canvas, heading, timeline_of

NAME: Final = "nan_check-sync"
LONGEST_GAPS: Final = """() => {
    const {gaps} = inside.reports[0].tables;
    const found = [];
    let gap = null;
    while ((gap = inside.nextLongest(gap, false))) {
        found.push([gaps.start[gap.row], gaps.end[gap.row]]);
    }
    return found;
}"""
FOCUSED: Final = "document.activeElement.id"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """The page of a small report with the source line of each call."""
    with timeline_of(browser, made(NAME).file) as shown:
        yield shown


def selected(page: Any) -> Any:
    """`[report, table, row]` of what is selected, if anything is."""
    return page.evaluate("() => inside.state.selected && Object.values(inside.state.selected)")


def view(page: Any) -> tuple[float, float]:
    """The start and the end of what is shown, in ns of the page's axis."""
    start, end = page.evaluate("() => Object.values(inside.state.view)")
    return start, end


def shown_ns(page: Any) -> float:
    """How much time is shown."""
    start, end = view(page)
    return end - start


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


def details(page: Any) -> str:
    """The panel beside the lanes."""
    return str(page.locator("#timeline-details").inner_text())


def longest_gap() -> dict[str, Any]:
    """The longest gap, with its row in the picture."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    gaps = analysed(NAME).tracks.gaps.with_columns(length).with_row_index("row")
    (in_table,) = analysed(NAME).longest_gaps(1).rows(named=True)
    return in_table | gaps.sort("ns", "row", descending=[True, False]).row(0, named=True)


def test_a_click_goes_from_a_gap_to_what_is_to_blame(page: Any) -> None:
    gap = longest_gap()
    page.get_by_role("button", name="The longest gap").click()
    canvas(page).press("Escape")
    click_on(page, "gaps", gap["row"])
    assert selected(page) == [0, "gaps", gap["row"]]
    assert f"{gap['ns']:,} ns" in details(page)
    cells = page.locator("#timeline-details .causes td:nth-child(2)").all_inner_texts()
    causes = [gap[f"{cause}_ns"] for cause in CAUSES if gap[f"{cause}_ns"]]
    assert sorted(cells) == sorted(map(duration, causes))
    page.locator("#timeline-details .go[data-role=culprit]").click()
    assert selected(page) == [0, "calls", gap["culprit_call"]]
    assert heading(page) == gap["culprit"]
    assert gap["source"] in details(page)


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
    page.click("#tab-gaps")
    wait_until(page, "location.hash.includes('tab=gaps')")
    address = page.evaluate("location.hash")
    assert address == "#t=2000000,3000000&at=0.operations.5&q=launch&tab=gaps"
    with timeline_of(browser, made(NAME).file, at=address) as again:
        assert (view(again), selected(again)) == ((2e6, 3e6), [0, "operations", 5])
        assert heading(again) == heading(page)
        assert again.input_value("#timeline-search") == "launch"
        assert again.get_attribute("#tab-gaps", "aria-selected") == "true"
        again.evaluate("location.hash = '#t=4000000,5000000'")
        wait_until(again, "inside.state.view.start === 4e6")


NONSENSE: Final = (
    *("t=5,1", "t=a,b", "at=9.gaps.1", "at=0.gaps.99999", "at=0.toString.0"),
    *("tab=none", "%E0%A4%A", "findings", "t=9,3&at=7.calls.1&q=%"),
    *("pinned=999,x&hidden=,&order=q", "area=9,5", "area=1,2,999", "kept=1"),
)


GO_TO: Final = """fragment => new Promise(done => {
    addEventListener("hashchange", done, {once: true});  // after the page's own listener
    location.hash = fragment;
})"""


def test_an_address_that_says_nonsense_changes_nothing(browser: Any) -> None:
    with timeline_of(browser, made(NAME).file, at=f"#{NONSENSE[0]}") as page:
        before = view(page)
        for fragment in NONSENSE[1:]:
            page.evaluate(GO_TO, fragment)
            assert selected(page) is None, fragment
            assert page.evaluate("inside.state.area ?? inside.state.kept") is None, fragment
            assert view(page) == pytest.approx(before, abs=1), fragment
    assert 0 <= before[0] < before[1]


def test_keys_alone_find_a_gap_and_go_to_its_culprit_and_back(page: Any) -> None:
    page.locator("#timeline-search").focus()
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == "timeline-canvas":
            break
    gap = longest_gap()
    page.keyboard.press("g")
    assert selected(page) == [0, "gaps", gap["row"]]
    assert "the GPU idles" in page.locator("#timeline-said").inner_text()
    page.keyboard.press("b")
    assert selected(page) == [0, "calls", gap["culprit_call"]]
    page.keyboard.press("Escape")
    assert selected(page) is None
    page.keyboard.press("g")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "timeline-details"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert selected(page) == [0, "calls", gap["culprit_call"]]
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == "timeline-canvas"


def test_keys_move_along_and_across_the_lanes(page: Any) -> None:
    page.evaluate("() => inside.select(0, 'operations', 5)")
    for key, row in (("]", 6), ("[", 5)):
        canvas(page).press(key)
        assert selected(page) == [0, "operations", row]
    for key, table in (("ArrowUp", "gaps"), ("ArrowDown", "operations")):
        canvas(page).press(key)
        assert selected(page)[1] == table


def test_a_question_mark_lists_the_keys(page: Any) -> None:
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys of the timeline")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_search_counts_every_slice_of_the_name_and_goes_through_them(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("cudaLaunchKernel")
    page.keyboard.press("Enter")
    calls = analysed(NAME).tracks.calls
    expected = calls.filter(pl.col("name").cast(pl.String).str.contains("cudaLaunchKernel"))
    assert page.inner_text("#timeline-found").startswith(f"{expected.height:,} found")
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


def test_the_functions_of_the_program_stand_out_on_the_stack(browser: Any) -> None:
    with timeline_of(browser, made("h200-hf-trainer").file) as page:
        page.get_by_role("button", name="your code").click()
        frames = analysed("h200-hf-trainer").tracks.stack_frames
        own = frames.filter("own").select(ns=pl.col("end_ns") - pl.col("start_ns"))
        shown = page.evaluate("[inside.surface.marked.count, inside.surface.marked.ns]")
        assert shown == [own.height, own["ns"].sum()] != [0, 0]


def test_the_wheel_zooms_around_the_pointer(page: Any) -> None:
    box = canvas(page).bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    time = "inside.lanesScale().time(500 - inside.surface.titles)"
    before, width = page.evaluate(f"[{time}, inside.lanesScale().nsPerPixel]")
    page.mouse.wheel(0, -300)
    wait_until(page, f"inside.lanesScale().nsPerPixel < {width}")
    assert page.evaluate(time) == pytest.approx(before, abs=2 * width)


def test_a_closed_group_keeps_its_lanes_to_one_line(page: Any) -> None:
    height = "inside.surface.layout.height"
    before = page.evaluate(height)
    canvas(page).click(position={"x": 20, "y": 36})
    assert page.evaluate(height) < before
    canvas(page).click(position={"x": 20, "y": 36})
    assert page.evaluate(height) == before


SHOWN: Final = """() => inside.surface.layout.items.filter(({lane}) => lane)
    .map(({lane}) => lane.title.replace("GPU 0: ", "").replace("main thread: ", ""))"""


def test_keys_pin_move_and_hide_a_lane_and_the_address_keeps_it(browser: Any, page: Any) -> None:
    before = page.evaluate(SHOWN)
    assert before[:4] == ["steps", "idle", "stream 7", "phases"]
    canvas(page).press("g")
    canvas(page).press("Shift+ArrowUp")
    assert page.evaluate(SHOWN)[:3] == ["idle", "steps", "stream 7"]
    page.evaluate("() => inside.select(0, 'calls', 5)")
    for key in ("ArrowDown", "ArrowUp", "P", "g", "h"):
        canvas(page).press(key)
    arranged = ["API calls", "steps", "stream 7", "phases"]
    assert page.evaluate(SHOWN)[:4] == arranged
    wait_until(page, "location.hash.includes('hidden')")
    with timeline_of(browser, made(NAME).file, at=page.evaluate("location.hash")) as again:
        assert again.evaluate(SHOWN)[:4] == arranged
        canvas(again).press("g")  # what leads to a hidden lane shows it
        assert again.evaluate(SHOWN)[1:3] == ["idle", "steps"]
        canvas(again).press("l")
        again.get_by_role("button", name="As at the start").click()
        assert again.evaluate(SHOWN) == before


def test_the_list_of_lanes_hides_and_shows_them(page: Any) -> None:
    page.get_by_role("button", name="Pin, hide and move lanes").click()
    page.get_by_role("checkbox", name="GPU 0").uncheck()
    assert "idle" not in page.evaluate(SHOWN)
    page.get_by_role("button", name="Pin GPU 0: idle").click()
    assert page.evaluate(SHOWN)[0] == "idle"
    assert page.evaluate("document.activeElement.ariaPressed") == "true"


def test_a_title_is_dragged_to_another_place(page: Any) -> None:
    box = canvas(page).bounding_box()
    steps, stream = page.evaluate(
        """() => inside.surface.layout.items.filter(({lane}) => lane)
            .slice(0, 3).map(({lane}) => lane.top + lane.height - 4)"""
    )[::2]
    before = page.evaluate(SHOWN)
    page.mouse.move(box["x"] + 40, box["y"] + 26 + steps)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 26 + stream, steps=9)
    page.mouse.up()
    assert page.evaluate(SHOWN) == ["idle", "stream 7", "steps", *before[3:]]


def test_a_finding_leads_to_its_longest_gap(page: Any) -> None:
    before_ns = shown_ns(page)
    page.click("text=Show in the timeline >> nth=0")
    assert page.evaluate(FOCUSED) == "timeline-canvas"
    gap_ns = 640_000  # `nsysflow explain 1` names it: 640 us
    assert gap_ns <= shown_ns(page) < 2 * gap_ns < before_ns


def test_a_finding_about_a_kernel_leads_to_one_of_its_runs(page: Any) -> None:
    page.click("text=Show in the timeline >> nth=1")
    kernels = made(NAME).document["findings"][1]["culprit"]
    assert (selected(page)[1], heading(page)) == ("operations", kernels)


def test_the_tooltip_is_of_what_moves_under_the_pointer(page: Any) -> None:
    page.evaluate("() => inside.select(0, 'operations', 17)")
    canvas(page).press("z")
    click_on(page, "operations", 17)
    tip = page.locator("#timeline-tip")
    expect(tip).to_contain_text(heading(page))
    before = tip.inner_text()
    canvas(page).press("[")
    canvas(page).press("z")
    expect(tip).not_to_have_text(before)


def test_the_longest_gaps_are_judged_ones(page: Any) -> None:
    (judged,) = page.evaluate("inside.reports[0].judged")
    gaps = page.evaluate(LONGEST_GAPS)
    assert len(gaps) > 3
    assert all(judged[0] <= (start + end) / 2 <= judged[1] for start, end in gaps)


def test_a_row_with_a_time_leads_there(browser: Any) -> None:
    run = made("ddp-bucketed-rank0", "ddp-bucketed-rank1")
    with timeline_of(browser, run.file) as page:
        page.click("#tab-syncs")
        page.click(".grid tbody button.go >> nth=0")
        blocked_ns = run.document["syncs"][0]["blocked_ns"]
        assert blocked_ns <= shown_ns(page) <= 1.5 * blocked_ns


def test_a_kernel_is_searched_in_the_timeline(page: Any) -> None:
    page.click(".grid tbody button.go >> nth=0")
    first = made(NAME).document["kernels"][0]
    assert page.input_value("#timeline-search") == first["short_name"]


def test_a_step_is_chosen_by_keyboard_and_shown(page: Any) -> None:
    step = made(NAME).document["steps"]["rows"][2]
    page.focus(".strip")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(".strip", "aria-valuetext").startswith("step 2: 4.0")
    page.keyboard.press("Enter")
    assert step["duration_ns"] <= shown_ns(page) < 1.5 * step["duration_ns"]
