"""What can hold a GPU back, in full: each cause of idle time, and each bound that is no cause. And
terms that pages of several ranks use."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nsysflow.analysis.causes import CAUSES


@dataclass(frozen=True, kw_only=True)
class Concept:
    """A cause, a bound or a term.

    Attributes:
        meaning: what it means, a clause.
        reckoned: how its time is found, a paragraph.
        spec: the section of docs/spec.md that defines it; empty where none does.
        usual: what usually brings it about, a clause each.
        remedies: what to do, a clause each.
        rules: the rules that find it.
        tables: the tables that show it.
    """

    meaning: str
    reckoned: str
    spec: str
    usual: tuple[str, ...]
    remedies: tuple[str, ...]
    rules: tuple[str, ...]
    tables: tuple[str, ...]


@cache
def causes_in_full() -> dict[str, Concept]:
    """Each cause, by name."""
    tables = ("gap_summary", "gaps", "phases", "steps")
    return {
        name: _concept({"meaning": cause.meaning, "tables": tables, **_read()["cause"][name]})
        for name, cause in CAUSES.items()
    }


@cache
def bounds_in_full() -> dict[str, Concept]:
    """Each bound that is not a cause, by name: a phase can be bound by a cause too."""
    return {name: _concept({"spec": "", **held}) for name, held in _read()["bound"].items()}


def _concept(held: dict[str, Any]) -> Concept:
    lists = ("usual", "remedies", "rules", "tables")
    return Concept(**held | {name: tuple(held[name]) for name in lists})


@cache
def terms_in_full() -> dict[str, Concept]:
    """Each term of the page that is neither, by name."""
    return {name: _concept(held) for name, held in _read()["term"].items()}


@cache
def _read() -> dict[str, Any]:
    text = files("nsysflow.analysis").joinpath("concepts.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
