"""Automatic ranges of recorders without domains, whose names carry the domain."""

from typing import Final

import polars as pl

from nsysflow.runtime.protocol import AUTO_DOMAIN

PREFIX: Final = f"{AUTO_DOMAIN}:"


def with_auto_domain(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges` (`schema.RANGES`) with `nsysflow.auto:forward` as `forward` in its domain."""
    carries = pl.col("name").str.starts_with(PREFIX)
    return ranges.with_columns(
        pl.when(carries).then(pl.lit(AUTO_DOMAIN)).otherwise("domain").alias("domain"),
        pl.col("name").str.strip_prefix(PREFIX),
    )
