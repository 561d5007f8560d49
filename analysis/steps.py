"""Training steps on each device (spec §8): which range is one, where it runs, what it held."""

import polars as pl

from nsysflow.analysis.accounting import Busy
from nsysflow.analysis.attribution import Attribution
from nsysflow.analysis.intervals import Axis, last_at_or_before
from nsysflow.analysis.keys import os_pid
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.range_names import uncounted
from nsysflow.analysis.schema import CAUSES, STEPS
from nsysflow.errors import SelectionError
from nsysflow.handshake import STEP

MIN_REPEATS = 3
SKIPPED_BY_DEFAULT = 2


def step_paths(
    attribution: Attribution,
    work: pl.DataFrame,
    name: str | None,
    *,
    captures: pl.DataFrame,
    report: str,
) -> pl.DataFrame:
    """The paths (`process`, `path`, `joined`) whose instances are the steps; none where nothing
    repeats.

    Args:
        attribution: nodes and paths.
        work: of `phases.phase_work`.
        captures: the trace's; in a process that captured a window of its steps, a range `step` is
            one however few they are.
        name: what `--step` names, a range's name or a joined path; None finds each process's
            outermost range that repeats and holds most GPU time. PyTorch's operators are no steps.
        report: for the message.

    Raises:
        SelectionError: no range is called `name`.
    """
    if name is not None:
        return paths_named(attribution, name, report)
    ours = pl.col("process").is_in(captures["process"].implode()) & (pl.col("name") == STEP)
    # What repeats inside another that does holds no more GPU time than that, and is deeper.
    best = (
        work.join(attribution.paths.select("path", "name"), on="path")
        .filter((pl.col("instances") >= MIN_REPEATS) | ours, pl.col("ops") > 0)
        .join(_named_by_hand(attribution), on=["process", "path"], how="semi")
        .sort("process", "busy_ns", "depth", "joined", descending=[False, True, False, False])
        .unique("process", keep="first", maintain_order=True)
    )
    return _paths(attribution).join(best, on=["process", "path"], how="semi")


def _named_by_hand(attribution: Attribution) -> pl.DataFrame:
    """(`process`, `path`) of all ranges but those that PyTorch opened around an operator."""
    operator = attribution.ranges["operator"].gather(attribution.nodes["range"])
    return attribution.nodes.filter(~operator).select("process", "path").unique()


def paths_named(attribution: Attribution, name: str, report: str) -> pl.DataFrame:
    """(`process`, `path`, `joined`) of the ranges called `name`: by their own name, or by their
    whole path.

    Raises:
        SelectionError: there is none.
    """
    paths = _paths(attribution)
    found = paths.filter(_is_called(pl.lit(name)))
    if not found.is_empty():
        return found
    kind = pl.select(uncounted(pl.lit(name))).item()
    if not paths.filter(_is_called(pl.lit(kind, pl.String))).is_empty():
        msg = (
            f"no range {name!r} in {report}: all of its kind are {kind!r} there, without numbers."
            f" Ask for {kind!r}; --steps picks steps by their place, counted from 0."
        )
        raise SelectionError(msg)
    names = attribution.paths["name"].unique(maintain_order=True).head(8).to_list()
    known = ", ".join(names) or "none, it holds no NVTX ranges"
    msg = f"no range {name!r} in {report}. Ranges there: {known}."
    raise SelectionError(msg)


def _is_called(name: pl.Expr) -> pl.Expr:
    """By its own name, or by its whole path."""
    return (pl.col("joined") == name) | (pl.col("name") == name)


def _paths(attribution: Attribution) -> pl.DataFrame:
    """Every path of every process."""
    seen = attribution.nodes.select("process", "path").unique(maintain_order=True)
    names = attribution.paths.select("path", "name", "joined")
    return seen.join(names, on="path", maintain_order="left")


