"""Kernels on several streams, of which only one at a time has work.

* `streams-in-turn`: each stream waits for the one before it, though the chip has room for both.
"""

from collections.abc import Iterator
from typing import Final, Literal

import polars as pl

from nsysflow.analysis.events.producers import OVERLAP_NS, Edges
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.gpus import waves
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.rules.occupancy import MOST_WAVES, SMALL_PCT
from nsysflow.base.units import duration, percent

QUEUED_NS: Final = 5_000
"""A kernel launched so long before the stream ahead is done waits for that. Otherwise it is the
host that is late (as in the replay, spec §14.7)."""

ROOM_PCT: Final = 50.0
"""So much of the streams' time must be of kernels that leave half of the SMs empty. With less, the
chip is full for most of it, and another stream's kernels find no room."""

MOST_NAMED: Final = 4
"""So many streams are named by their time."""

CHANGE: Final = (
    "if the streams do not need each other's results: start all of them, then wait for all",
    "or one kernel for all: the tensors of several calls stacked into one",
)


def streams_in_turn(subject: JudgedReport) -> Iterator[Finding]:
    """Streams that another one waits for together, and that run one after the other before that.

    What they need of each other no trace tells. If it is nothing, they take at least as long as the
    one with most kernel time. Four encoders with 8.9 ms of kernels, 4.3 of them on one stream, took
    10.7 ms a step in turn and 7.2 ms beside each other (H200, 2026-11-28).
    """
    rows = _with_gain(_in_turn(subject))
    gain_ns, whole_ns = (int(some.sum()) for some in (rows["gain_ns"], subject.kernels["ns"]))
    if rows.is_empty() or 100 * gain_ns < SMALL_PCT * whole_ns:
        return
    of_device = pl.col("gain_ns").sum().over("device")
    here = rows.filter(of_device == of_device.max())
    streams = here.group_by("lane").agg(pl.col("ns").sum()).sort("ns", descending=True)["ns"]
    times = [duration(subject.per_step(ns)) for ns in streams[:MOST_NAMED]]
    more = ", …" if len(streams) > MOST_NAMED else ""
    room = 100 * int(rows.filter("room")["ns"].sum()) / int(rows["ns"].sum())
    yield kernel_finding(
        subject,
        rows,
        rule="streams-in-turn",
        title=f"{len(streams)} streams, each waiting for the one before:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            f"the streams compute for {', '.join(times)}{more}{subject.a_step}, one after the"
            " other; each was launched before the one ahead was done",
            "beside each other they take at least as long as the longest: the others take"
            f" {subject.spent(subject.worst_ns(rows, 'gain_ns'))}",
            f"{percent(room)} of that time is of kernels with less than half a block per SM: the"
            " chip has room for two",
        ),
    )


