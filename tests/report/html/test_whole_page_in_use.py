"""The page in use: gap to culprit, keyboard, filter, search, and the address of a place."""

import re
from typing import Any, Final
from urllib.parse import unquote

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import made

NAME: Final = "nan_check-sync"
SORT: Final = "#timeline-details .sort"
SELECTED: Final = "#timeline-details h3"
NOTHING: Final = "In view"
"""What the panel says while nothing is selected."""


def shown(browser: Any, at: str = "") -> Any:
    """The page, open at a place."""
    return opened(browser, made(NAME).file, at=at)


def selected(page: Any) -> tuple[str, str]:
    """What is selected, as the panel beside the lanes says: its sort and its name."""
    page.wait_for_timeout(50)
    return page.inner_text(SORT), page.inner_text(SELECTED)


def is_selected(page: Any) -> bool:
    """Whether anything is."""
    return bool(selected(page)[0] != NOTHING)


def canvas(page: Any) -> None:
    """Give the lanes the keyboard."""
    page.locator("#timeline canvas#timeline-canvas").focus()


def address(page: Any) -> str:
    """The fragment of the address, once it is written."""
    page.wait_for_timeout(400)
    return unquote(page.evaluate("location.hash"))


def test_a_click_leads_from_a_gap_to_what_is_to_blame(browser: Any) -> None:
    gap = analysed(NAME).longest_gaps(1).row(0, named=True)
    with shown(browser) as page:
        page.get_by_role("button", name="The longest gap").click()
        assert selected(page)[0] == "The GPU idles"
        culprit = page.locator("#timeline-details .go[data-role=culprit]")
        assert culprit.inner_text() == gap["culprit"]
        culprit.click()
        assert selected(page) == ("CUDA call", gap["culprit"])
        assert "source line" in page.locator("#timeline-details").inner_text()
        assert gap["source"] in page.locator("#timeline-details").inner_text()
        assert ".calls." in address(page)


def test_a_gap_is_selected_by_a_click_on_its_bar(browser: Any) -> None:
    with shown(browser) as page:
        canvas(page)
        for key in ("g", "z"):  # the gap fills most of the width
            page.keyboard.press(key)
        name = selected(page)
        for key in ("Escape", "Escape"):
            page.keyboard.press(key)
        assert not is_selected(page)
        lanes = page.locator("#timeline-canvas").bounding_box()
        assert lanes is not None
        middle = lanes["x"] + 0.55 * lanes["width"]
        for y in range(int(lanes["y"]) + 4, int(lanes["y"] + lanes["height"]), 6):
            page.mouse.click(middle, y)
            if selected(page) == name:
                return
        pytest.fail("no click selected the gap")


def test_a_gap_is_shown_with_the_causes_of_its_row(browser: Any) -> None:
    gap = analysed(NAME).longest_gaps(1).row(0, named=True)
    with shown(browser) as page:
        canvas(page)
        page.keyboard.press("g")
        facts = page.locator("#timeline-details dl").first.inner_text()
        assert f"{gap['duration_ns']:,} ns" in facts
        cells = page.locator("#timeline-details .causes td:nth-child(2)").all_inner_texts()
    causes = [gap[f"{cause}_ns"] for cause in CAUSES if gap[f"{cause}_ns"]]
    assert sorted(cells) == sorted(map(duration, causes))


def test_all_of_the_page_is_reached_by_the_tab_key(browser: Any) -> None:
    with shown(browser) as page:
        wanted = page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, summary, [tabindex='0']")]
            .filter((each) => each.tabIndex >= 0 && each.checkVisibility({visibilityProperty: true})
                && !each.closest("[hidden], dialog:not([open])") && !each.disabled)
            .map((each, at) => { each.dataset.stop = at; return at; })"""
        )
        reached = set()
        for _ in range(3 * len(wanted)):
            page.keyboard.press("Tab")
            stop = page.evaluate("document.activeElement?.dataset?.stop ?? null")
            if stop is not None:
                reached.add(int(stop))
        missed = [
            page.evaluate(f"document.querySelector('[data-stop=\"{at}\"]').outerHTML.slice(0, 120)")
            for at in wanted
            if at not in reached
        ]
        assert missed == []


def test_the_keyboard_alone_leads_from_a_gap_to_its_culprit_and_back(browser: Any) -> None:
    with shown(browser) as page:
        canvas(page)
        page.keyboard.press("g")
        gap = selected(page)
        page.keyboard.press("b")
        assert selected(page)[0] == "CUDA call"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "timeline-details"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "timeline-canvas"
        page.keyboard.press("Escape")
        assert not is_selected(page)
        page.keyboard.press("g")
        assert selected(page) == gap


def test_a_focused_element_can_be_seen(browser: Any) -> None:
    with shown(browser) as page:
        for _ in range(12):
            page.keyboard.press("Tab")
            outline, shadow = page.evaluate(
                """() => { const look = getComputedStyle(document.activeElement);
                return [look.outlineStyle !== "none" && parseFloat(look.outlineWidth) > 0,
                    look.boxShadow !== "none"]; }"""
            )
            assert outline or shadow, page.evaluate("document.activeElement.outerHTML")


def test_a_finding_leads_into_the_timeline(browser: Any) -> None:
    with shown(browser) as page:
        before = address(page)
        page.get_by_role("button", name="Show in the timeline").first.click()
        assert address(page) != before
        assert page.locator("#timeline-canvas").is_visible()


def test_the_search_counts_and_marks_what_has_the_word(browser: Any) -> None:
    with shown(browser) as page:
        page.keyboard.press("/")
        page.keyboard.type("cudaStreamSynchronize")
        page.wait_for_selector("#timeline-found:has-text('found')")
        assert "q=cudaStreamSynchronize" in address(page)
        page.keyboard.press("Enter")
        assert "cudaStreamSynchronize" in page.inner_text("#timeline-details")


def test_the_address_leads_back_to_the_same_place(browser: Any) -> None:
    with shown(browser) as page:
        canvas(page)
        for key in ("g", "z"):
            page.keyboard.press(key)
        page.locator("#tab-gaps").click()
        place, what = address(page), selected(page)
    assert re.match(r"#t=\d+,\d+&at=0\.gaps\.\d+&tab=gaps$", place)
    with shown(browser, place) as page:
        assert selected(page) == what
        assert address(page) == place
        assert page.locator("#tab-gaps").get_attribute("aria-selected") == "true"


@pytest.mark.parametrize(
    "fragment",
    [
        "t=5,1",
        "t=a,b",
        "at=9.gaps.1",
        "at=0.gaps.99999",
        "at=0.toString.0",
        "tab=none",
        "%E0%A4%A",
        "findings",
    ],
)
def test_an_address_that_says_nonsense_opens_the_page(browser: Any, fragment: str) -> None:
    with shown(browser, f"#{fragment}") as page:
        assert not is_selected(page)
