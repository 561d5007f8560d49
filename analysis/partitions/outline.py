"""What must be known of a whole report before its first partition, of a few columns."""

from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from nsysflow.analysis.partitions.awaited import awaited
from nsysflow.analysis.timeline.call_classes import GRAPH_LAUNCH, LAZY_LOAD_NS
from nsysflow.analysis.timeline.outliers import without_outliers
from nsysflow.analysis.trace import Trace

KEY: Final = ("process", "correlation")


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A report, and what its partitions must know of each other.

    Attributes:
        trace: the report without rows of negative length and outliers.
        windows: `device`, `first_ns`, `last_ns`: from each device's first operation to the end of
            its last one.
        edges: rows of `ops` (of each device) and `calls` that hold the first and the last instant;
            with them, each partition has the report's axis, its end and its devices.
        awaited: of `awaited.awaited`.
        first_launches: rows of `ops`: the first launch of each kernel that was launched slowly.
    """

    trace: Trace
    windows: pl.DataFrame
    edges: dict[str, pl.Series]
    first_launches: pl.Series
    awaited: pl.DataFrame

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """The outline of a whole trace."""
        trace = _cleaned(trace)
        lasting = trace.ops.filter(pl.col("end_ns") > pl.col("start_ns"))
        windows = lasting.group_by("device").agg(
            pl.col("start_ns").min().alias("first_ns"), pl.col("end_ns").max().alias("last_ns")
        )
        return cls(
            trace=trace,
            windows=windows.sort("device"),
            edges={"ops": _edges_of_devices(trace.ops), "calls": _edges(trace.calls)},
            first_launches=_first_launches(trace),
            awaited=awaited(trace),
        )


def _cleaned(trace: Trace) -> Trace:
    """The rows that `events.in_order` would keep."""
    rows = {
        "operations": trace.ops,
        "calls": trace.calls,
        "ranges": trace.ranges,
        "overhead": trace.overhead,
    }
    lasting = (pl.col("end_ns") >= pl.col("start_ns")).fill_null(value=True)
    frames = {name: frame.filter(lasting) for name, frame in rows.items()}
    kept, _ = without_outliers(frames)
    return replace(
        trace,
        ops=kept["operations"],
        calls=kept["calls"],
        ranges=kept["ranges"],
        overhead=kept["overhead"],
    )


def _edges(rows: pl.DataFrame) -> pl.Series:
    found = [rows["start_ns"].arg_min(), rows["end_ns"].arg_max()]
    return pl.Series([row for row in found if row is not None], dtype=pl.UInt32)


def _edges_of_devices(ops: pl.DataFrame) -> pl.Series:
    """Those of each device: it may be idle for a whole partition, which still has its time."""
    found = ops.with_row_index("row").partition_by("device") or [ops.with_row_index("row")]
    return pl.concat([each["row"].gather(_edges(each)) for each in found])


def _first_launches(trace: Trace) -> pl.Series:
    """Rows of `ops`: whether a slow launch loads code depends on the first one of its kernel."""
    slow = trace.calls.filter(pl.col("end_ns") - pl.col("start_ns") > LAZY_LOAD_NS).select(KEY)
    ops = trace.ops.with_row_index("row").select("row", *KEY, "name", "kind")
    kernels = ops.filter(pl.col("kind") == "kernel").drop("kind")
    names = kernels.join(slow, on=KEY, how="semi").select("process", "name").unique()
    kernels = kernels.join(names, on=["process", "name"], how="semi")
    calls = trace.calls.select(*KEY, "name", "start_ns").join(kernels, on=KEY, how="semi")
    replays = calls.filter(pl.col("name").cast(pl.String).str.contains(GRAPH_LAUNCH))
    begun = calls.join(replays, on=KEY, how="anti").group_by(KEY).agg(pl.col("start_ns").min())
    launched = kernels.join(begun, on=KEY)
    first = launched.group_by("process", "name").agg(pl.col("start_ns").min())
    return launched.join(first, on=["process", "name", "start_ns"], how="semi")["row"]
