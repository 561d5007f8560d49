"""Gaps as people read them: one row each, summed by where and why, and by length."""

from typing import Final

import polars as pl

from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.causes import CULPRIT_CAUSES
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.rounding import percent, whole_ns
from nsysflow.analysis.schema import CAUSE, CAUSES, GAP_HISTOGRAM, GAP_SUMMARY, GAPS

OUTSIDE: Final = "(outside ranges)"
"""Where the host was when no range was open."""

LENGTHS: Final = (
    (2_000, "< 2 us"),
    (5_000, "< 5 us"),
    (20_000, "< 20 us"),
    (100_000, "< 100 us"),
    (1_000_000, "< 1 ms"),
    (10_000_000, "< 10 ms"),
    (100_000_000, "< 100 ms"),
)
"""Upper borders of the histogram's classes; the last class is `longer`."""


def host_questions(gaps: pl.DataFrame) -> pl.DataFrame:
    """Where each gap asks what the host was doing: the middle of the time before its launch began;
    `thread_no` is null where the launch had begun before the gap."""
    asked = pl.col("next_start_ns") > pl.col("start_ns")
    last = pl.min_horizontal("next_start_ns", "end_ns")
    middle = pl.col("start_ns") + (last - pl.col("start_ns")) // 2  # the sum passes 2**63
    return gaps.select(pl.when(asked).then("next_no").alias("thread_no"), middle.alias("time_ns"))


def gap_table(prepared: Prepared, attribution: Attribution, gaps: pl.DataFrame) -> pl.DataFrame:
    """The `GAPS` table, without `report`, of the gaps given (with `node`, `host_node`, `step`)."""
    ops = prepared.ops
    dominant = pl.col("cause")
    culprit = pl.coalesce(
        pl.when(dominant == cause).then(f"{cause}_by")
        for cause in CULPRIT_CAUSES
        if cause != "profiler"
    )
    rows = gaps.select(
        culprit.alias("call"), pl.when(dominant == "profiler").then("profiler_by").alias("overhead")
    )
    return gaps.select(
        ops["device"].gather(gaps["next_op"]),
        pl.col("number").alias("gap"),
        "step",
        "start_ns",
        "end_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        "cause",
        _names(prepared, rows).alias("culprit"),
        _sources(prepared, rows["call"], gaps["next_call"]).cast(pl.String).alias("source"),
        attribution.name_of(gaps["node"]).alias("phase"),
        attribution.name_of(gaps["host_node"]).alias("host_range"),
        ops["short_name"].gather(gaps["prev_op"]).cast(pl.String).alias("prev_op"),
        ops["short_name"].gather(gaps["next_op"]).cast(pl.String).alias("next_op"),
        *(f"{cause}_ns" for cause in CAUSES),
    ).select([name for name in GAPS if name != "report"])


def _names(prepared: Prepared, rows: pl.DataFrame) -> pl.Series:
    """Names of `call` or `overhead` rows; empty where there is neither."""
    call = prepared.calls["name"].gather(rows["call"]).cast(pl.String)
    if rows["overhead"].null_count() == len(rows):
        return call.fill_null("")
    overhead = prepared.overhead["name"].gather(rows["overhead"]).cast(pl.String)
    return pl.select(pl.coalesce(call, overhead, pl.lit(""))).to_series()


def _sources(prepared: Prepared, culprit: pl.Series, launch: pl.Series) -> pl.Series:
    """The source lines of the culprits, or else of the launches, both rows of the calls."""
    call = pl.select(pl.coalesce(culprit, launch)).to_series()
    return prepared.calls["source"].gather(call).alias("source")


