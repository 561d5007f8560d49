"""The whole page in use: no error, no request, and everybody can use it."""

from typing import Any

import pytest

from tests.browser import Scheme, opened
from tests.report.html.made import made
from tests.report.html.test_accessible import violations

PAGES = {
    "steps and lines": ("nan_check-sync",),
    "ranks": ("ddp-bucketed-rank0", "ddp-bucketed-rank1"),
    "Python samples": ("h200-hf-trainer",),
    "sampled counters": ("h200-gpu-metrics",),
    "three GPUs, no steps": ("synthetic-1",),
}
every_page = pytest.mark.parametrize("names", PAGES.values(), ids=PAGES)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (390, 1280, 2560)


def use_everything(page: Any) -> None:
    """Open whatever opens, and press every key of the timeline."""
    for each in (*page.query_selector_all("[role=tab]"), *page.query_selector_all("summary")):
        if each.is_visible():
            each.click()
    page.focus("#timeline-canvas")
    for key in ("g", "b", "z", "m", "]", "[", "n", "p", "+", "-", "ArrowDown", "0", "t", "G"):
        page.keyboard.press(key)
    page.hover("#timeline-canvas")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)


@every_page
def test_it_is_used_without_a_complaint_or_a_request(browser: Any, names: tuple[str, ...]) -> None:
    with opened(browser, made(*names).file) as page:
        assert page.inner_text("#verdict").strip()
        use_everything(page)


@pytest.mark.parametrize(
    "attempt",
    [
        "fetch('https://example.com/a').catch(() => {})",
        "new Image().src = 'https://example.com/b.png'",
    ],
)
def test_a_request_would_be_refused_and_noticed(browser: Any, attempt: str) -> None:
    with pytest.raises(AssertionError, match="refused by the policy"):
        try_this(browser, attempt)


def try_this(browser: Any, attempt: str) -> None:
    """Open a page and let it try something."""
    with opened(browser, made("nan_check-sync").file) as page:
        page.evaluate(attempt)
        page.wait_for_timeout(100)


@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_accessible_once_all_is_open(browser: Any, width: int) -> None:
    with opened(browser, made(*PAGES["ranks"]).file, width=width) as page:
        use_everything(page)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == []


@every_page
def test_no_table_makes_it_wider_than_the_window(browser: Any, names: tuple[str, ...]) -> None:
    with opened(browser, made(*names).file) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for tab in page.query_selector_all("[role=tab]"):
                tab.click()
                whole_px = page.evaluate("document.documentElement.scrollWidth")
                assert whole_px <= width, (width, tab.inner_text())


def test_the_system_chooses_the_theme_while_the_page_is_open(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        colours = []
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len({*colours}) == 2


@pytest.mark.parametrize("names", [PAGES["steps and lines"], PAGES["ranks"]])
def test_it_prints(browser: Any, names: tuple[str, ...]) -> None:
    with opened(browser, made(*names).file) as page:
        printed = page.pdf()
        blank = page.context.new_page().pdf()
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 10 * len(blank)


def test_without_scripts_it_says_what_it_needs(browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made("nan_check-sync").file.as_uri())
    assert "needs JavaScript" in page.inner_text("noscript")
    context.close()
