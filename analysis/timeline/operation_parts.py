"""The part of the accounting that an operation counts in (spec §2)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import enum_from_index
from nsysflow.analysis.timeline.communication import communication_class

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
