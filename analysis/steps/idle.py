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
    first, past = (row.cast(pl.Int64) - 1 for row in gaps_in(pieces, gaps, axis))
    first, past = (row.set(row < 0, None) for row in (first, past))
    return pl.DataFrame([_between(gaps[f"{cause}_ns"], first, past) for cause in of])


def _between(ns: pl.Series, first: pl.Series, last: pl.Series) -> pl.Series:
    """The sums of `ns` behind the rows `first` up to `last` (null: before all), as differences of
    running sums."""
    sums = ns.cum_sum()
    return sums.gather(last).fill_null(0) - sums.gather(first).fill_null(0)
