"""The idle time of stretches that begin and end at operations, such as steps."""

from collections.abc import Iterable

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.frames.intervals import Axis


def gaps_in(pieces: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> tuple[pl.Series, pl.Series]:
    """Per piece the rows of its first gap, and of the one after its last.

    Args:
        pieces: `device_no`, `start_ns`, `end_ns`.
        gaps: in the order of the axis.
        axis: of the devices.
    """
    place = axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    starts, begin = (rows.select(place).to_series() for rows in (gaps, pieces))
    ends = begin + (pieces["end_ns"] - pieces["start_ns"])
    return starts.search_sorted(begin), starts.search_sorted(ends)


def idle_in(
    pieces: pl.DataFrame, gaps: pl.DataFrame, axis: Axis, *, of: Iterable[str] = CAUSES
) -> pl.DataFrame:
    """Per piece the causes of the gaps that start in it, as differences of running sums.

    Args:
        pieces: `device_no`, `start_ns`, `end_ns`.
        gaps: with their causes, in the order of the axis.
        axis: of the devices.
        of: the causes.
    """
    causes = pl.col([f"{cause}_ns" for cause in of])
    sums = gaps.select(causes.cum_sum())
    first, past = (_until(sums, row) for row in gaps_in(pieces, gaps, axis))
    return past - first


def _until(sums: pl.DataFrame, row: pl.Series) -> pl.DataFrame:
    """The running sums before each row."""
    before = row.cast(pl.Int64) - 1
    return sums.select(pl.all().gather(before.set(before < 0, None))).fill_null(0)
