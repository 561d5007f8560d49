"""A headless Chromium that opens pages and misses nothing that goes wrong in them.

Debian's package `chromium` will do. Where NSYSFLOW_REQUIRE_BROWSER is set, as in CI, a test fails
without a browser; elsewhere it is skipped.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
REQUIRED: Final = "NSYSFLOW_REQUIRE_BROWSER"

PATIENCE_S: Final = 30
"""So long a condition may take: a busy machine is no fault of a page."""

Scheme = Literal["light", "dark"]

_FILLED: Final = "html[data-ready]:not(:has(#timeline)), html[data-ready][data-timeline=ready]"
"""Matches once the page is filled, and all of its timeline is decoded if it has one."""

FITS: Final = "document.documentElement.scrollWidth <= innerWidth"
"""Whether nothing is wider than the window."""

_TELL_OF_REFUSALS: Final = """
    document.addEventListener("securitypolicyviolation", (event) =>
        console.error(`refused by the policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


def program() -> str:
    """The path of a Chromium; without one the test is skipped, or fails if it must run."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is not None:
        return found
    if REQUIRED in os.environ:
        pytest.fail(f"{REQUIRED} is set, and there is no Chromium on PATH")
    pytest.skip("no Chromium here: apt-get install chromium")


@dataclass(frozen=True)
class Browser:
    """A running Chromium.

    Attributes:
        chromium: Playwright's browser.
        idle: pages that no test looks at: to start one takes longer than to load a small report.
    """

    chromium: Any
    idle: list[Any] = field(default_factory=list)

    @contextmanager
    def page(self) -> Iterator[Any]:
        """An empty page, without a network."""
        page = self.idle.pop() if self.idle else self._started()
        yield page
        page.mouse.move(-9, -9)  # else the next page finds the pointer on it
        page.goto("about:blank")
        self.idle.append(page)  # not after a failure: who knows how that left it

    def _started(self) -> Any:
        context = self.chromium.new_context(offline=True, reduced_motion="reduce")
        context.add_init_script(_TELL_OF_REFUSALS)
        return context.new_page()


def started() -> Iterator[Browser]:
    """A browser, until the tests that share it are done."""
    path = program()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield Browser(launched)
        launched.close()


@contextmanager
def opened(
    browser: Browser, file: Path, *, width: int = 1280, scheme: Scheme = "light", at: str = ""
) -> Iterator[Any]:
    """The page of a file, without a network, once it is filled; `at` is its fragment. Errors and
    warnings on its console, requests, and what its policy refuses fail the test."""
    wrong: list[str] = []
    listeners: dict[str, Callable[[Any], None]] = {
        "console": lambda said: _keep_serious(wrong, said),
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda asked: _keep_foreign(wrong, asked.url, file.as_uri()),
    }
    with browser.page() as page:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="screen", color_scheme=scheme)
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(f"{file.as_uri()}{at}")
        page.wait_for_selector(_FILLED, state="attached")
        yield page
        page.evaluate("localStorage.clear()")  # all files have the same
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    assert wrong == [], wrong


def _keep_serious(wrong: list[str], said: Any) -> None:
    if said.type in ("error", "warning", "assert"):
        wrong.append(said.text)


def _keep_foreign(wrong: list[str], url: str, own: str) -> None:
    if url.partition("#")[0] != own and not url.startswith(("data:", "blob:")):
        wrong.append(f"request to {url}")


def wait_until(page: Any, condition: str) -> None:
    """Wait until a condition in JavaScript holds. Playwright's own way asks again by `eval`, which
    the page's policy refuses. What `expect` of an element can say is said so."""
    end_s = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        assert time.monotonic() < end_s, f"never true: {condition}"
        page.wait_for_timeout(20)


def reload_until(page: Any, condition: str) -> None:
    """Load a page again until a condition in JavaScript holds. Chromium hands what a page stores
    to another process, which may answer the next load before it has it."""
    end_s = time.monotonic() + PATIENCE_S
    page.reload()
    while not page.evaluate(condition):
        assert time.monotonic() < end_s, f"after no reload: {condition}"
        page.reload()


def wait_for_picture(page: Any) -> None:
    """Wait until all that was asked for is drawn: what is asked for now is so two frames later."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def choose_scheme(page: Any, scheme: Scheme) -> None:
    """Let the system be light or dark, and wait until the page has heard of it."""
    from playwright.sync_api import expect

    page.emulate_media(color_scheme=scheme)
    expect(page.locator("#theme")).to_have_text("Dark" if scheme == "light" else "Light")
