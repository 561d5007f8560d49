"""Take the pictures of report.html that the docs show: at three widths, in both themes.

    python -m docs.make_pictures

Needs a Chromium on PATH. Pictures have a palette of 128 colours, so that each is small.
"""

import io
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from nsysflow.analysis.options import Options
from nsysflow.report.html.page import write_html
from nsysflow.runs.analyze import analyze_reports
from tests.browser import program
from tests.reports import ROOT, SAMPLES

REPORT: Final = SAMPLES / "nan_check-sync.sqlite.xz"
FOLDER: Final = ROOT / "docs" / "pictures"
PICTURES: Final = {"page": "#verdict", "timeline": "#timeline"}
"""The part of the page with which each begins, as a CSS selector."""

SIZES: Final = {390: 844, 1280: 900, 2560: 1440}
"""The window's width and height, in px."""

COLOURS: Final = 128
MOST_BYTES: Final = 150_000

Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")


def take(browser: Browser, page_file: Path, width: int, scheme: Scheme, at: str) -> bytes:
    """A picture of the page as PNG, with the longest gap selected in its timeline.

    Args:
        browser: which one.
        page_file: report.html.
        width: of the window, in px.
        scheme: light or dark.
        at: what the picture begins with, as a CSS selector.
    """
    context = browser.new_context(
        viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-timeline=ready]", state="attached")
    page.focus("#timeline-canvas")
    page.keyboard.press("g")
    page.eval_on_selector(at, "each => window.scrollTo(0, each.offsetTop - 60)")
    page.wait_for_timeout(300)
    taken = page.screenshot()
    context.close()
    return taken


def small(picture: bytes) -> bytes:
    """The same with a palette.

    Raises:
        ValueError: it is still too large for a repository.
    """
    packed = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        packed, "PNG", optimize=True
    )
    if packed.tell() > MOST_BYTES:
        msg = f"a picture has {packed.tell()} bytes; at most {MOST_BYTES} go into the docs"
        raise ValueError(msg)
    return packed.getvalue()


def main() -> None:
    """Take the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder, "report.html")
        write_html(analyze_reports([REPORT], Options(), tables=("kernels",)), page_file)
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        for (name, at), width, scheme in product(PICTURES.items(), SIZES, SCHEMES):
            target = FOLDER / f"{name}-{width}-{scheme}.png"
            target.write_bytes(small(take(browser, page_file, width, scheme, at)))
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")  # noqa: T201
        browser.close()


if __name__ == "__main__":
    main()
