"""The idle time of stretches that begin and end at operations, such as steps."""

from collections.abc import Iterable

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.frames.intervals import Axis, last_at_or_before


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
    """Per piece, the time by cause of the gaps that start in it.

    It is the sum of all gaps before its end, less the sum of those before its start.

    Args:
        pieces: `device_no`, `start_ns`, `end_ns`.
        gaps: with their causes, in the order of the axis.
        axis: of the devices.
        of: the causes.
    """
    first, past = gaps_in(pieces, gaps, axis)
    borders = pl.concat([first, past]).unique().sort()
    sums = _sums_before(borders, gaps.select(f"{cause}_ns" for cause in of))
    until_first, until_past = (
        sums.select(pl.all().gather(borders.search_sorted(border))) for border in (first, past)
    )
    return until_past - until_first


def _sums_before(borders: pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
    """The sums of the rows before each of the sorted, distinct `borders`.

    The rows between two borders are summed first, then these sums. Running sums of all rows take 4
    times as long.
    """
    opens = borders.filter(borders < len(rows))
    number = pl.zeros(len(rows), dtype=pl.Int64, eager=True).scatter(opens, 1).cum_sum()
    between = number.set_sorted().alias("number")
    sums = rows.group_by(between, maintain_order=True).agg(pl.all().sum())
    known = sums.with_columns(pl.exclude("number").cum_sum())
    last = last_at_or_before(known["number"], pl.int_range(len(borders), eager=True))
    return known.select(pl.exclude("number").gather(last).fill_null(0))
