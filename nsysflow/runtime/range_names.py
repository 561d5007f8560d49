"""Range names in a trace of torch.profiler, which keeps only printable ASCII."""

import re
import sys
from typing import Final

_NOT_KEPT: Final = re.compile(r"""[^ !#-\[\]-~]|<(?=U\+)""")
_ESCAPE: Final = re.compile(r"<U\+([0-9A-F]{2,6})>")


def ascii_name(name: str) -> str:
    """`name` in characters that a Kineto trace keeps: `<U+FC>` stands for `ü`.

    torch 2.13 (2026-11) writes `unknown` for a name that is not printable ASCII, turns a backslash
    into `/`, and does not escape a quote, which makes the whole trace unreadable.
    """
    return _NOT_KEPT.sub(lambda found: f"<U+{ord(found[0]):02X}>", name)


def original_name(text: str) -> str:
    """The name that `ascii_name` turned into `text`."""
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    # half of a surrogate pair is no character
    return found[0] if code in range(0xD800, 0xE000) or code > sys.maxunicode else chr(code)
