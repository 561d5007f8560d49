"""The part of the accounting that an operation counts in (spec §2)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import named

COMMUNICATION: Final = (
    r"(?i)^(?:nccl|rccl|nvshmem)|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|cross_device_reduce"
)
"""Short names of communication kernels (spec §2)."""

PART: Final = pl.Enum(["compute", "comm", "copy"])


def parts_of(ops: pl.DataFrame) -> pl.Series:
    """The `part` of each operation."""
    names = ops.filter(pl.col("kind") == "kernel").select(pl.col("short_name").unique())
    text = pl.col("short_name").cast(pl.String)
    comm = names.filter(text.str.contains(COMMUNICATION))["short_name"]
    is_copy = pl.col("kind").is_in(["memcpy", "memset"])
    is_comm = pl.col("short_name").is_in(comm.implode()) & (pl.col("kind") == "kernel")
    number = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(PART.categories)}
    part = (
        pl.when(is_copy)
        .then(number["copy"])
        .when(is_comm)
        .then(number["comm"])
        .otherwise(number["compute"])
    )
    return named(ops.select(part.alias("part")).to_series(), PART)
