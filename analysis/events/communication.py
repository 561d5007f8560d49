"""Which kernels communicate, and in which part of the accounting an operation counts (spec §2)."""

import tomllib
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import enum_from_index

NONE: Final = "none"
"""The class of names that only look like communication."""

_UNNAMED: Final = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}"


@cache
def communication_rules() -> tuple[tuple[str, str], ...]:
    """(class, pattern) in order of precedence."""
    text = files("nsysflow.analysis.events").joinpath("communication.toml")
    rows = tomllib.loads(text.read_text(encoding="utf-8"))["kernel"]
    return tuple((row["class"], f"(?i){row['pattern']}") for row in rows)


def communication_class(name: pl.Expr, short_name: pl.Expr) -> pl.Expr:
    """`comm`, `gemm+comm`, or `none`; null where no rule matches.

    Args:
        name: full names of kernels.
        short_name: their short ones.
    """
    qualified = qualified_name(name, short_name)
    return pl.coalesce(
        pl.when(qualified.str.contains(pattern)).then(pl.lit(kind))
        for kind, pattern in communication_rules()
    )


def qualified_name(name: pl.Expr, short_name: pl.Expr) -> pl.Expr:
    """Namespaces and name, without return type, template arguments and parameters.

    The short name alone where the full name is of a generic template that runs it.
    """
    head = name.str.replace_all(_UNNAMED, "unnamed").str.extract(r"^([^<(\[]*)")
    last = head.str.strip_chars().str.extract(r"(\S*)$")
    return pl.when(last.str.ends_with(short_name)).then(last).otherwise(short_name)


PART: Final = pl.Enum(["compute", "comm", "copy"])


def parts_of(ops: pl.DataFrame) -> pl.Series:
    """The `part` of each operation."""
    kernels = ops.select("name", "short_name").filter(ops["kind"] == "kernel").unique("name")
    names = kernels.cast(pl.String).sort("name").rows()
    is_copy = pl.col("kind").is_in(["memcpy", "memset"])
    is_comm = pl.col("name").is_in(_communicating(tuple(names))) & (pl.col("kind") == "kernel")
    number = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(PART.categories)}
    part = (
        pl.when(is_copy)
        .then(number["copy"])
        .when(is_comm)
        .then(number["comm"])
        .otherwise(number["compute"])
    )
    return enum_from_index(ops.select(part.alias("part")).to_series(), PART)


@lru_cache(maxsize=2)  # the ranks of a run have the same kernels, as a rule
def _communicating(kernels: tuple[tuple[str, str], ...]) -> Sequence[str]:
    """The full names of the kernels that communicate, of full and short names."""
    named = pl.DataFrame(kernels, {"name": pl.String, "short_name": pl.String}, orient="row")
    kind = communication_class(pl.col("name"), pl.col("short_name"))
    return named.filter(kind == "comm")["name"].to_list()
