"""The page of many ranks: what they tell, and the heat map under the pointer and the keyboard."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import opened
from tests.report.html.made import made, page_of_many_ranks, spoken


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened(browser, page_of_many_ranks()) as it:
        yield it


def said(page: Any) -> str:
    """What is said of the chosen rank and step."""
    return spoken(page.get_attribute("#ranks canvas", "aria-valuetext"))


def test_the_page_begins_with_the_straggler_and_the_heat_map_where_it_is_hottest(page: Any) -> None:
    assert page.inner_text("#title") == "64 ranks"
    first = page.locator("#verdict .headline").first.inner_text()
    assert spoken(first).startswith("rank37 holds up the other 63 ranks: 1.00 ms")
    assert said(page) == (
        "rank37, step 0: step 10.0 ms, own time 9.00 ms;"
        " 10 % of a step more than the median rank; costs the others 1.00 ms"
    )
    read = """canvas => [...canvas.getContext("2d").getImageData(0, 35, 1, 3).data]"""
    pixels = page.locator("#ranks canvas").evaluate(read)
    before, usual, hot = pixels[:4], pixels[4:8], pixels[8:]
    assert before == usual != hot


def test_arrow_keys_and_the_pointer_choose_a_rank_and_a_step(page: Any) -> None:
    page.focus("#ranks canvas")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("rank36, step 1: ")
    page.keyboard.press("End")
    assert said(page).startswith("rank36, step 19: ")
    page.hover("#ranks canvas", position={"x": 1, "y": 1})
    assert page.inner_text("#ranks .readout").startswith("rank0, step 0: ")


def test_few_ranks_have_no_heat_map(browser: Any) -> None:
    with opened(browser, made("h200-ddp-rank0").file) as page:
        assert page.locator("#ranks").is_hidden()
