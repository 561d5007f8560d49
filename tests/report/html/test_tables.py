import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.browser import opened
from tests.report.html.made import made

ROWS: Final = ".grid tbody tr:not(.space)"
KERNELS: Final = 13
"""The rows of the table that is open at first."""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened(browser, made("nan_check-sync").file) as it:
        yield it


def kernels() -> Any:
    return made("nan_check-sync").document["kernels"]


def column(page: Any, name: str) -> Any:
    """The raw values of a column, as far as its rows are drawn."""
    cells = f'{ROWS} td[data-key$="/{name}"]'
    return page.eval_on_selector_all(cells, "each => each.map(it => it.dataset.value)")


def numbers(page: Any, name: str) -> list[float]:
    """The same of numbers."""
    return [float(value) for value in column(page, name)]


def head(page: Any, name: str) -> Any:
    """The heading of a column."""
    return page.locator(f'.grid thead button[data-tip^="{name}:"]')


def filtered(page: Any, typed: str) -> str:
    """Type into the filter; what is said of it."""
    page.fill(".filter", typed)
    page.press(".filter", "Enter")
    return str(page.inner_text(".controls [role=status]"))


def test_a_click_on_a_heading_sorts_and_a_second_one_reverses(page: Any) -> None:
    head(page, "count").click()
    assert head(page, "count").locator("..").get_attribute("aria-sort") == "descending"
    down = numbers(page, "count")
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 1
    head(page, "count").click()
    assert head(page, "count").locator("..").get_attribute("aria-sort") == "ascending"
    assert numbers(page, "count") == sorted(down)
    head(page, "class").click()  # words from a
    assert column(page, "class") == sorted(column(page, "class"))


def test_the_keyboard_sorts_and_keeps_its_place(page: Any) -> None:
    head(page, "median_ns").focus()
    page.keyboard.press("Enter")
    assert numbers(page, "median_ns") == sorted(numbers(page, "median_ns"), reverse=True)
    assert page.evaluate("document.activeElement.dataset.tip").startswith("median_ns:")


FILTERS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "matmul": lambda row: "matmul" in str(row.values()),
    "MATMUL count>10": lambda row: row["class"] == "matmul" and row["count"] > 10,
    "median_ns>=100us": lambda row: row["median_ns"] >= 100_000,
    "median<1.5us": lambda row: row["median_ns"] < 1500,
    "class=optimizer": lambda row: row["class"] == "optimizer",
    "class!=matmul share_pct<1%": lambda row: row["class"] != "matmul" and row["share_pct"] < 1,
    "class:elem": lambda row: "elem" in row["class"],
    '"no such kernel"': lambda row: False,
}
WRONG_FILTERS: Final = {
    "speed>3": "There is no column “speed” here",
    "count>many": "“many” is no number",
    "class>matmul": "“class” holds words; ask for class=… or :…",
}


def test_the_filter_takes_words_and_comparisons(page: Any) -> None:
    for typed, kept in FILTERS.items():
        wanted = sorted(row["short_name"] for row in kernels() if kept(row))
        assert filtered(page, typed) == f"{len(wanted)} of {KERNELS} rows", typed
        assert sorted(column(page, "short_name")) == wanted, typed


def test_a_wrong_filter_says_why_and_hides_nothing(page: Any) -> None:
    for typed, said in WRONG_FILTERS.items():
        assert filtered(page, typed) == said
        assert page.get_attribute(".filter", "aria-invalid") == "true"
        assert len(column(page, "short_name")) == KERNELS


def test_a_column_is_shown_on_demand(page: Any) -> None:
    assert column(page, "registers") == []
    page.click(".chooser summary")
    page.check('.chooser label:text-is("registers") input')
    assert len(column(page, "registers")) == KERNELS


def test_the_meaning_of_a_column_is_shown_on_focus_and_goes_with_escape(page: Any) -> None:
    head(page, "tiny_pct").focus()
    assert page.inner_text("#tip").startswith("tiny_pct: ")
    assert head(page, "tiny_pct").get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")


def test_the_file_has_all_columns_and_the_filtered_rows_raw(page: Any) -> None:
    filtered(page, "class=matmul")
    with page.expect_download() as saved:
        page.click("text=Save as CSV")
    assert saved.value.suggested_filename == "kernels.csv"
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"))))
    wanted = [row for row in kernels() if row["class"] == "matmul"]
    assert [row["name"] for row in rows] == [row["name"] for row in wanted]
    assert [int(row["total_ns"]) for row in rows] == [row["total_ns"] for row in wanted]
    assert list(rows[0]) == list(wanted[0])


def test_only_rows_in_sight_are_drawn_and_the_last_one_can_be_reached(browser: Any) -> None:
    run = made("h200-train")
    count, last = len(run.document["syncs"]), run.document["syncs"][-1]
    with opened(browser, run.file) as page:
        page.click("#tab-syncs")
        assert len(page.query_selector_all(ROWS)) < 100 < count
        page.eval_on_selector(".grid-scroll", "it => it.scrollTo(0, it.scrollHeight)")
        drawn = page.locator(f'{ROWS} td[data-key$="/induced_idle_ns"]').last
        expect(drawn).to_have_attribute("data-value", str(last["induced_idle_ns"]))
        expect(page.locator(ROWS).last).to_have_attribute("aria-rowindex", str(count + 1))


def test_arrow_keys_go_from_table_to_table(page: Any) -> None:
    page.focus("#tab-kernels")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#tab-code", "aria-selected") == "true"
    assert page.get_attribute("#tab-kernels", "aria-selected") == "false"
    page.keyboard.press("Home")
    assert page.get_attribute("#tab-findings", "aria-selected") == "true"
