"""Idle time that lies inside calls, and which places these calls have."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, last_at_or_before
from nsysflow.analysis.gaps.cause_shares import Span


@dataclass(frozen=True, kw_only=True)
class CallTime:
    """The idle time of one cause inside calls.

    Attributes:
        cover: when such calls ran, on the axis of lanes; `owner` is the call.
        spans: `gap`, `begin`, `stop` in the covered time of `cover`, only where a gap has any.
    """

    cover: Cover
    spans: pl.DataFrame

    @classmethod
    def last_of(cls, span: Span, gap: pl.Series, ns: pl.Series) -> Self:
        """The last `ns` of each gap's span: what is left when step 3 has taken the earlier ones."""
        spans = pl.DataFrame({"gap": gap, "begin": span.stop - ns, "stop": span.stop})
        return cls(cover=span.cover, spans=spans.filter(pl.col("stop") > pl.col("begin")))

    @property
    def calls(self) -> pl.Series:
        """Every call of the cover; several times where it has several parts."""
        return self.cover.intervals["owner"]

    def places(self, path_of_call: pl.Series) -> pl.DataFrame:
        """`gap`, `inside_ns`, `path`, and `several`: whether the calls have other paths too."""
        before = self.cover.before
        path = path_of_call.gather(self.calls).alias("path")
        run = path.to_frame().select(pl.col("path").rle_id()).to_series()
        first, last = (
            last_at_or_before(before, self.spans.select(at).to_series())
            for at in (pl.col("begin"), pl.col("stop") - 1)
        )
        return self.spans.select(
            "gap",
            (pl.col("stop") - pl.col("begin")).alias("inside_ns"),
            path.gather(last),
            (run.gather(first) != run.gather(last)).alias("several"),
        )

    def calls_in(self, gaps: pl.Series) -> pl.DataFrame:
        """The time of each call in these gaps: `gap`, `call`, `ns`."""
        wanted = self.spans.filter(pl.col("gap").is_in(gaps.implode()))
        pieces = self.cover.slices(wanted)
        return pieces.group_by("gap", pl.col("owner").alias("call")).agg(pl.col("ns").sum())
