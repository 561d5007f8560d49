"""The idle flame graph of the page, and the heat map of many ranks, by pointer and keyboard."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from nsysflow.report.flamegraph import boxes
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import made, page_of_many_ranks, spoken

SAMPLED: Final = "h200-hf-trainer"
FOCUSED: Final = "document.activeElement.textContent"


@pytest.fixture
def flame(browser: Any) -> Iterator[Any]:
    """The page of a report with Python samples."""
    with opened(browser, made(SAMPLED).file) as page:
        yield page


def shown(page: Any) -> list[str]:
    """The names of the boxes that are shown."""
    names: list[str] = page.locator(".flame button:visible").all_text_contents()
    return names


def test_the_boxes_are_those_of_the_svg_file_and_arrow_keys_go_between_them(flame: Any) -> None:
    root, names = boxes(analysed(SAMPLED).judged.idle_stacks), shown(flame)
    assert flame.locator(".flame button").first.get_attribute("data-value") == str(root.ns)
    assert names[1] == root.widest_first[0].place.name
    flame.locator(".flame button").first.focus()
    for key, name in (("ArrowDown", names[1]), ("ArrowUp", names[0])):
        flame.keyboard.press(key)
        assert flame.evaluate(FOCUSED) == name


def test_a_click_enlarges_a_box_and_escape_shows_all(flame: Any) -> None:
    before = shown(flame)
    cause = flame.locator(".flame-cause").nth(1)
    cause.click()
    whole = flame.locator(".flame").bounding_box()
    assert cause.bounding_box()["width"] == pytest.approx(whole["width"], abs=1)
    assert len(shown(flame)) < len(before)
    flame.keyboard.press("Escape")
    assert shown(flame) == before


def test_what_is_found_is_marked_and_summed(flame: Any) -> None:
    flame.fill("#flame input", "no such function")
    assert flame.inner_text("#flame [role=status]") == "not found"
    flame.fill("#flame input", "all idle time")
    assert flame.inner_text("#flame [role=status]") == "100 % of the idle time"
    assert flame.locator(".flame .found").count() == 1


@pytest.fixture
def ranks(browser: Any) -> Iterator[Any]:
    """The page of many ranks."""
    with opened(browser, page_of_many_ranks()) as page:
        yield page


def said(page: Any) -> str:
    """What is said of the chosen rank and step."""
    return spoken(page.get_attribute("#ranks canvas", "aria-valuetext"))


def test_a_page_begins_with_the_straggler_and_a_heat_map_where_it_is_hottest(ranks: Any) -> None:
    assert ranks.inner_text("#title") == "64 ranks"
    first = spoken(ranks.locator("#verdict .headline").first.inner_text())
    assert first.startswith("rank37 holds up the other 63 ranks: 1.00 ms")
    assert said(ranks) == (
        "rank37, step 0: step 10.0 ms, own time 9.00 ms;"
        " 10 % of a step more than the median rank; costs the others 1.00 ms"
    )
    read = """canvas => [...canvas.getContext("2d").getImageData(0, 35, 1, 3).data]"""
    pixels = ranks.locator("#ranks canvas").evaluate(read)
    before, usual, hot = pixels[:4], pixels[4:8], pixels[8:]
    assert before == usual != hot


def test_arrow_keys_and_the_pointer_choose_a_rank_and_a_step(ranks: Any) -> None:
    ranks.focus("#ranks canvas")
    ranks.keyboard.press("ArrowUp")
    ranks.keyboard.press("ArrowRight")
    assert said(ranks).startswith("rank36, step 1: ")
    ranks.keyboard.press("End")
    assert said(ranks).startswith("rank36, step 19: ")
    ranks.hover("#ranks canvas", position={"x": 1, "y": 1})
    expect(ranks.locator("#ranks .readout")).to_contain_text("rank0, step 0: ")


def test_few_ranks_have_no_heat_map(browser: Any) -> None:
    with opened(browser, made("h200-ddp-rank0").file) as page:
        assert page.locator("#ranks").is_hidden()
