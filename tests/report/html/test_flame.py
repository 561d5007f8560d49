"""The idle flame graph of the page: enlarge, find, go from box to box."""

from typing import Any, Final

import pytest

from nsysflow.report.flamegraph import boxes
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import made

NAME: Final = "h200-hf-trainer"


@pytest.fixture
def page(browser: Any) -> Any:
    """The page of a report with Python samples."""
    with opened(browser, made(NAME).file) as it:
        yield it


def shown(page: Any) -> list[str]:
    """The names of the boxes that are shown."""
    names: list[str] = page.locator(".flame button:visible").all_text_contents()
    return names


def test_the_boxes_are_those_of_the_svg_file(page: Any) -> None:
    root = boxes(analysed(NAME).judged.idle_stacks)
    assert page.locator(".flame button").first.get_attribute("data-value") == str(root.ns)
    phases = [each.place.name for each in root.widest_first]
    assert shown(page)[1] == phases[0]


def test_a_click_enlarges_a_box_and_escape_shows_all(page: Any) -> None:
    before = shown(page)
    cause = page.locator(".flame-cause").nth(1)
    cause.click()
    whole = page.locator(".flame").bounding_box()
    assert cause.bounding_box()["width"] == pytest.approx(whole["width"], abs=1)
    assert len(shown(page)) < len(before)
    page.keyboard.press("Escape")
    assert shown(page) == before


def test_what_is_found_is_marked_and_summed(page: Any) -> None:
    page.fill("#flame input", "no such function")
    assert page.inner_text("#flame [role=status]") == "not found"
    page.fill("#flame input", "all idle time")
    assert page.inner_text("#flame [role=status]") == "100 % of the idle time"
    assert page.locator(".flame .found").count() == 1


def test_arrow_keys_go_from_box_to_box(page: Any) -> None:
    page.locator(".flame button").first.focus()
    page.keyboard.press("ArrowDown")
    inner = page.evaluate("document.activeElement.textContent")
    assert inner == shown(page)[1]
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == shown(page)[0]
