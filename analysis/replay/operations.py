"""What an operation waits for: its launch, its stream, and what other streams had to finish.

Each bound is `source + lag`. A lag is the smaller of the usual one and the one seen; the bound that
is reached last is made exact, so that the unchanged replay is the trace (spec §14).
"""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.classes import QUEUE_DELAY_NS, queue_limit_ns
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import median_ns, repeated
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.replay.calls import Host

OVERLAP_NS: Final = 2_000
"""An operation that reaches further into the next one of its stream overlaps it. cuDNN launches
kernels so (programmatic launches): they begin 7 to 13 us before the end of the one before."""

USUAL_LAG_NS: Final = 5_000
USUAL_GAP_NS: Final = 1_000
"""From a launch, or the operation before, to the start, where a report has none to measure."""

EDGES: Final = pl.Schema({"op": pl.UInt32(), "source": pl.UInt32(), "lag_ns": pl.Int64()})
"""An operation that starts `lag_ns` or more after the end of another one."""
LaggedEdges = Annotated[pl.DataFrame, EDGES]


@dataclass(frozen=True, kw_only=True)
class Operations:
    """The GPU's side of the replay.

    Attributes:
        ops: in the order of the events: `op`, `kind`, `device_no`, `process_no`, `stream_no`,
            `node` (its launch in `Host.calls`, null without), `start_ns`, `end_ns`,
            `launch_start_ns`, `limit_ns` (how late it may start, to be only delayed), `length_ns`,
            `lag_ns` (at least so long after its launch began),
            `prev` (the one before it on its stream) and `gap_ns` (at least so long after its end).
        edges: the further operations that it waits for, sorted by `op`.
        usual_lag_ns: the usual time from a launch to the start on an idle GPU.
    """

    ops: pl.DataFrame
    edges: LaggedEdges
    usual_lag_ns: int


