"""The part of the accounting that an operation counts in (spec §2)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import named
from nsysflow.analysis.timeline.communication import communication_class

PART: Final = pl.Enum(["compute", "comm", "copy"])


def parts_of(ops: pl.DataFrame) -> pl.Series:
    """The `part` of each operation."""
    kernels = ops.select("name", "short_name").filter(ops["kind"] == "kernel").unique("name")
    text = [pl.col(column).cast(pl.String) for column in ("name", "short_name")]
    comm = kernels.filter(communication_class(*text) == "comm")["name"]
    is_copy = pl.col("kind").is_in(["memcpy", "memset"])
    is_comm = pl.col("name").is_in(comm.implode()) & (pl.col("kind") == "kernel")
    number = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(PART.categories)}
    part = (
        pl.when(is_copy)
        .then(number["copy"])
        .when(is_comm)
        .then(number["comm"])
        .otherwise(number["compute"])
    )
    return named(ops.select(part.alias("part")).to_series(), PART)
