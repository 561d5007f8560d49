"""The names that have a page: rules, causes, bounds, tables and columns. Imports no polars."""

from collections.abc import Mapping
from typing import Final

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.concepts import bounds_in_full
from nsysflow.analysis.declared.tables import DECLARED, TABLES
from nsysflow.analysis.findings.explained.explanation import explanations
from nsysflow.analysis.tables.columns import columns_with_words

_SPELLED: Final[Mapping[str, str]] = {
    **{cause.label.casefold(): name for name, cause in CAUSES.items()},
    "gpu-bound": "compute",
    "copy-bound": "copies",
    "allocation-bound": "alloc",
    "load-bound": "module_load",
}
"""Words of the page that stand for a name."""


def names_by_kind() -> dict[str, tuple[str, ...]]:
    """All names with a page, by what they are."""
    tables = ("every", *(table.name for table in DECLARED))
    columns = {column for table in tables for column in columns_with_words(table)}
    return {
        "causes": tuple(CAUSES),
        "bounds": tuple(bounds_in_full()),
        "findings": tuple(explanations()),
        "tables": tuple(TABLES),
        "columns": tuple(sorted(columns | {f"{cause}_ns" for cause in CAUSES})),
    }


def known_as(typed: str) -> str | None:
    """The name that `typed` is, in any case, or that it is a word of the page for: `host-bound`
    and `waiting in a sync` are causes. None for anything else."""
    names = {name for each in names_by_kind().values() for name in each}
    word = typed.strip().casefold()
    shorter = word.removesuffix("-bound")
    found = (word, word.replace("-", "_"), _SPELLED.get(word), shorter, f"{word}_ns")
    return next((name for name in found if name in names), None)
