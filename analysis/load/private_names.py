"""What programs write into names of ranges that is nobody else's business: prompts, ids, paths."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from nsysflow.analysis.observed import Seen

UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The usual id of a request or a run."""

LONG_WORD: Final = r"(?:0x[0-9a-fA-F]{6,}|[0-9a-f]{12,}|[0-9a-z]{32,})"
"""A whole word that is an address or a hash, if it has `LEAST_DIGITS`."""

LEAST_DIGITS: Final = 2
"""A long word without digits is a word."""

_WORD: Final = re.compile(rf"(?<![^\W_])(?P<id>{LONG_WORD})(?![^\W_])")
_VALUE: Final = r"[^\s,;)\]]*"
_REQUEST: Final = re.compile(
    rf"(?i)\b((?:chat)?cmpl-|req(?:uest)?[_ ]?ids?[=:] ?)(?:\[[^\]]*\]|{_VALUE}[^\W\d_]{_VALUE})"
)
_TEXT: Final = re.compile(
    r"(?is)\b(prompts? ?[=:] ?|(?:text|messages?|content|query|question|completion) ?= ?)"
    r"(?=.*[^\W\d_]).*"
)
_QUOTED: Final = re.compile(r"""(?s)"[^"]*\s[^"]*"|(?<![^\W_])'[^']*\s[^']*'""")
_LAYER: Final = "{'Module': "
"""vLLM and SGLang name layers by a dict, of which the analysis keeps the module."""

_END: Final = r"""[^\s,;:'"()\[\]{}]"""
_ROOTS: Final = (
    *("home", "root", "Users", "mnt", "data", "models?", "opt", "usr", "var", "tmp", "srv", "app"),
    *("workspaces?", "work", "scratch", "nfs", "lustre", "gpfs", "fsx", "dev", "content", "etc"),
)
"""Folders at the root of a file system: `/step/forward` is a phase."""

_PATHS: Final = (
    re.compile(rf"(?<![\w/.])(?:/(?:{'|'.join(_ROOTS)})|~|[A-Za-z]:)[/\\]{_END}*"),
    re.compile(rf"(?i)(?:(?<=model)|(?<=path)|(?<=checkpoint)|(?<=file))[=:] ?{_END}*/{_END}*"),
    re.compile(r"models--[\w./-]+"),
)


@lru_cache(maxsize=1 << 16)
def without_private(name: str) -> str:
    """The name without prompts, ids of requests, and paths.

    An id becomes zeros, which the analysis drops as it drops any id (spec §7.6): names stay apart
    or alike as they were.
    """
    if not name.startswith(_LAYER):
        name = _TEXT.sub(r"\1(text)", name)
        name = _QUOTED.sub("(text)", name)
    for path in _PATHS:
        name = path.sub(lambda found: f"{found[0][0] if found[0][0] in '=:' else ''}(path)", name)
    name = _REQUEST.sub(r"\g<1>0", name)
    name = re.sub(UUID, lambda found: re.sub("[0-9a-fA-F]", "0", found[0]), name)
    return _WORD.sub(_zeros, name)


def public_observation(seen: Seen) -> Seen:
    """The same, without such names."""
    return msgspec.structs.replace(
        seen, **{name: _public(value) for name, value in msgspec.structs.asdict(seen).items()}
    )


def _public(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_public, value))
    return without_private(value) if isinstance(value, str) else value


def _zeros(found: re.Match[str]) -> str:
    word = found["id"]
    if len(re.findall("[0-9]", word)) < LEAST_DIGITS:
        return word
    start = "0x" if word.startswith("0x") else ""
    return start + "0" * (len(word) - len(start))
