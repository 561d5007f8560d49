"""How much of a cover lies in each gap, and which call has most of it."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, last_at_or_before


@dataclass(frozen=True)
class Span:
    """The covered time inside each gap's host time, `[begin, stop)` counted in covered time."""

    cover: Cover
    begin: pl.Series
    stop: pl.Series

    @classmethod
    def of(cls, cover: Cover, start: pl.Series, end: pl.Series) -> Self:
        """The span of each `[start, end)`."""
        return cls(cover, cover.until(start), cover.until(end))

    @property
    def ns(self) -> pl.Series:
        return self.stop - self.begin

    def leader(self, begun_ns: pl.Series, between_ns: pl.Series | None = None) -> pl.Series:
        """The row of the call that has most of each span; the earliest on a tie.

        Null if no call has any, or if the time between calls has more.

        Args:
            begun_ns: when each call began, by row.
            between_ns: the time between calls in each span.
        """
        # If the last piece has more than half, the others do not matter. That is true
        # of most launches (the other calls of a gap are short look-ups), and cheap to see.
        intervals = self.cover.intervals
        none = pl.repeat(None, len(self.begin), dtype=pl.UInt32, eager=True)
        if intervals.is_empty():
            return none
        total = pl.col("stop") - pl.col("begin")
        before = self.cover.before
        last = last_at_or_before(before, self.stop - 1).fill_null(0)
        spans = (
            pl.DataFrame(
                {
                    "begin": self.begin,
                    "stop": self.stop,
                    "between": between_ns if between_ns is not None else none.cast(pl.Int64),
                    "before": before.gather(last),
                    "owner": intervals["owner"].gather(last),
                }
            )
            .with_columns(pl.col("between").fill_null(0))
            .with_row_index("row")
        )
        last_ns = pl.col("stop") - pl.max_horizontal("begin", "before")
        nobody = (total == 0) | (pl.col("between") > total)
        clear = (2 * last_ns > total) & (pl.col("between") <= last_ns)
        open_ = spans.filter(~nobody & ~clear)
        led = spans.select(pl.when(clear & ~nobody).then("owner")).to_series()
        if open_.is_empty():
            return led
        best = self._contest(open_, begun_ns)
        return led.scatter(best["row"], best["owner"])

    def _contest(self, spans: pl.DataFrame, begun_ns: pl.Series) -> pl.DataFrame:
        """`row` and `owner` of the spans in which one call has at least `between`."""
        pieces = self.cover.slices(spans.select("row", "between", "begin", "stop"))
        calls = pieces.group_by("row", "owner").agg(pl.col("ns").sum(), pl.col("between").first())
        calls = calls.filter(pl.col("ns") >= pl.col("between"))
        return (
            calls.with_columns(begun_ns.gather(calls["owner"]).alias("begun"))
            .sort("row", -pl.col("ns"), "begun", "owner")
            .unique("row", keep="first", maintain_order=True)
            .select("row", "owner")
        )
