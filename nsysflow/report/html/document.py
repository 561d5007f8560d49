"""One HTML file that holds its styles, scripts and data, and forbids everything else."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final, Literal

import nsysflow
from nsysflow.base.names import printable
from nsysflow.report.palette import CAUSES, CLASSES, Colour

Theme = Literal["light", "dark"]

_DARK: Final = {
    "screen and (prefers-color-scheme: dark)": ":root:not([data-theme='light'])",
    "screen": ":root[data-theme='dark']",
}
"""Where the page is dark: as the system has it or the reader chose; never on paper."""


def variables() -> str:
    """The style sheet."""
    dark = (f"@media {where} {{\n{_rule(of, 'dark')}}}\n" for where, of in _DARK.items())
    return "".join([_rule(":root", "light"), *dark])


def _rule(of: str, theme: Theme) -> str:
    lines = "".join(f"  {line};\n" for line in _lines(theme))
    return f"{of} {{\n{lines}}}\n"


def _lines(theme: Theme) -> Iterator[str]:
    for name, colour in CAUSES.items():
        yield from _both(f"cause-{name}", colour, theme)
        yield f"--call-{name}: {_of(colour, theme)}"
    for name, colour in CLASSES.items():
        yield from _both(f"class-{name}", colour, theme)


def _both(name: str, colour: Colour, theme: Theme) -> Iterator[str]:
    found = _of(colour, theme)
    yield f"--{name}: {found}"
    yield f"--on-{name}: {letters_on(found)}"


def _of(colour: Colour, theme: Theme) -> str:
    return colour.light if theme == "light" else colour.dark


def letters_on(colour: str) -> str:
    """Black or white, whichever has more contrast with `#rrggbb`."""
    return "#000" if luminance(colour) > _AS_DARK_AS_LIGHT else "#fff"


_AS_DARK_AS_LIGHT: Final = 0.179
"""Black and white have the same contrast with a colour of this luminance."""


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


GENERATOR: Final = f"nsysflow {nsysflow.__version__}"
"""What a page says of the program that wrote it."""

STYLES: Final = ("colours", "page", "findings", "charts", "tables", "grid", "timeline", "print")
"""The style sheets, in their order."""

_LESS: Final = rb"\u003c"
"""`<` inside a JSON string, so that no name can end the script that holds it."""


@dataclass(frozen=True, kw_only=True)
class PageKind:
    """A kind of page.

    Attributes:
        body: the HTML file of what stands in it; frame.html is around it.
        scripts: its scripts in the order in which they run, in one scope.
    """

    body: str
    scripts: Sequence[str]


def around(kind: PageKind, title: str) -> tuple[bytes, bytes]:
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
        "title": escape(printable(title)),
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
    """JSON that the scripts read, without letters that end the script or control a terminal."""
    escaped = _CONTROLS.sub(lambda found: b"\\u00%02x" % found[0][-1], text.replace(b"<", _LESS))
    return _data(name, "application/json", escaped)


_CONTROLS: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


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
