"""One HTML file that holds its styles, scripts and data, and forbids everything else."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

import nsysflow
from nsysflow.report.html.colours import variables

GENERATOR: Final = f"nsysflow {nsysflow.__version__}"
"""What a page says of the program that wrote it."""

STYLES: Final = ("colours", "page", "findings", "charts", "tables", "grid", "timeline", "print")
"""The style sheets, in their order."""

_LESS: Final = rb"\u003c"
"""`<` inside a JSON string, so that no name can end the script that holds it."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of page.

    Attributes:
        body: the HTML file of what stands in it; frame.html is around it.
        scripts: its scripts in the order in which they run, in one scope.
    """

    body: str
    scripts: Sequence[str]


def around(kind: Kind, title: str) -> tuple[bytes, bytes]:
    """What stands before and after the data."""
    script = f'(() => {{\n"use strict";\n{_texts(kind.scripts)}}})();\n'
    style = variables() + _texts(f"look/{name}.css" for name in STYLES)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "generator": GENERATOR,
        "title": escape(title),
        "style": style,
        "body": _texts([kind.body]),
        "script": script,
        "data": _HERE,
    }
    # in one pass: a title may be called `{script}`
    text = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], _texts(["frame.html"]))
    head, tail = text.split(f"{_HERE}\n")
    return head.encode(), tail.encode()


_HERE: Final = "\0"
"""Where the data goes. No text of a page has it."""


def json_data(name: str, text: bytes) -> bytes:
    """JSON that the scripts read."""
    return _data(name, "application/json", text.replace(b"<", _LESS))


def blob_data(name: str, base64: bytes) -> bytes:
    """Bytes that the scripts read, in base64."""
    return _data(name, "application/octet-stream", base64)


def _data(name: str, kind: str, text: bytes) -> bytes:
    """A script that only holds data."""
    return b'<script type="%b" id="%b">%b</script>\n' % (kind.encode(), name.encode(), text)


def _hash(text: str) -> str:
    """What a Content-Security-Policy allows to run."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _texts(names: Iterable[str]) -> str:
    """The texts of some of the page's files, one after the other."""
    folder = files("nsysflow.report.html")
    return "".join(folder.joinpath(*name.split("/")).read_text(encoding="utf-8") for name in names)