def placed_operations(events: Events, host: Host) -> pl.DataFrame:
    """The operations with numbers for their process, stream and launch."""
    node = host.node_of_call[events.ops["call"]].alias("node")
    begun = host.calls["start_ns"][node].alias("launch_start_ns")
    processes = events.threads[["process", "process_no"]].unique()
    return events.ops.select(
        "op",
        "kind",
        "device",
        "device_no",
        "process",
        "stream",
        "start_ns",
        "end_ns",
        "first",
        node,
        begun,
        queue_limit_ns(events.calls, events.ops["call"]).fill_null(QUEUE_DELAY_NS),
        (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns"),
        events.stream_no,
        pl.col("process")
        .replace_strict(
            processes["process"],
            processes["process_no"],
            default=None,
            return_dtype=pl.UInt32,
        )
        .alias("process_no"),
    )


def bound_operations(ops: pl.DataFrame, awaited: pl.DataFrame) -> Operations:
    """All bounds of `ops` (of `placed_operations`).

    Args:
        ops: the operations.
        awaited: `op` and `source` of waits for events.
    """
    ops = _with_previous(ops)
    lag, gap = _usual(ops)
    ops = ops.with_columns(
        pl.min_horizontal(pl.lit(lag), pl.col("start_ns") - pl.col("launch_start_ns")).alias(
            "lag_ns"
        ),
        pl.min_horizontal(pl.lit(gap), pl.col("gap_ns")).alias("gap_ns"),
    )
    edges = _with_lags(pl.concat([awaited, _taking_turns(ops)]).unique(), ops, gap)
    edges = pl.concat([edges, _unexplained(ops, edges)])
    ops, edges = _exact(ops, edges)
    return Operations(ops=ops, edges=edges.sort("op", "source"), usual_lag_ns=lag)


def _with_previous(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` plus `prev`, of those before it on its stream the last to end, and the `gap_ns` seen:
    below 0 where the two overlap."""
    ends, one = pl.col("end_ns"), ops["stream_no"].n_unique() == 1
    ended = ends.cum_max() if one else ends.cum_max().over("stream_no")
    ops = ops.with_columns(pl.when(ends >= ended).then("op").alias("prev"))
    last = pl.col("prev").forward_fill().shift(1)
    ops = ops.with_columns(last if one else last.over("stream_no"))
    gap = ops["start_ns"] - ops["end_ns"][ops["prev"]]
    return ops.with_columns(gap.alias("gap_ns"))


def _usual(ops: pl.DataFrame) -> tuple[int, int]:
    """The usual time from a launch to the start on an idle GPU; and from the end of one operation
    to the start of the next that was queued."""
    done = pl.col("start_ns") - pl.col("gap_ns")
    launched = pl.col("launch_start_ns")
    all_done = reached_before(pl.col("end_ns")).over("device_no")
    # before a copy starts the host may have copied for as long as the GPU then does
    at_once = pl.col("kind").is_in(["kernel", "graph"])
    # of the first operation nothing is known: what the GPU did before may not be recorded
    idle = pl.col("first") & at_once & (all_done <= launched)
    queued = at_once & (launched + USUAL_LAG_NS <= done) & (pl.col("gap_ns") >= -OVERLAP_NS)
    lag, gap = ops.select(
        median_ns((pl.col("start_ns") - launched).filter(idle)).alias("lag"),
        median_ns(pl.col("gap_ns").filter(queued)).alias("gap"),
    ).row(0)
    # a report whose clocks differ has operations before their launch
    return max(0, USUAL_LAG_NS if lag is None else lag), max(
        0, USUAL_GAP_NS if gap is None else gap
    )


def _with_lags(edges: pl.DataFrame, ops: pl.DataFrame, gap: int) -> LaggedEdges:
    """`EDGES` of pairs; a source that ended after its operation began is none."""
    seen = ops["start_ns"][edges["op"]] - ops["end_ns"][edges["source"]]
    lag = pl.min_horizontal(pl.lit(gap), pl.lit(seen)).alias("lag_ns")
    return edges.with_columns(lag).filter(seen >= 0).match_to_schema(EDGES)


def _taking_turns(ops: pl.DataFrame) -> pl.DataFrame:
    """Kernels and the kernel before them on another stream, where kernels of the two streams never
    overlap: `op`, `source`."""
    kernels = ops.filter(pl.col("kind") == "kernel", pl.col("length_ns") > 0)
    kernels = kernels[["op", "device_no", "stream_no", "start_ns", "end_ns"]]
    if kernels["stream_no"].n_unique() == kernels["device_no"].n_unique():
        return _PAIRS.to_frame()
    same_device = pl.col("device_no") == pl.col("device_no").shift(1)
    other = same_device & (pl.col("stream_no") != pl.col("stream_no").shift(1))
    met = kernels.with_columns(
        pl.col("op").shift(1).alias("source"), pl.col("stream_no").shift(1).alias("from_no")
    ).filter(other)
    key = [pl.min_horizontal("stream_no", "from_no"), pl.max_horizontal("stream_no", "from_no")]
    met = met.with_columns(pair=pl.struct(key[0].alias("one"), key[1].alias("other")))
    overlaps = pl.concat([_overlapping(kernels, by) for by in ("before", "longest")])
    return met.join(overlaps, on="pair", how="anti")[["op", "source"]]


_PAIRS: Final = pl.Schema({"op": pl.UInt32(), "source": pl.UInt32()})


def _overlapping(kernels: pl.DataFrame, by: str) -> pl.DataFrame:
    """Pairs of streams whose kernels overlap: `pair`. Each kernel is compared with the one before
    it, or with the one that runs longest of those before it."""
    reach = pl.col("end_ns").cum_max().over("device_no")
    longest = pl.when(pl.col("end_ns") == reach).then("stream_no").forward_fill()
    streams = {"before": pl.col("stream_no"), "longest": longest}
    ends = {"before": pl.col("end_ns"), "longest": reach}
    against = kernels.with_columns(
        streams[by].shift(1).over("device_no").alias("from_no"),
        ends[by].shift(1).over("device_no").alias("until_ns"),
    ).filter(pl.col("until_ns") > pl.col("start_ns"), pl.col("from_no") != pl.col("stream_no"))
    lower = pl.min_horizontal("stream_no", "from_no").alias("one")
    other = pl.max_horizontal("stream_no", "from_no").alias("other")
    return against.select(pair=pl.struct(lower, other)).unique()


def _unexplained(ops: pl.DataFrame, edges: LaggedEdges) -> LaggedEdges:
    """`EDGES` of operations that start later after all their bounds than they may, to what ended no
    longer than that before them: they waited for it, though no record says so."""
    late_ns = ops["start_ns"] - _bound(ops, edges)
    late = ops.filter((late_ns > ops["limit_ns"]).fill_null(value=False))
    ended = ops.select("device_no", "end_ns", source="op").sort("end_ns", "source")
    explained = (
        late[["op", "device_no", "start_ns", "limit_ns"]]
        .sort("start_ns")
        .join_asof(
            ended,
            left_on="start_ns",
            right_on="end_ns",
            by="device_no",
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") - pl.col("end_ns") <= pl.col("limit_ns"))
    )
    # of operations that begin together only the earlier in order can be waited for
    explained = explained.drop_nulls("source").filter(pl.col("source") < pl.col("op"))
    lag = (pl.col("start_ns") - pl.col("end_ns")).alias("lag_ns")
    return explained.select("op", "source", lag).match_to_schema(EDGES)


def _bound(ops: pl.DataFrame, edges: LaggedEdges) -> pl.Series:
    """When each operation can start at the earliest, null where nothing bounds it."""
    ends = ops["end_ns"]
    by_stream = ends[ops["prev"]] + ops["gap_ns"]
    return ops.select(
        pl.max_horizontal(
            pl.col("launch_start_ns") + pl.col("lag_ns"),
            pl.lit(by_stream),
            pl.lit(_latest(edges, ends, len(ops))),
        )
    ).to_series()


def _latest(edges: LaggedEdges, ends: pl.Series, count: int) -> pl.Series:
    """Per operation the latest bound of its edges."""
    at = (ends[edges["source"]] + edges["lag_ns"]).alias("at")
    latest = edges.with_columns(at).group_by("op").agg(pl.col("at").max())
    bound = repeated(None, count, pl.Int64)
    return bound.scatter(latest["op"], latest["at"])


def _exact(ops: pl.DataFrame, edges: LaggedEdges) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The bounds, the one that is reached last of each operation made exact."""
    ends = ops["end_ns"]
    by_edge = _latest(edges, ends, len(ops))
    bound = _bound(ops, edges)
    missing = (ops["start_ns"] - bound).alias("missing")
    by_stream = ends[ops["prev"]] + ops["gap_ns"]
    on_edge = (by_edge == bound).fill_null(value=False)
    on_stream = (by_stream == bound).fill_null(value=False) & ~on_edge
    on_launch = ~on_edge & ~on_stream
    at = ends[edges["source"]] + edges["lag_ns"]
    binding = (at == bound[edges["op"]]).fill_null(value=False)
    more = missing[edges["op"]]
    ops = ops.with_columns(
        pl.when(on_launch).then(pl.col("lag_ns") + missing).otherwise("lag_ns").alias("lag_ns"),
        pl.when(on_stream).then(pl.col("gap_ns") + missing).otherwise("gap_ns").alias("gap_ns"),
    )
    lag = pl.when(binding).then(pl.col("lag_ns") + more).otherwise("lag_ns").alias("lag_ns")
    return ops, edges.with_columns(lag)
