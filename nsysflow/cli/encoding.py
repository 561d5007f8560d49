"""Standard output in an encoding that lacks the page's characters, as under `LC_ALL=C`."""

import codecs
from io import TextIOWrapper
from typing import Final, TextIO

_HANDLER: Final = "nsysflow.plain"

_PLAIN: Final = {"█": "#", "▓": "=", "▒": "+", "░": ".", "·": "-", "…": "~"}
"""Replacements for the letters that bars are made of: as wide, and all different."""


def take_any_text(stream: TextIO | None) -> None:
    """Let a stream write another letter where its encoding lacks one, instead of raising."""
    if isinstance(stream, TextIOWrapper):
        codecs.register_error(_HANDLER, _plain)
        stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _PLAIN.get(error.object[error.start], "?"), error.start + 1
