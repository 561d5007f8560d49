"""Names of programs are text on the page, whatever they contain."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests import tiny
from tests.browser import opened
from tests.report.html.made import Made, page_of

MARKUP: Final = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>"
QUOTES: Final = "a\"b'c`d\\e ${1} {data} {script}"
HEBREW: Final = "שלום_kernel"
LONG: Final = "very_" * 1000


@pytest.fixture(scope="module")
def run() -> Made:
    """A run in which everything has a hostile name."""
    names = (MARKUP, QUOTES, HEBREW, LONG)
    rows: list[tiny.Row] = []
    for number, name in enumerate(names):
        start = number * 100_000
        rows += [
            tiny.opened(start, start + 90_000, name),
            tiny.launch(start + 10, start + 2_000, number),
            tiny.kernel(start + 20_000, start + 30_000, number, name=name),
            tiny.call(start + 40_000, start + 80_000, "cudaDeviceSynchronize"),
        ]
    return page_of([tiny.analysis_of(*rows)], {"plain": Path("hostile.sqlite")})


def test_names_are_text_and_run_nothing(browser: Any, run: Made) -> None:
    with opened(browser, run.file) as page:
        kernels = page.locator(".grid tbody tr:not(.space)").all_text_contents()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
    for name in (MARKUP, QUOTES, HEBREW):
        assert any(name in row for row in kernels)


def test_phases_have_their_names_as_text(browser: Any, run: Made) -> None:
    with opened(browser, run.file) as page:
        phases = page.locator(".phases tbody th bdi").all_text_contents()
    assert HEBREW in phases
    assert QUOTES in phases


def test_a_very_long_name_is_cut_and_whole_on_demand(browser: Any, run: Made) -> None:
    with opened(browser, run.file) as page:
        cut = page.locator(f'.phases [data-tip="{LONG}"]')
        assert len(str(cut.text_content())) < 100
        cut.focus()
        assert page.text_content("#tip") == LONG
        assert page.evaluate("document.documentElement.scrollWidth") == 1280
