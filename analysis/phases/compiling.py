"""Which ranges are opened to compile, and which of them are phases (spec §7.18)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import reached_before

_COMPILING: Final = r"(?s)^compile$|^Xla\w+:#.*#$|\(dynamo_timed\)$"
"""Ours, any of XLA's but `XlaModule`, and those of PyTorch's Dynamo."""

_TUNING: Final = r"(?s)^XlaModule:#.*#$"
"""While it compiles, XLA tries variants of a kernel as modules without a number of a program."""


def is_compiling(raw: pl.Expr) -> pl.Expr:
    """Whether a range of this raw name is opened to compile."""
    return raw.str.contains(_COMPILING) & ~raw.str.starts_with("XlaModule:")


def outside_compiling(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges that are no part of a compiling one, which opens thousands, on threads of its own
    too.

    Args:
        ranges: in stack order, with their raw `name`, `start` and `end` on the thread axis, and
            `compiling`.
    """
    if not ranges["compiling"].any():
        return ranges
    ranges = ranges.with_row_index("at")
    parts = pl.col("at").is_in(_parts(ranges).implode())
    pushed = pl.col("kind") == "push_pop"
    opens = pushed & (pl.col("compiling") | parts)
    reached = reached_before(pl.when(opens).then("end").otherwise(pl.lit(-1)))
    inside = pushed & (pl.col("start") < reached).fill_null(value=False)
    return ranges.filter(~inside & ~parts).drop("at")


def _parts(ranges: pl.DataFrame) -> pl.Series:
    """The ranges (`at`) around compiling or tuning that start while their process compiles."""
    tuning = pl.col("name").str.contains(_TUNING)
    tuning &= ~pl.col("name").str.contains("program_id=", literal=True)
    rows = ranges.filter(pl.col("kind") == "push_pop", pl.col("compiling") | tuning)
    rows = rows.sort("process", "start_ns", -pl.col("end_ns"), "row")
    reached = pl.when("compiling").then("end_ns").cum_max().forward_fill().shift(1).over("process")
    return rows.filter((pl.col("start_ns") < reached).fill_null(value=False))["at"]
