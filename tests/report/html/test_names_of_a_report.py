"""Names from a program are text on the page, whatever letters they have."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.analysis.options import Options
from nsysflow.report.html.page import write_html
from nsysflow.runs.analyze import analyze_reports
from tests.browser import opened
from tests.reports import sqlite_report

MARKUP: Final = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
QUOTES: Final = 'it\'s "quoted" `so` &amp; &lt;b&gt; ${window.broken = 3} {title} {script} \\u003c'
LONG: Final = "long_" + "n" * 5_000
RIGHT_TO_LEFT: Final = "שלום_ליבה \u202egnp.exe"
CONTROL: Final = "tab\there\nline \x1b[31mred\x07"
PHASE: Final = "<b>metrics</b>"

RENAMED: Final = {
    "forward": MARKUP,
    "backward": QUOTES,
    "optimizer": RIGHT_TO_LEFT,
    "metrics": PHASE,
    "loss": CONTROL,
    "data": LONG,
}
"""Ranges of the sample, and what they are called here."""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report whose ranges and kernels have such names."""
    folder = tmp_path_factory.mktemp("names")
    report = sqlite_report(folder, "nan_check-sync")
    with closing(sqlite3.connect(report)) as db:
        kernels = db.execute(
            "SELECT DISTINCT shortName, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ).fetchall()
        for (short, full), name in zip(kernels, (*RENAMED.values(), *kernels), strict=False):
            if isinstance(name, str):
                db.execute("UPDATE StringIds SET value = ? WHERE id IN (?, ?)", (name, short, full))
        for old, new in RENAMED.items():
            db.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text = ?", (new, old))
            db.execute(
                "UPDATE StringIds SET value = ? WHERE value = ? AND id IN"
                " (SELECT textId FROM NVTX_EVENTS)",
                (new, old),
            )
        db.commit()
    file = folder / f"{MARKUP[:20].replace('/', '')}.html"
    write_html(analyze_reports([report], Options(), tables=("kernels",)), file)
    return file


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    with opened(browser, page_file) as page:
        yield page


def everything(page: Any) -> str:
    """The text of the page, of every tab."""
    texts = []
    for tab in page.get_by_role("tab").all():
        tab.click()
        texts.append(page.locator("#tables").text_content() or "")
    return "\n".join([*texts, page.locator("body").text_content() or ""])


def test_no_name_becomes_markup_or_code(page: Any) -> None:
    everything(page)
    assert page.evaluate("window.broken ?? null") is None
    assert page.locator("body > main img, main b:has-text('metrics')").count() == 0


@pytest.mark.parametrize("name", [MARKUP, QUOTES, RIGHT_TO_LEFT, PHASE])
def test_a_name_is_shown_letter_for_letter(page: Any, name: str) -> None:
    assert name in everything(page)


def test_a_very_long_name_is_shown_and_makes_the_page_no_wider(page: Any) -> None:
    assert "long_nnnnn" in everything(page)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_name_that_runs_to_the_left_does_not_turn_what_stands_beside_it(page: Any) -> None:
    for element in page.locator("main bdi", has_text="שלום").all():
        assert element.evaluate("each => getComputedStyle(each).unicodeBidi") == "isolate"
    assert page.locator("main bdi", has_text="שלום").count()


def test_the_details_show_the_name_as_text(page: Any) -> None:
    page.locator("#timeline-canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("window.broken")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert "<script>" in (page.locator("#timeline-details").text_content() or "")
    assert page.evaluate("window.broken ?? null") is None