def find_steps(attribution: Attribution, paths: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Where each step ran: `process`, `device`, `device_no`, `step`, `range`, `start_ns`, `end_ns`,
    `cut` (the capture ended before its range did).

    Args:
        attribution: nodes and paths.
        paths: of `step_paths`.
        ops: operations with `node`.
    """
    members = attribution.within(paths)
    key = ["process", "device", "device_no"]
    ranges = attribution.ranges.select(
        "range", "ended", "row", pl.col("start_ns").alias("begun_ns")
    )
    spans = (
        ops.select(*key, "node", "start_ns", "end_ns")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .join(members, on="node")
        .group_by(*key, "range")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max().alias("last_ns"))
        .join(ranges, on="range")
        .sort(*key, "start_ns", "begun_ns", "row")
    )
    following = pl.col("start_ns").shift(-1).over(key)
    return spans.select(
        *key,
        pl.int_range(pl.len(), dtype=pl.Int64).over(key).alias("step"),
        "range",
        "start_ns",
        pl.coalesce(following, "last_ns").alias("end_ns"),
        (~pl.col("ended") & following.is_null()).alias("cut"),
    )


def step_of_gaps(steps: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> pl.Series:
    """The step that holds each gap's start, of the process that launched what ended the gap."""
    key = ["process", "device_no"]
    pairs = steps.select(key).unique().with_row_index("pair")
    place = axis.at(pl.col("pair"), pl.col("start_ns")).alias("start")
    length = pl.col("end_ns") - pl.col("start_ns")
    laid = (
        steps.join(pairs, on=key)
        .select("step", place, (place + length).alias("end"))
        .sort("start", maintain_order=True)
    )
    asked = gaps.select(*key, "start_ns").join(pairs, on=key, how="left", maintain_order="left")
    starts = asked.select(place).to_series()
    at = last_at_or_before(laid["start"], starts)
    inside = starts < laid["end"].gather(at)
    return pl.select(pl.when(inside).then(laid["step"].gather(at)).alias("step")).to_series()


def _idle_in(steps: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Per step the causes of the gaps that start in it: differences of running sums."""
    causes = pl.col([f"{cause}_ns" for cause in CAUSES])
    place = axis.at(pl.col("device_no"), pl.col("start_ns"))
    starts = gaps.select(place).to_series()
    zero = gaps.select(causes).clear(1).fill_null(0)
    sums = pl.concat([zero, gaps.select(causes.cum_sum())])
    begin = steps.select(place.alias("place"))["place"]
    first = starts.search_sorted(begin)
    past = starts.search_sorted(begin + (steps["end_ns"] - steps["start_ns"]))
    return pl.DataFrame(
        [(sums[name].gather(past) - sums[name].gather(first)) for name in sums.columns]
    )


def step_table(
    prepared: Prepared, steps: pl.DataFrame, gaps: pl.DataFrame, busy: Busy, *, skip: int | None
) -> pl.DataFrame:
    """The `STEPS` table, without `report`.

    Args:
        prepared: the trace.
        steps: of `find_steps`.
        gaps: all gaps with causes, whoever's work ended them.
        busy: the devices' busy time.
        skip: leading steps that are never steady; None takes the default: none of a process that
            captured a window of its steps, which leaves the first ones out.
    """
    causes = [f"{cause}_ns" for cause in CAUSES]
    parts = busy.parts(steps, prepared.axis).drop("window_ns", "idle_ns")
    whole = pl.col("end_ns") - pl.col("start_ns")
    settled = 100 * pl.col("module_load_ns") <= whole
    captured = pl.col("process").is_in(prepared.trace.captures["process"].implode())
    by_default = pl.when(captured).then(0).otherwise(SKIPPED_BY_DEFAULT)
    kept = pl.col("step") >= (by_default if skip is None else skip)
    return (
        steps.hstack(parts.get_columns())
        .hstack(_idle_in(steps, gaps, prepared.axis).get_columns())
        .with_columns(
            whole.alias("duration_ns"),
            pl.sum_horizontal(causes).alias("idle_ns"),
            (kept & settled & ~pl.col("cut")).alias("steady"),
            os_pid(pl.col("process")).alias("process"),
        )
        .sort("process", "device", "step")
        .select([name for name in STEPS if name != "report"])
    )
