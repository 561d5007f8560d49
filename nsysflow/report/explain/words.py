"""Which name is meant by what was typed: the name itself, or a word of the page."""

from collections.abc import Mapping
from typing import Final

from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.verdict.verdict import LOSSES, WORDS

_OF_RANKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(["tp", "dp", "pp", "ep", "groups"], "rank_group"),
    **dict.fromkeys(["late from", "lateness"], "late"),
    **dict.fromkeys(["bus", "bus bandwidth", "algorithm", "slow link"], "bus_bandwidth"),
}
"""Words of pages of several ranks."""

_SPELLED: Final[Mapping[str, str]] = {
    **{
        word.casefold(): name
        for words in (LOSSES, WORDS)
        for name, word in reversed(words.items())  # of two names with one word, the first counts
    },
    **_OF_RANKS,
}
"""The words of the page, and the names that they stand for."""


def known_as(typed: str) -> str | None:
    """The name that is meant, in any case: `host-bound` and `waiting in a sync` are causes. None
    where nothing is called so."""
    names = {name for each in names_by_kind().values() for name in each}
    word = typed.strip().casefold()
    found = (word, word.replace("-", "_"), _SPELLED.get(word), f"{word}_ns")
    return next((name for name in found if name in names), None)
