"""The page: a template, styles, scripts and the data, in one file that forbids all else."""

from base64 import b64encode
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from nsysflow.report.document import shown_json
from nsysflow.report.html.contents import MOST_ROWS, contents
from nsysflow.report.html.packing import Blobs
from nsysflow.report.html.timeline import timeline
from nsysflow.report.results import Results

FILE: Final = "report.html"

SCRIPTS: Final = ("state.js",)
"""The scripts in the order in which they run, in one scope."""

STYLES: Final = ("look.css",)


def write_html(results: Results, file: Path) -> None:
    """Write the run as a page for a browser.

    Args:
        results: the run.
        file: what to write.
    """
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        blobs = Blobs(pool)
        drawn = timeline(results, blobs)
        page = contents(results)
        head, tail = _around(f"nsysflow: {page.reports}")
        about = msgspec.json.encode({"timeline": drawn, "page": page})
        report = shown_json(results, MOST_ROWS).encode()
        with file.open("wb") as out:
            out.write(head)
            out.write(_data("about", "application/json", about.replace(b"<", _LESS)))
            out.write(_data("report", "application/json", report.replace(b"<", _LESS)))
            for name, text in blobs:
                out.write(_data(name, "application/octet-stream", text))
            out.write(tail)


_LESS: Final = rb"\u003c"
"""`<` inside a JSON string, so that no name can end the script that holds it."""


def _data(name: str, kind: str, text: bytes) -> bytes:
    """A script that only holds data."""
    return b'<script type="%b" id="%b">%b</script>\n' % (kind.encode(), name.encode(), text)


def _around(title: str) -> tuple[bytes, bytes]:
    """What stands before and after the data."""
    script = f'(() => {{\n"use strict";\n{_texts(SCRIPTS)}}})();\n'
    style = _texts(STYLES)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "title": escape(title), "style": style, "script": script}
    head, tail = _texts(["page.html"]).split("{data}\n")
    for name, text in parts.items():
        head, tail = head.replace(f"{{{name}}}", text), tail.replace(f"{{{name}}}", text)
    return head.encode(), tail.encode()


def _hash(text: str) -> str:
    """What a Content-Security-Policy allows to run."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _texts(names: Iterable[str]) -> str:
    """The texts of some of the page's files, one after the other."""
    folder = files("nsysflow.report.html")
    return "".join(folder.joinpath(*name.split("/")).read_text(encoding="utf-8") for name in names)
