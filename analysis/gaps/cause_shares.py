"""How much of a cover lies in each gap, and which call has most of it."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, rows_at_or_before
from nsysflow.analysis.frames.lookup import scatter_table


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
        total = pl.col("stop") - pl.col("begin")
        spans = pl.DataFrame({"begin": self.begin, "stop": self.stop}).with_columns(
            (between_ns if between_ns is not None else pl.lit(0, pl.Int64)).alias("between")
        )
        # of most causes few gaps have any, so that the others are left at once
        spans = spans.with_row_index("row").filter(total > 0, pl.col("between") <= total)
        if spans.is_empty():
            return pl.repeat(None, len(self.begin), dtype=pl.UInt32, eager=True)
        before = self.cover.before
        pieces = self.cover.intervals.select("owner", before.alias("before"), before.alias("ends"))
        last = rows_at_or_before(pieces, "ends", spans["stop"] - 1)
        spans = spans.hstack(last.select("before", "owner"))
        last_ns = pl.col("stop") - pl.max_horizontal("begin", "before")
        clear = (2 * last_ns > total) & (pl.col("between") <= last_ns)
        led, others = spans.filter(clear).select("row", "owner"), spans.filter(~clear)
        if not others.is_empty():
            led = pl.concat([led, self._contest(others, begun_ns)])
        return scatter_table(len(self.begin), led["row"], led["owner"])

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
