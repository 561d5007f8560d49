"""A headless Chromium that opens pages and misses nothing that goes wrong in them.

Debian's package `chromium` will do. Where NSYSFLOW_REQUIRE_BROWSER is set, as in CI, a test fails
without a browser; elsewhere it is skipped.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
REQUIRED: Final = "NSYSFLOW_REQUIRE_BROWSER"

Scheme = Literal["light", "dark"]

_FILLED: Final = "html[data-ready]:not(:has(#timeline)), html[data-ready][data-timeline=ready]"
"""Matches once the page is filled, and all of its timeline is decoded if it has one."""

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


def started() -> Iterator[Any]:
    """A browser for all tests of a module."""
    path = program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@contextmanager
def opened(
    browser: Any, file: Path, *, width: int = 1280, scheme: Scheme = "light", at: str = ""
) -> Iterator[Any]:
    """The page of a file, without a network, once it is filled; `at` is its fragment. Errors and
    warnings on its console, requests, and what its policy refuses fail the test."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        offline=True,
        reduced_motion="reduce",
    )
    context.add_init_script(_TELL_OF_REFUSALS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: _keep_serious(wrong, said))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: _keep_foreign(wrong, asked.url, file.as_uri()))
    page.goto(f"{file.as_uri()}{at}")
    page.wait_for_selector(_FILLED, state="attached")
    yield page
    context.close()
    assert wrong == [], wrong


def _keep_serious(wrong: list[str], said: Any) -> None:
    if said.type in ("error", "warning", "assert"):
        wrong.append(said.text)


def _keep_foreign(wrong: list[str], url: str, own: str) -> None:
    if url.partition("#")[0] != own and not url.startswith(("data:", "blob:")):
        wrong.append(f"request to {url}")


def wait_until(page: Any, condition: str, at_most_s: float = 30) -> None:
    """Wait until a condition in JavaScript holds. Playwright's own way asks again by `eval`, which
    the page's policy refuses."""
    end_s = time.monotonic() + at_most_s
    while not page.evaluate(condition):
        assert time.monotonic() < end_s, f"never true: {condition}"
        page.wait_for_timeout(20)