def gap_summary(
    prepared: Prepared,
    attribution: Attribution,
    gaps: pl.DataFrame,
    steps: pl.DataFrame,
    windows: pl.DataFrame,
) -> pl.DataFrame:
    """The `GAP_SUMMARY` table, without `report`, in a stable order.

    Args:
        prepared: the trace.
        attribution: nodes and paths.
        gaps: with causes, `node`, `host_node`, `asked` (the host was) and `step`.
        steps: the steps looked at, for the means.
        windows: what is looked at, for the shares.
    """
    gaps, places = _with_place(attribution, gaps)
    groups = pl.concat([_parts(prepared, gaps, cause) for cause in CAUSES])
    groups = groups.join(places, on="place")
    phase, host = (attribution.paths["joined"].gather(groups[c]) for c in ("phase", "host"))
    asked = pl.when("asked").then(pl.lit(host).fill_null(OUTSIDE)).otherwise(pl.lit(""))
    groups = groups.with_columns(phase.fill_null("").alias("phase"), asked.alias("host_range"))
    counted = steps.group_by("device_no").agg(pl.len().alias("steps"))
    window = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("window_ns")
    devices = prepared.ops.select("device_no", "device").unique("device_no")
    return (
        groups.join(counted, on="device_no", how="left")
        .join(windows.group_by("device_no").agg(window), on="device_no")
        .join(devices, on="device_no")
        .with_columns(
            whole_ns(pl.col("total_ns") / pl.col("gaps")).alias("mean_ns"),
            pl.when(pl.col("steps") > 0)
            .then(whole_ns(pl.col("in_steps_ns") / pl.col("steps")))
            .alias("per_step_ns"),
            percent(pl.col("total_ns"), pl.col("window_ns")).alias("window_pct"),
        )
        .sort("device", "phase", "host_range", "cause", "culprit", "source")
        .select([name for name in GAP_SUMMARY if name != "report"])
    )


def _with_place(attribution: Attribution, gaps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`gaps` with `place`, one number for `device_no`, `phase`, `host` and `asked`; and those by
    `place`: grouping by one number costs a third of grouping by four columns."""
    base = len(attribution.paths) + 1
    phase, host = (attribution.path_of(gaps[c]) for c in ("node", "host_node"))
    named = gaps.select("device_no", "asked").with_columns(phase.alias("phase"), host.alias("host"))
    number = pl.col("device_no").cast(pl.Int64)
    for column in ("phase", "host"):
        number = number * base + pl.col(column).fill_null(base - 1)
    named = named.with_columns((number * 2 + pl.col("asked")).alias("place"))
    return gaps.with_columns(named["place"]), named.unique("place")


def _parts(prepared: Prepared, gaps: pl.DataFrame, cause: str) -> pl.DataFrame:
    """The parts of gaps that one cause takes, grouped by where and by whom."""
    ns = pl.col(f"{cause}_ns")
    by = [f"{cause}_by"] if cause in CULPRIT_CAUSES else []
    parts = gaps.select("place", "step", "next_call", f"{cause}_ns", *by).filter(ns > 0)
    nobody = pl.repeat(None, len(parts), dtype=pl.UInt32, eager=True)
    culprit = parts[f"{cause}_by"] if by else nobody
    names = prepared.overhead["name"] if cause == "profiler" else prepared.calls["name"]
    call = nobody if cause == "profiler" else culprit
    parts = parts.with_columns(
        names.gather(culprit).alias("culprit"), _sources(prepared, call, parts["next_call"])
    )
    # most reports have no backtraces, and need no further column to group by
    lines = ["source"] if parts["source"].null_count() < len(parts) else []
    return (
        parts.group_by("place", "culprit", *lines)
        .agg(
            pl.len().cast(pl.Int64).alias("gaps"),
            ns.sum().alias("total_ns"),
            ns.max().alias("max_ns"),
            ns.filter(pl.col("step").is_not_null()).sum().alias("in_steps_ns"),
        )
        .select(
            "place",
            *("gaps", "total_ns", "max_ns", "in_steps_ns"),
            pl.col("culprit").cast(pl.String).fill_null(""),
            (pl.col("source") if lines else pl.lit(None)).cast(pl.String).alias("source"),
            pl.lit(cause, CAUSE).alias("cause"),
        )
    )


def gap_histogram(prepared: Prepared, gaps: pl.DataFrame) -> pl.DataFrame:
    """The `GAP_HISTOGRAM` table, without `report`: device, length, dominant cause."""
    ns = pl.col("end_ns") - pl.col("start_ns")
    labels = [label for _, label in LENGTHS] + ["longer"]
    length_class = pl.sum_horizontal((ns >= border).cast(pl.UInt8) for border, _ in LENGTHS)
    devices = prepared.ops.select("device_no", "device").unique("device_no")
    groups = (
        gaps.group_by("device_no", length_class.alias("length"), "cause")
        .agg(pl.len().cast(pl.Int64).alias("gaps"), ns.sum().alias("idle_ns"))
        .join(devices, on="device_no")
        .sort("device", "length", "cause")
    )
    named = pl.Series("length", labels).gather(groups["length"])
    return groups.with_columns(named).select([name for name in GAP_HISTOGRAM if name != "report"])
