"""Names from a program are text on the page, whatever letters they have."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import expect

import nsysflow
from tests import tiny
from tests.browser import FITS, opened, wait_until
from tests.report.html.made import page_of

MARKUP: Final = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
QUOTES: Final = 'it\'s "quoted" `so` &amp; &lt;b&gt; ${window.broken = 3} {title} {script} \\u003c'
RIGHT_TO_LEFT: Final = "שלום_ליבה \u202egnp.exe"
BOLD: Final = "<b>metrics</b>"
LONG: Final = "very_" * 1000
NAMES: Final = (MARKUP, QUOTES, RIGHT_TO_LEFT, BOLD, LONG, "tab\there\nline \x1b[31mred\x07")


@pytest.fixture(scope="module")
def file() -> Path:
    """The page of a run in which everything has such a name."""
    rows: list[tiny.Row] = []
    for number, name in enumerate(NAMES):
        start = number * 100_000
        rows += [
            tiny.opened(start, start + 90_000, name),
            tiny.launch(start + 10, start + 2_000, number),
            tiny.kernel(start + 20_000, start + 30_000, number, name=name),
            tiny.call(start + 40_000, start + 80_000, "cudaDeviceSynchronize"),
        ]
    trace = replace(tiny.trace_of(*rows), report=MARKUP)
    return page_of([nsysflow.analyze(trace)], {MARKUP: Path(f"{BOLD}.sqlite")}).file


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    with opened(browser, file) as page:
        yield page


def test_a_name_is_shown_letter_for_letter_and_runs_nothing(page: Any) -> None:
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.locator("img, main b:has-text('metrics')").count() == 0
    page.click("#tab-kernels")
    tables, phases = (page.locator(f"#{id}").text_content() for id in ("tables", "phases"))
    assert [name for name in NAMES[:4] if name not in tables] == []
    assert [name for name in (RIGHT_TO_LEFT, BOLD) if name not in phases] == []
    canvas = page.locator("#timeline-canvas")
    canvas.press("/")
    page.keyboard.type("<script>")
    page.keyboard.press("Enter")
    expect(page.locator("#timeline-details")).to_contain_text(MARKUP)
    assert page.evaluate("window.broken ?? null") is None


def test_a_very_long_name_is_cut_and_whole_on_demand(page: Any) -> None:
    cut = page.locator(f'.phases [data-tip="{LONG}"]')
    assert len(str(cut.text_content())) < 200
    cut.focus()
    expect(page.locator("#tip")).to_have_text(LONG)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(page, f"innerWidth === {width} && {FITS}")


def test_a_name_that_runs_to_the_left_does_not_turn_what_stands_beside_it(page: Any) -> None:
    names = page.locator("main bdi", has_text="שלום").all()
    assert names
    for name in names:
        assert name.evaluate("each => getComputedStyle(each).unicodeBidi") == "isolate"
