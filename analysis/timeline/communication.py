"""Which kernels communicate, by their qualified names (spec §2.4). The rules are data:
communication.toml."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final

import polars as pl

NONE: Final = "none"
"""The class of names that only look like communication."""

_UNNAMED: Final = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}"


@cache
def communication_rules() -> tuple[tuple[str, str], ...]:
    """(class, pattern) in order of precedence."""
    text = files("nsysflow.analysis.timeline").joinpath("communication.toml")
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
