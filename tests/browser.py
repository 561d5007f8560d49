"""A headless Chromium that opens pages and misses nothing that goes wrong in them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")

Scheme = Literal["light", "dark"]


def started() -> Iterator[Any]:
    """A browser for all tests of a module; skips them where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@contextmanager
def opened(
    browser: Any,  # noqa: ANN401
    file: Path,
    *,
    width: int = 1280,
    scheme: Scheme = "light",
    at: str = "",
) -> Iterator[Any]:
    """The page of a file, once it is filled; `at` is its fragment. Errors on its console and
    requests to anywhere fail the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: _keep_foreign(wrong, asked.url))
    page.goto(f"{file.as_uri()}{at}")
    page.wait_for_selector("[data-ready]", state="attached", timeout=10_000)
    yield page
    context.close()
    assert wrong == []


def _keep_foreign(wrong: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:", "blob:")):
        wrong.append(f"request to {url}")
