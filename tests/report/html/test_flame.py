"""The idle flame graph of the page: enlarge, find, go from box to box."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from nsysflow.report.flamegraph import boxes
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import made

NAME: Final = "h200-hf-trainer"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened(browser, made(NAME).file) as it:
        yield it


def shown(page: Any) -> list[str]:
    """The names of the boxes that are shown."""
    names: list[str] = page.locator(".flame button:visible").all_text_contents()
    return names


def test_the_boxes_are_those_of_the_svg_file_and_arrow_keys_go_between_them(page: Any) -> None:
    root = boxes(analysed(NAME).judged.idle_stacks)
    names = shown(page)
    assert page.locator(".flame button").first.get_attribute("data-value") == str(root.ns)
    assert names[1] == root.widest_first[0].place.name
    page.locator(".flame button").first.focus()
    for key, name in (("ArrowDown", names[1]), ("ArrowUp", names[0])):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.textContent") == name


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
