"""The page for everybody: by keyboard, read aloud, narrow and wide, in both themes, on paper."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from nsysflow.compare.comparison import compared
from nsysflow.report.html.diff import diff_html
from nsysflow.report.html.page import write_html
from nsysflow.runs.captures import captures_of
from tests.analyses import analysed
from tests.browser import Scheme, opened
from tests.report.html.made import made
from tests.report.test_ranks import many
from tests.reports import PACKED

SERIOUS = ("serious", "critical")


def violations(page: Any) -> list[str]:
    """What axe-core finds, the serious and critical ones, with where."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in SERIOUS
    ]


@pytest.fixture(scope="module")
def diff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison."""
    base, new = captures_of([PACKED["nan_check-sync"], PACKED["nan_check-async"]])
    file = tmp_path_factory.mktemp("diff") / "diff.html"
    file.write_text(diff_html(compared([base], [new])), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of many ranks."""
    file = tmp_path_factory.mktemp("ranks") / "report.html"
    write_html(many(analysed("h200-ddp-rank0")), file)
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    browser: Any,
    diff: Path,
    ranks: Path,
    scheme: Scheme,
) -> None:
    with opened(browser, made("h200-hf-trainer").file, scheme=scheme) as page:
        page.click("#findings summary >> nth=0")
        page.click(".chooser summary")
        assert violations(page) == []
    for file in (diff, ranks):
        with opened(browser, file, scheme=scheme) as page:
            assert violations(page) == []


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_the_page_never_scrolls_sideways(
    browser: Any,
    diff: Path,
    ranks: Path,
    width: int,
) -> None:
    run = made("ddp-bucketed-rank0", "ddp-bucketed-rank1")
    for file in (run.file, made("h200-hf-trainer").file, diff, ranks):
        with opened(browser, file, width=width) as page:
            assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_button_changes_the_theme_and_the_page_keeps_it(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file, scheme="light") as page:
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert page.inner_text("#theme") == "Dark"
        page.click("#theme")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != light
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        assert page.inner_text("#theme") == "Light"


def test_paper_has_all_tables_and_nothing_to_click(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        on_paper = page.locator(".on-paper h3").all_inner_texts()
        assert "kernels" in on_paper
        assert "gap summary" in on_paper
        clicked = "#theme, .actions button, .fold, .controls, input"
        assert page.locator(clicked).filter(visible=True).count() == 0
        assert page.locator(".phases .name:visible").count() > 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".on-paper").count() == 0


def test_phases_fold_with_the_keyboard(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        rows = page.locator(".phases tbody tr:visible")
        before = rows.count()
        page.locator(".fold").first.focus()
        page.keyboard.press("Enter")
        assert page.locator(".fold").first.get_attribute("aria-expanded") == "false"
        assert rows.count() < before
        page.keyboard.press("Enter")
        assert rows.count() == before
