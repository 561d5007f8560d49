"""The timeline of an open page, with what its scripts keep to themselves."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.browser import opened

_NAMES: Final = (
    "state, surface, reports, lanes, layOut, boxOf, lanesScale, placeOf, pyramidOf, idleWithin,"
    "setView, select, tableRow, ticksOf, nextLongest, hitAt, contentsOf, setArea"
)
"""What tests look at."""


@contextmanager
def timeline_of(browser: Any, file: Path, *, at: str = "") -> Iterator[Any]:
    """The page of a file once its timeline is decoded; `inside` has what its scripts declare."""
    with opened(browser, _laid_open(file), at=at) as page:
        page.wait_for_selector("html[data-timeline=ready]", state="attached", timeout=20_000)
        canvas(page).scroll_into_view_if_needed()
        yield page


def _laid_open(file: Path) -> Path:
    """A copy of a page whose script shows its names, and whose policy lets it run."""
    text = file.read_text("utf-8")
    script, end, rest = text.rpartition("})();\n")
    shown = re.sub(
        r"script-src '[^']+'", "script-src 'unsafe-inline' 'unsafe-eval'", script, count=1
    )
    copy = file.with_name("laid-open.html")
    copy.write_text(f"{shown}window.inside = {{{_NAMES}}};\n{end}{rest}", "utf-8")
    return copy


def canvas(page: Any) -> Any:
    """The canvas of the lanes."""
    return page.locator("#timeline-canvas")


def heading(page: Any) -> str:
    """What the panel says is selected."""
    return str(page.locator("#timeline-details h3").inner_text())