def _with_gain(rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels of each `group` that leaves room, plus `gain_ns`: what the group takes beyond its
    longest stream, shared among its kernels by their time."""
    streams = rows.group_by("group", "lane").agg(
        pl.col("ns").sum(), pl.col("ns").filter("room").sum().alias("room_ns")
    )
    groups = streams.group_by("group").agg(
        (pl.col("ns").max() / pl.col("ns").sum()).alias("left"),
        (100 * pl.col("room_ns").sum() >= ROOM_PCT * pl.col("ns").sum()).alias("fits"),
    )
    gain = (pl.col("ns") * (1 - pl.col("left"))).round().cast(pl.Int64).alias("gain_ns")
    return rows.join(groups.filter("fits"), on="group", maintain_order="left").with_columns(gain)


def _in_turn(subject: JudgedReport) -> pl.DataFrame:
    """Kernels of streams in turn, rows of `subject.kernels`, plus `group` (of the streams that may
    run beside each other) and `room` (whether half of the SMs are empty while it runs)."""
    kernels, edges = subject.kernels, subject.timeline.event_waits.edges
    if int(kernels["lane"].n_unique()) < 3 or edges.is_empty():
        return kernels.clear().with_columns(group=pl.lit(0), room=pl.lit(value=False))
    events = subject.timeline.events
    kernels = kernels.filter(~pl.col("class").is_in(["comm", "gemm+comm"]))
    kernels = kernels.with_columns(
        *events.ops[["end_ns", "launch_end_ns", "device_no"]][kernels["op"]].get_columns(),
        events.stream_no[kernels["op"]].alias("stream_no"),
        (waves(subject, kernels) < MOST_WAVES).fill_null(value=False).alias("room"),
    ).sort("device_no", "start_ns", maintain_order=True)
    kernels = kernels.with_columns(pl.col("stream_no").rle_id().alias("turn"))
    turns = kernels.group_by("turn", maintain_order=True).agg(
        pl.col("device_no", "stream_no", "start_ns", "launch_end_ns").first(),
        pl.col("end_ns").max(),
    )
    beside = _beside(turns, _awaited(turns, edges, subject))
    group = turns.select("turn", (~beside).cum_sum().alias("group"))
    kernels = kernels.join(group, on="turn", maintain_order="left")
    return kernels.filter(pl.col("turn").n_unique().over("group") > 1)


def _awaited(turns: pl.DataFrame, edges: Edges, subject: JudgedReport) -> pl.DataFrame:
    """`turn` and `awaited`: each turn with those of other streams of its GPU that it was told to
    wait for."""
    events = subject.timeline.events
    times, stream_no = events.ops[["start_ns", "end_ns", "device_no"]], events.stream_no
    edges = edges.join(subject.view.ops[["op"]], on="op", how="semi")
    both = edges.select(
        to=stream_no[edges["op"]],
        of=stream_no[edges["source"]],
        at_ns=times["start_ns"][edges["op"]],
        until_ns=times["end_ns"][edges["source"]],
        same=times["device_no"][edges["op"]] == times["device_no"][edges["source"]],
    ).filter(pl.col("to") != pl.col("of"), "same")
    # a wait or an event may be at a copy, before the first kernel of a turn or behind its last one
    both = _with_turn(both, turns, "awaited", stream="of", at="until_ns", edge="start_ns")
    both = _with_turn(both, turns, "turn", stream="to", at="at_ns", edge="end_ns")
    pairs = both.select("turn", "awaited").drop_nulls().unique()
    return pairs.filter(pl.col("awaited") < pl.col("turn"))


def _with_turn(
    waits: pl.DataFrame,
    turns: pl.DataFrame,
    name: str,
    *,
    stream: str,
    at: str,
    edge: Literal["start_ns", "end_ns"],
) -> pl.DataFrame:
    """`waits` plus the turn of a stream that had begun last at a time, or that ends first after it,
    as `name`.

    Args:
        waits: with the columns `stream` and `at`.
        turns: with `turn`, `stream_no`, `start_ns` and `end_ns`.
        name: of the new column.
        stream: the column of the stream.
        at: the column of the time.
        edge: where turns are met.
    """
    known = turns.select(
        pl.col("stream_no").alias(stream), pl.col(edge).alias(at), pl.col("turn").alias(name)
    ).sort(at)
    side: Literal["backward", "forward"] = "backward" if edge == "start_ns" else "forward"
    return waits.sort(at).join_asof(known, on=at, by=stream, strategy=side, check_sortedness=False)


def _beside(turns: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Whether each turn could run beside the one before it: both are awaited by one that follows
    with nothing between, it was not told to wait for any of these, and it was launched while the
    one before it ran."""
    pairs = pairs.sort("turn", "awaited", descending=[False, True])
    nth = pl.int_range(1, pl.len() + 1).over("turn")
    joined = pairs.filter(pl.col("awaited").cast(pl.Int64) + nth == pl.col("turn"))
    joined = joined.with_columns(pl.col("awaited").min().over("turn").alias("first"))
    own = pairs.group_by("turn").agg(pl.col("awaited").max().alias("latest"))
    joined = joined.join(own, left_on="awaited", right_on="turn", how="left")
    free = joined.filter(
        pl.col("awaited") > pl.col("first"),
        (pl.col("latest") < pl.col("first")).fill_null(value=True),
    )
    end_ns = pl.col("end_ns").shift(1)
    return (
        turns.select(
            pl.col("turn").is_in(free["awaited"].unique().implode())
            & (pl.col("start_ns") >= end_ns - OVERLAP_NS)
            & (pl.col("launch_end_ns") + QUEUED_NS <= end_ns)
        )
        .to_series()
        .fill_null(value=False)
    )
