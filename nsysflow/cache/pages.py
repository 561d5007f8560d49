"""Pages that were printed before, as lines: the same question about the same reports.

The frames of a report save its loading; the analysis takes three times as long. So the page of a
large report is kept, too.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from rich.text import Span, Text

from nsysflow.cache.fingerprint import fingerprint, version_of

_KEY_BYTES: Final = 16

_SOURCES: Final = tuple(
    f"{folder}**/*.{ending}" for folder in ("", "analysis/") for ending in ("py", "toml")
)
"""All of this program; in a working copy, `analysis/` is a link, which `**` does not follow."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A line of a page: its text, its style, and the styles of parts of it."""

    text: str
    style: str
    spans: tuple[tuple[int, int, str], ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page.

    Attributes:
        reports: what was typed.
        lines: top to bottom.
    """

    reports: tuple[str, ...]
    lines: tuple[Line, ...]


def page_key(reports: Sequence[Path], asked: Iterable[object]) -> str | None:
    """A name for a page.

    Args:
        reports: all that it is of.
        asked: all else that it depends on, as values whose `repr` says all of them.

    Returns:
        None where a report cannot be identified.
    """
    digest = blake2b(digest_size=_KEY_BYTES)
    for report in reports:
        found = fingerprint(report, None)
        if found is None:
            return None
        digest.update(found.encode())
    for each in asked:
        digest.update(repr(each).encode())
    return digest.hexdigest()


@cache
def program_version() -> str:
    """The version of all that a page depends on in this program: a checksum of its sources."""
    return version_of(_SOURCES)


def page_of(reports: Sequence[Path], lines: Iterable[Text]) -> Page:
    """Lines as a page."""
    return Page(
        reports=tuple(map(str, reports)),
        lines=tuple(
            Line(
                each.plain,
                str(each.style),
                tuple((span.start, span.end, str(span.style)) for span in each.spans),
            )
            for each in lines
        ),
    )


def lines_of(page: Page) -> list[Text]:
    """A page as lines."""
    return [
        Text(line.text, style=line.style, spans=[Span(*span) for span in line.spans])
        for line in page.lines
    ]


def packed(page: Page) -> bytes:
    """A page with its checksum in front."""
    content = msgspec.json.encode(page)
    return _checksum(content) + content


def unpacked(content: bytes) -> Page:
    """The page in `content`.

    Raises:
        ValueError: it is damaged.
    """
    checksum, page = content[:_KEY_BYTES], content[_KEY_BYTES:]
    if _checksum(page) != checksum:
        raise ValueError("the checksum is another one")
    return msgspec.json.decode(page, type=Page)


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_KEY_BYTES).digest()
