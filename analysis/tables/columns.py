"""What a column means, for docs/tables.md and `nsysflow explain`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from nsysflow.analysis.causes import CAUSES


def meaning(table: str, column: str) -> str:
    """What a column of a table means, as a phrase without a full stop.

    Raises:
        KeyError: columns.toml has no words for it.
    """
    declared = _declared()
    if column in declared.get(table, {}):
        return str(declared[table][column])
    cause = CAUSES.get(column.removesuffix("_ns"))
    if cause is not None and column.endswith("_ns"):
        return f"idle time with the cause `{cause.name}`: {cause.meaning}"
    return str(declared["every"][column])


def columns_with_words(table: str) -> tuple[str, ...]:
    """The columns that a table has words of its own for; of `every`, those for all tables."""
    return tuple(_declared().get(table, {}))


@cache
def _declared() -> dict[str, Any]:
    """The words of columns.toml, by table."""
    text = files("nsysflow.analysis.tables").joinpath("columns.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
