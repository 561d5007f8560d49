"""Which range is a step, and when each step ran on each device (spec §8)."""

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, last_at_or_before
from nsysflow.analysis.phases.attribution import Attribution
from nsysflow.analysis.phases.numbers import without_numbers
from nsysflow.errors import SelectionError
from nsysflow.nearest import near_or_all
from nsysflow.runtime.protocol import STEP

MIN_REPEATS = 3


def step_paths(
    attribution: Attribution,
    work: pl.DataFrame,
    name: str | None,
    *,
    captures: pl.DataFrame,
    report: str,
) -> pl.DataFrame:
    """The paths whose instances are steps: `process`, `path`, `joined`; none if no range repeats.

    Args:
        attribution: nodes and paths.
        work: of `phases.phase_work`.
        captures: of the trace. In a process that captured a window of its steps, the range `step`
            is a step even if it repeats less than 3 times.
        name: the name or joined path given with `--step`. None takes each process's outermost range
            that repeats and has the most GPU time, without operators and compiling.
        report: for the message.

    Raises:
        SelectionError: no range is called `name`.
    """
    if name is not None:
        return paths_named(attribution, name, report)
    ours = pl.col("process").is_in(captures["process"].implode()) & (pl.col("name") == STEP)
    # a range that repeats inside another one has no more GPU time, and is deeper
    best = (
        work.join(attribution.paths.select("path", "name"), on="path")
        .filter((pl.col("instances") >= MIN_REPEATS) | ours, pl.col("ops") > 0)
        .join(_named_by_hand(attribution), on=["process", "path"], how="semi")
        .sort("process", "busy_ns", "depth", "joined", descending=[False, True, False, False])
        .unique("process", keep="first", maintain_order=True)
    )
    return _paths(attribution).join(best, on=["process", "path"], how="semi")


def _named_by_hand(attribution: Attribution) -> pl.DataFrame:
    """`process`, `path` of all ranges except those around an operator or compiling."""
    ranges = attribution.ranges
    other = (ranges["operator"] | ranges["compiling"]).gather(attribution.nodes["range"])
    return attribution.nodes.filter(~other).select("process", "path").unique()


def paths_named(attribution: Attribution, name: str, report: str) -> pl.DataFrame:
    """`process`, `path`, `joined` of the ranges called `name`: by their own name or whole path.

    Raises:
        SelectionError: the report has no range of that name.
    """
    paths = _paths(attribution)
    found = paths.filter(_is_called(pl.lit(name)))
    if not found.is_empty():
        return found
    kind = without_numbers(name)
    if not paths.filter(_is_called(pl.lit(kind))).is_empty():
        raise SelectionError(
            f"no range {name!r} in {report}: all of its kind are {kind!r} there, without numbers",
            f"Ask for {kind!r}; --steps picks steps by their place, counted from 0",
        )
    names = paths["joined" if "/" in name else "name"].to_list()
    raise SelectionError(
        f"no range {name!r} in {report}",
        near_or_all(name, names, where="--table phases") or "It holds no NVTX ranges",
    )


def _is_called(name: pl.Expr) -> pl.Expr:
    """By its own name, or by its whole path."""
    return (pl.col("joined") == name) | (pl.col("name") == name)


def _paths(attribution: Attribution) -> pl.DataFrame:
    """Every path of every process."""
    seen = attribution.nodes.select("process", "path").unique(maintain_order=True)
    names = attribution.paths.select("path", "name", "joined")
    return seen.join(names, on="path", maintain_order="left")


def find_steps(attribution: Attribution, paths: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """When each step ran on each device.

    Returns:
        `process`, `device`, `device_no`, `step`, `range`, `start_ns`, `end_ns`, `begun_ns` and
        `done_ns` (when the host was in its range), and `cut`: whether the recording ended before
        that range did. In order, each process and device together.

    Args:
        attribution: nodes and paths.
        paths: of `step_paths`.
        ops: operations with `node`.
    """
    members = attribution.within(paths)
    key = ["process", "device", "device_no"]
    ranges = attribution.ranges.select(
        "range",
        "ended",
        "row",
        pl.col("start_ns").alias("begun_ns"),
        pl.col("end_ns").alias("done_ns"),
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
        "begun_ns",
        "done_ns",
        (~pl.col("ended") & following.is_null()).alias("cut"),
    )


def step_of_gaps(steps: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The `step` in which each gap starts, of the process whose launch ended the gap, and whether
    that step is `steady`; null and false outside steps."""
    key = ["process", "device_no"]
    pairs = steps.select(key).unique().with_row_index("pair")
    place = axis.at(pl.col("pair"), pl.col("start_ns")).alias("start")
    length = pl.col("end_ns") - pl.col("start_ns")
    laid = (
        steps.join(pairs, on=key)
        .select("step", "steady", place, (place + length).alias("end"))
        .sort("start", maintain_order=True)
    )
    asked = gaps.select(*key, "start_ns").join(pairs, on=key, how="left", maintain_order="left")
    starts = asked.select(place).to_series()
    at = last_at_or_before(laid["start"], starts)
    inside = (starts < laid["end"].gather(at)).fill_null(value=False)
    return pl.select(
        pl.when(inside).then(laid["step"].gather(at)).alias("step"),
        (inside & laid["steady"].gather(at)).fill_null(value=False).alias("steady"),
    )
