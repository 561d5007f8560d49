"""The page of many ranks: what they tell, and the heat map under the pointer and the keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsysflow.report.html.page import write_html
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import made
from tests.report.test_ranks import many

NAME = "h200-ddp-rank0"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of many ranks, of which one is looked at whole."""
    path = tmp_path_factory.mktemp("ranks") / "report.html"
    write_html(many(analysed(NAME)), path)
    return path


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    with opened(browser, file) as it:
        yield it


def said(page: Any) -> str:
    """What is said of the chosen rank and step."""
    text: str = page.get_attribute("#ranks canvas", "aria-valuetext")
    return text


def test_the_page_begins_with_what_the_ranks_tell(page: Any) -> None:
    assert page.inner_text("#title") == "64 ranks"
    first = page.locator("#verdict .headline").first.inner_text()
    assert first.replace("\u00a0", " ").startswith("rank37 holds up the other 63 ranks: 1.00 ms")


def test_the_heat_map_opens_where_it_is_hottest(page: Any) -> None:
    assert said(page).replace("\u00a0", " ") == (
        "rank37, step 0: step 10.0 ms, own time 9.00 ms;"
        " 10 % of a step more than the median rank; costs the others 1.00 ms"
    )


def test_arrow_keys_go_from_rank_to_rank_and_from_step_to_step(page: Any) -> None:
    page.focus("#ranks canvas")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("rank36, step 1: ")
    page.keyboard.press("End")
    assert said(page).startswith("rank36, step 19: ")


def test_the_pointer_says_what_is_under_it(page: Any) -> None:
    page.hover("#ranks canvas", position={"x": 1, "y": 1})
    assert page.inner_text("#ranks .readout").startswith("rank0, step 0: ")


def test_the_hottest_cells_have_another_colour(page: Any) -> None:
    read = """canvas => [...canvas.getContext("2d").getImageData(0, 35, 1, 3).data]"""
    pixels = page.locator("#ranks canvas").evaluate(read)
    before, usual, hot = pixels[:4], pixels[4:8], pixels[8:]
    assert before == usual != hot


def test_few_ranks_have_no_heat_map(browser: Any) -> None:
    with opened(browser, made(NAME).file) as page:
        assert page.locator("#ranks").is_hidden()
