"""Which rows a partition needs besides its own.

Rows of the report that a partition would not need change nothing in it: each of its figures follows
from what is near. So a halo may hold too much, but never too little.
"""

from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES, STALLS
from nsysflow.analysis.gaps.find import NEVER_NS
from nsysflow.analysis.options import Options
from nsysflow.analysis.partitions.outline import KEY, Outline
from nsysflow.analysis.timeline.call_classes import COPY, SYNC_AFTER_NS
from nsysflow.analysis.trace import Trace

_BLOCKING: Final = "|".join([*(f"^(?:{CAUSES[name].calls})$" for name in STALLS), COPY])
"""Names of calls that may block the host."""


@dataclass(frozen=True)
class Stretch:
    """A partition's own operations start in `[begin_ns, end_ns)`; None is no border."""

    begin_ns: int | None
    end_ns: int | None

    def holds(self, time: str = "start_ns") -> pl.Expr:
        """Whether a time lies in it."""
        after = pl.lit(value=True) if self.begin_ns is None else pl.col(time) >= self.begin_ns
        before = pl.lit(value=True) if self.end_ns is None else pl.col(time) < self.end_ns
        return after & before


def rows_of(outline: Outline, stretch: Stretch, options: Options) -> Trace:
    """The rows of a partition and of its halo, as a trace."""
    trace = outline.trace
    reach_ns = max(options.framework_gap_ns, SYNC_AFTER_NS) + 1
    ops = trace.ops.with_row_index("row")
    calls = trace.calls.with_row_index("row")
    own = ops.filter(stretch.holds())
    leading, earliest_ns = _leading(ops, own, stretch)
    blocking = _blocking(calls)
    waits = _waits_of(outline.awaited, own)
    waiting = ops.join(waits["launches"], on=KEY, how="semi")
    copied = ops.filter(pl.col("kind") == "memcpy").join(blocking, on=KEY, how="semi")
    chosen = [own["row"], leading["row"], copied["row"], waiting["row"], outline.first_launches]
    ops = ops.join(_rows([*chosen, outline.edges["ops"]]), on="row", how="semi")
    launching = calls.join(ops.select(KEY), on=KEY, how="semi")
    near = calls.clear() if own.is_empty() else _near(calls, own, launching, earliest_ns, reach_ns)
    chosen = [launching["row"], blocking["row"], near["row"], outline.edges["calls"]]
    chosen.append(_around(calls, launching)["row"])
    chosen.append(calls.join(waits["calls"], on=KEY, how="semi")["row"])
    calls = calls.join(_rows(chosen), on="row", how="semi")
    return replace(
        trace,
        ops=ops.drop("row"),
        calls=calls.drop("row"),
        event_records=trace.event_records.join(
            waits["records"], on=["process", "record"], how="semi"
        ),
        waits=trace.waits.join(waits["calls"], on=KEY, how="semi"),
    )


def _waits_of(awaited: pl.DataFrame, own: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Of the waits that held back a partition's own operations, the `launches` on both sides, the
    `calls` between them and the `records` of the events."""
    mine = awaited.join(own, left_on=["process", "waiter"], right_on=[*KEY], how="semi")

    def ids(*names: str) -> pl.DataFrame:
        return pl.concat([mine.select("process", correlation=name) for name in names]).unique()

    return {
        "launches": ids("waiter", "source"),
        "calls": ids("wait", "noting"),
        "records": mine.select("process", "record").unique(),
    }


def _rows(found: list[pl.Series]) -> pl.DataFrame:
    return pl.concat([each.alias("row").cast(pl.UInt32) for each in found]).unique().to_frame()


def _leading(ops: pl.DataFrame, own: pl.DataFrame, stretch: Stretch) -> tuple[pl.DataFrame, int]:
    """On each device the operations that still run at the border, and those that end where its
    first gap may begin; and the earliest such instant."""
    border_ns = NEVER_NS if stretch.begin_ns is None else stretch.begin_ns
    before = ops.filter(pl.col("start_ns") < border_ns)
    reached = before.group_by("device").agg(pl.col("end_ns").max().alias("reached_ns"))
    first = own.group_by("device").agg(pl.col("start_ns").min().alias("first_ns"))
    border = first.join(reached, on="device", how="left").with_columns(
        pl.min_horizontal("first_ns", "reached_ns").alias("border_ns")
    )
    leading = before.join(border, on="device").filter(
        (pl.col("end_ns") >= pl.col("border_ns")) | (pl.col("end_ns") > border_ns)
    )
    # a device without operations of its own may still run one
    running = before.filter(pl.col("end_ns") > border_ns)
    earliest_ns = border["border_ns"].min()
    both = pl.concat([leading.select("row"), running.select("row")])
    return both, earliest_ns if isinstance(earliest_ns, int) else 0


def _blocking(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that may hold stalled time which is not charged yet."""
    names = calls.select(pl.col("name").unique()).filter(
        pl.col("name").cast(pl.String).str.contains(_BLOCKING)
    )
    return calls.join(names, on="name", how="semi")


def _near(
    calls: pl.DataFrame,
    own: pl.DataFrame,
    launching: pl.DataFrame,
    earliest_ns: int,
    reach_ns: int,
) -> pl.DataFrame:
    """The calls of all threads in the time of the partition's gaps."""
    latest = launching.join(own.select(KEY), on=KEY, how="semi")["end_ns"].max()
    ends = [end for end in (own["start_ns"].max(), latest) if isinstance(end, int)]
    until_ns = max(ends) + reach_ns
    return calls.filter(pl.col("end_ns") >= earliest_ns - reach_ns, pl.col("start_ns") <= until_ns)


def _around(calls: pl.DataFrame, launching: pl.DataFrame) -> pl.DataFrame:
    """The calls that overlap a launch on its thread: they may have its stack."""
    found = [calls.clear()]
    for (thread,), own in launching.partition_by("thread", as_dict=True).items():
        of_thread = calls.filter(pl.col("thread") == thread)
        begun = own["start_ns"].sort()
        first = begun.search_sorted(of_thread["start_ns"], side="left")
        past = begun.search_sorted(of_thread["end_ns"], side="right")
        found.append(of_thread.filter(past > first))
    return pl.concat(found)
