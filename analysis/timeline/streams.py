"""The streams of a trace, numbered over all devices and processes."""

from typing import Final

import polars as pl

_STREAM: Final = ["device_no", "process", "stream"]


def stream_numbers(ops: pl.DataFrame) -> pl.Series:
    """`stream_no` of each operation."""
    streams = ops.select(_STREAM).unique().sort(_STREAM).with_row_index("stream_no")
    if len(streams) == 1:
        return pl.repeat(0, len(ops), dtype=pl.UInt32, eager=True).alias("stream_no")
    rows = ops.select(_STREAM)
    return rows.join(streams, on=_STREAM, how="left", maintain_order="left", nulls_equal=True)[
        "stream_no"
    ]
