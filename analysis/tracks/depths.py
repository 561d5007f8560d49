"""In which row of its lane each slice is drawn, so that none hides another (spec §22.3)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import reached_before

_OPENS: Final = pl.col("opens")


def depths(rows: pl.DataFrame) -> pl.Series:
    """`depth`, u32: the first free one of its lane. That of nested slices is how many hold it.

    Slices that overlap form a cluster. Of most clusters, the first slice holds all others: it is
    taken off, and what is left forms clusters again. Only clusters in which it does not are walked.

    Args:
        rows: `lane`, `start_ns`, `end_ns`, by lane and start, the longest first.
    """
    depth = pl.repeat(0, len(rows), dtype=pl.UInt32, eager=True).alias("depth")
    left, level = _clustered(rows.select("lane", "start_ns", "end_ns").with_row_index("row")), 0
    while not left.is_empty():
        held = left.filter("held")
        walked = left.filter(~pl.col("held"))
        if not walked.is_empty():
            depth = depth.scatter(walked["row"], _walked(walked, level))
        inner = held.filter(~_OPENS)
        level += 1
        depth = depth.scatter(
            inner["row"], pl.repeat(level, len(inner), dtype=pl.UInt32, eager=True)
        )
        left = _clustered(inner.select("row", "lane", "start_ns", "end_ns"))
    return depth


def _clustered(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of clusters of several: with `cluster`, `opens` (it is the first of its cluster) and
    `held` (whether that one lasts as long as its whole cluster)."""
    reached = reached_before(pl.col("end_ns")).over("lane")
    opens = (pl.col("start_ns") >= reached).fill_null(value=True)
    marked = rows.with_columns(opens.alias("opens"))
    alone = _OPENS & _OPENS.shift(-1, fill_value=True)
    several = marked.filter(~alone)
    if several.is_empty():
        return several.with_columns(cluster=pl.lit(0, pl.UInt32), held=pl.lit(value=False))
    numbered = several.with_columns(_OPENS.cast(pl.UInt32).cum_sum().alias("cluster"))
    first = numbered.filter("opens").select("cluster", pl.col("end_ns").alias("first_end"))
    last = numbered.group_by("cluster", maintain_order=True).agg(pl.col("end_ns").max())
    held = (first["first_end"] >= last["end_ns"]).gather(numbered["cluster"] - 1)
    return numbered.with_columns(held.alias("held"))


def _walked(rows: pl.DataFrame, level: int) -> pl.Series:
    """The depth of each row of some clusters, from `level` on, one after the other."""
    found: list[int] = []
    ends: list[int] = []
    for opens, start, end in rows.select("opens", "start_ns", "end_ns").iter_rows():
        if opens:
            ends = []
        free = next((depth for depth, until in enumerate(ends) if until <= start), len(ends))
        ends[free : free + 1] = [end]
        found.append(level + free)
    return pl.Series("depth", found, dtype=pl.UInt32)
