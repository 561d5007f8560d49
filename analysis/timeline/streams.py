"""The streams of a trace, numbered over all devices and processes."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import dense

_STREAM: Final = ("device_no", "process", "stream")


def stream_numbers(ops: pl.DataFrame) -> pl.Series:
    """`stream_no` of each operation."""
    key = [column for column in _STREAM if not _is_constant(ops[column])]
    if not key:
        return pl.repeat(0, len(ops), dtype=pl.UInt32, eager=True).alias("stream_no")
    if len(key) == 1 and ops[key[0]].null_count() == 0:  # a search among few takes half of a join
        return dense(ops[key[0]]).alias("stream_no")
    rows = ops.select(key)
    streams = rows.unique().sort(key).with_row_index("stream_no")
    found = rows.join(streams, on=key, how="left", maintain_order="left", nulls_equal=True)
    return found["stream_no"]


def _is_constant(column: pl.Series) -> bool:
    return column.null_count() == 0 and column.min() == column.max()
