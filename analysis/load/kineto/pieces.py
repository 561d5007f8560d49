"""A trace in pieces, so that neither its text nor all of its objects are in memory at a time.

Text is cut at a comma before what begins like the first event. That may be an object within an
event. But a piece begins where an event does, so if it is a JSON list by itself, it also ends where
one does. Where one is not, or what stands beside the events is not as expected, the trace is read
as a whole.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from nsysflow.analysis.load.kineto.document import DOCUMENT, EVENTS, Document

PIECE_BYTES: Final = 1 << 18
"""Objects decoded from so much text fit into the cache of a core."""

_BEGIN: Final = re.compile(rb'(?:\A\s*|"traceEvents"\s*:\s*)\[\s*(\{\s*"\w+")')
"""What stands before the first event, and how it begins."""

_FIRST: Final = "nsysflow has read events before these"
"""Stands in place of the earlier events when the last ones are decoded with all else."""


class NoPieces(Exception):
    """A trace can only be read as a whole, if at all."""


def pieces_of(path: Path) -> Iterator[Document]:
    """The events of a trace, some at a time; the last ones with what stands beside them.

    Raises:
        NoPieces: it is small, or is not written as usual.
    """
    try:
        yield from _pieces(path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NoPieces from None


def _pieces(path: Path) -> Iterator[Document]:
    with path.open("rb") as file:
        text = file.read(PIECE_BYTES)
        found = _BEGIN.search(text)
        if found is None or len(text) < PIECE_BYTES:
            raise NoPieces
        head, begin = text[: found.start(1)], found[1]
        rest = [text[len(head) :]]
        while text := file.read(PIECE_BYTES):
            cut = text.rfind(b",", 0, max(text.rfind(begin), 0))
            if cut < 0:
                rest.append(text)
                continue
            yield Document(EVENTS.decode(b"".join((b"[", *rest, text[:cut], b"]"))))
            rest = [text[cut + 1 :]]
    last = DOCUMENT.decode(b"".join((head, b'"%b",' % _FIRST.encode(), *rest)))
    last = Document(last) if isinstance(last, list) else last
    if last.events[:1] != [_FIRST]:  # there are others under the same key
        raise NoPieces
    del last.events[0]
    yield last
