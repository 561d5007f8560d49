"""The pages for everybody: by keyboard, read aloud, narrow and wide, in both themes, on paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser import FITS, choose_scheme, opened, reload_until, wait_for_picture, wait_until
from tests.report.html.made import made, page_of_comparison, page_of_many_ranks

PAGES: Final[dict[str, Callable[[], Path]]] = {
    "steps and lines": lambda: made("nan_check-sync").file,
    "ranks": lambda: made("ddp-bucketed-rank0", "ddp-bucketed-rank1").file,
    "Python samples": lambda: made("h200-hf-trainer").file,
    "sampled counters": lambda: made("h200-gpu-metrics").file,
    "two loops": lambda: made("h200-train").file,
    "three GPUs, no steps": lambda: made("synthetic-1").file,
    "many ranks": page_of_many_ranks,
    "comparison": page_of_comparison,
}
every_page = pytest.mark.parametrize("name", PAGES)

AUDITED: Final = {
    "ranks": (1280, 390),
    "Python samples": (1280,),
    "many ranks": (1280,),
    "two loops": (390,),
    "comparison": (1280,),
}
"""The widths at which axe-core looks at a page: between them, these have every kind of element."""

SERIOUS: Final = ("serious", "critical")
BACKGROUND: Final = "getComputedStyle(document.body).backgroundColor"


def violations(page: Any, *rules: str) -> list[str]:
    """What axe-core finds, the serious and critical ones, with where; by all rules or by some."""
    options = {"resultTypes": ["violations"]} | ({"runOnly": [*rules]} if rules else {})
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in SERIOUS
    ]


def use_everything(page: Any) -> None:
    """Open whatever opens, and press every key of the timeline."""
    for each in (*page.query_selector_all("[role=tab]"), *page.query_selector_all("summary")):
        if each.is_visible():
            each.click()
    if page.locator("#timeline-canvas").count():
        page.focus("#timeline-canvas")
        for key in (*"gbzm][np+-", "ArrowDown", *"0tGPA", "Escape", "m"):
            page.keyboard.press(key)
        page.hover("#timeline-canvas")
        page.mouse.wheel(0, -300)
        wait_for_picture(page)


@every_page
def test_in_full_use_nothing_goes_wrong_or_is_too_wide_and_axe_finds_nothing_serious(
    browser: Any, name: str
) -> None:
    with opened(browser, PAGES[name]()) as page:  # fails on errors and requests
        assert page.inner_text("#verdict").strip()
        use_everything(page)
        for width in (2560, 1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            wait_until(page, f"innerWidth === {width} && {FITS}")
            for tab in page.query_selector_all("[role=tab]") if width == 390 else ():
                tab.click()
                wait_until(page, FITS)
            if width in AUDITED.get(name, ()):
                choose_scheme(page, "light")
                assert violations(page) == []
                choose_scheme(page, "dark")
                assert violations(page, "color-contrast") == []  # no other rule looks at colours


def test_a_request_would_be_refused_and_noticed(browser: Any) -> None:
    context = opened(browser, made("nan_check-sync").file)
    page = context.__enter__()
    for attempt in ("void fetch('https://a.b').catch(() => {})", "new Image().src = 'https://b.c'"):
        with page.expect_console_message(lambda said: "refused by the policy" in said.text):
            page.evaluate(attempt)
    with pytest.raises(AssertionError, match=r"connect-src.*img-src"):
        context.__exit__(None, None, None)


def test_the_system_chooses_the_theme_until_the_button_does_and_the_page_keeps_it(
    browser: Any,
) -> None:
    with opened(browser, made("nan_check-sync").file, scheme="dark") as page:
        dark = page.evaluate(BACKGROUND)
        choose_scheme(page, "light")
        expect(page.locator("body")).not_to_have_css("background-color", dark)
        page.click("#theme")
        expect(page.locator("body")).to_have_css("background-color", dark)
        reload_until(page, "document.documentElement.dataset.theme === 'dark'")
        expect(page.locator("body")).to_have_css("background-color", dark)
        expect(page.locator("#theme")).to_have_text("Light")


def test_paper_has_all_tables_and_nothing_to_click(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        blank = page.context.new_page()
        assert len(page.pdf()) > 10 * len(blank.pdf())
        blank.close()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        clicked = page.locator("#theme, .actions button, .fold, .controls, input")
        expect(clicked.filter(visible=True)).to_have_count(0)
        expect(page.locator(".phases .name").first).to_be_visible()
        assert {"kernels", "gap summary"} <= {*page.locator(".on-paper h3").all_inner_texts()}
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        expect(page.locator(".on-paper")).to_have_count(0)


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


SCREEN_PX: Final = 900


@pytest.mark.parametrize(
    "name", ["steps and lines", "ranks", "Python samples", "three GPUs, no steps"]
)
def test_the_first_screen_has_the_first_finding_and_the_work_of_a_gpu(
    browser: Any, name: str
) -> None:
    with opened(browser, PAGES[name]()) as page:
        card = page.locator(".card").first.bounding_box()
        lanes = page.locator("#timeline-canvas").bounding_box()
    assert card["y"] + card["height"] <= SCREEN_PX
    assert lanes["y"] + 140 <= SCREEN_PX  # the axis, two headings, steps, idle time, a stream


STOPS: Final = """() => [...document.querySelectorAll("a, button, input, summary, [tabindex='0']")]
    .filter((each) => each.tabIndex >= 0 && each.checkVisibility({visibilityProperty: true})
        && !each.closest("[hidden], dialog:not([open])") && !each.disabled)
    .map((each, at) => { each.dataset.stop = at; return each.outerHTML.slice(0, 120); })"""

FOCUSED: Final = """() => {
    const it = document.activeElement;
    const around = it.closest("#timeline-drawn") ?? it;  // drawn around all lanes
    const { outlineStyle, outlineWidth } = getComputedStyle(around);
    const outlined = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
    return [it.dataset.stop ?? null, outlined || getComputedStyle(it).boxShadow !== "none"];
}"""


def test_the_tab_key_reaches_all_of_the_page_and_what_has_the_focus_can_be_seen(
    browser: Any,
) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        missed = dict(enumerate(page.evaluate(STOPS)))
        for _ in range(3 * len(missed)):
            page.keyboard.press("Tab")
            stop, seen = page.evaluate(FOCUSED)
            if stop is not None:
                assert seen, page.evaluate("document.activeElement.outerHTML")
                missed.pop(int(stop), None)
    assert missed == {}


def test_without_scripts_it_says_what_it_needs(browser: Any) -> None:
    context = browser.chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made("nan_check-sync").file.as_uri())
    assert "needs JavaScript" in page.inner_text("noscript")
    context.close()
