"""Which range is a step, and when each step ran on each device (spec §8)."""

import re
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.columns import distinct, number_in, repeated
from nsysflow.analysis.frames.intervals import Axis, last_at_or_before, merge, on_axis
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.phases.automatic import is_automatic, is_step, step_at
from nsysflow.analysis.phases.engine_steps import ENGINE_STEP
from nsysflow.analysis.phases.names import STEPS_OF_FRAMEWORKS, without_numbers
from nsysflow.analysis.phases.stacks import PhaseRanges
from nsysflow.analysis.phases.work import Work
from nsysflow.base.errors import SelectionError, near_or_all
from nsysflow.runtime.protocol import STEP

MIN_REPEATS = 3

LEAST_WORK: Final = 100
"""Of the kernel time from their begin on, steps hold a hundredth or more: copies of weights do not.
A loop of six steps that others followed held 5 %. Before them, tuning may take any time."""

STEP_PATHS: Final = pl.Schema(
    {"process": pl.Int64(), "path": pl.UInt32(), "name": pl.String(), "joined": pl.String()}
)
"""The paths whose instances are steps. Automatic steps have no path (null) and are called `step`.
"""
StepPaths = Annotated[pl.DataFrame, STEP_PATHS]

STEP_BOUNDS: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "device_no": pl.UInt32(),
        "loop": pl.UInt32(),
        "step": pl.Int64(),
        "range": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "begun_ns": pl.Int64(),
        "done_ns": pl.Int64(),
        "cut": pl.Boolean(),
        "tail_missing": pl.Boolean(),
    }
)
"""A row per device and step, or instance of another loop, in order, each process and device
together. The host was in its range from `begun_ns` to `done_ns`; of a `cut` one, the recording
ended before that range did. Where none of its loop follows, it ends with its last operation, and
its tail may be missing."""
StepBounds = Annotated[pl.DataFrame, STEP_BOUNDS]

STEP_TIMES: Final = pl.Schema({**STEP_BOUNDS, "mostly_outside": pl.Boolean()})
"""Step bounds, and whether the loop launches most outside its ranges: its last instance lacks most
of its round."""
StepTimes = Annotated[pl.DataFrame, STEP_TIMES]


def step_paths(
    attribution: Attribution,
    work: Work,
    name: str | None,
    *,
    captures: pl.DataFrame,
    ops: pl.DataFrame,
    axis: Axis,
    report: str,
) -> StepPaths:
    """The paths whose instances are steps; none if no range repeats and holds work.

    Args:
        attribution: nodes and paths.
        work: what each path did.
        captures: of the trace. In a process that captured a window of its steps, the range `step`
            is a step even if it repeats less than 3 times. So are the steps of frameworks.
        name: the name or joined path given with `--step`; of inferred steps, none is found where
            ranges give none. None takes each process's outermost range
            that repeats and has the most GPU time, without operators, compiling and automatic
            ranges; or the automatic steps, unless one begins in it and it has most of the GPU time;
            but the steps of a serving engine where they have most of it.
        ops: all operations, with `node`.
        axis: of the operations.
        report: for the message.

    Raises:
        SelectionError: no range is called `name`.
    """
    if name is not None and not _may_be_inferred(attribution, name):
        return paths_named(attribution, name, report)
    engines = _of_engines(attribution, work, ops, axis)
    automatic, named = _automatic(attribution), paths_by_hand(attribution)
    if not automatic.is_empty():
        busy = _busy_of_processes(ops.join(automatic, on="process", how="semi"), axis)
        overruled = _overruled(attribution, work, busy, automatic)
        named = named.join(overruled, on=["process", "path"], how="anti")
    ours = pl.col("process").is_in(captures["process"].implode()) & (pl.col("name") == STEP)
    called = (ours | pl.col("name").is_in(STEPS_OF_FRAMEWORKS)).alias("called")
    known = (
        work.join(attribution.paths[["path", "name"]], on="path")
        .with_columns(called)
        .filter((pl.col("instances") >= MIN_REPEATS) | pl.col("called"), pl.col("ops") > 0)
        .join(named, on=["process", "path"], how="semi")
        .join(engines, on="process", how="anti")
    )
    # a range that repeats inside another one has no more GPU time, and is deeper
    best = (
        pl.concat([known.filter("called"), _holding_work(known.filter(~called), attribution, ops)])
        .sort("process", "busy_ns", "depth", "joined", descending=[False, True, False, False])
        .unique("process", keep="first", maintain_order=True)
    )
    own = _paths(attribution).join(best, on=["process", "path"], how="semi")
    own = pl.concat([engines, own])
    paths = pl.concat([own, automatic.join(own, on="process", how="anti")])
    if name is not None and not paths.is_empty():
        return paths_named(attribution, name, report)
    return paths.sort("process", maintain_order=True)


def _holding_work(known: pl.DataFrame, attribution: Attribution, ops: pl.DataFrame) -> pl.DataFrame:
    """Those of the paths `known` that hold enough of the kernel time that follows their begin."""
    if known.is_empty():
        return known
    key = ["process", "path"]
    placed = ops.lazy().group_by("node").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    spans = placed.drop_nulls("node").collect()
    spans = spans.hstack(attribution.nodes[key][spans["node"]]).drop("node")
    spans = pl.concat([spans.clear(), *attribution.levels(spans)])
    spans = spans.group_by(key).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    held = [known.clear()]
    kernels = (
        ops.lazy()
        .filter(pl.col("kind").is_in(["kernel", "graph"]))
        .select("process", "start_ns", ns=pl.col("end_ns") - pl.col("start_ns"))
    )
    for (process,), mine in known.group_by("process", maintain_order=True):
        span = mine[key].join(spans, on=key, how="left", maintain_order="left")
        ran = kernels.filter(pl.col("process") == process).sort("start_ns").collect()
        sums = pl.concat([pl.Series("ns", [0]), ran["ns"].cum_sum()])
        begun, ended = (
            sums[ran["start_ns"].search_sorted(span[time], side="left")]
            for time in ("start_ns", "end_ns")
        )
        held.append(mine.filter(LEAST_WORK * (ended - begun) >= sums[-1] - begun))
    return pl.concat(held)


def _of_engines(attribution: Attribution, work: Work, ops: pl.DataFrame, axis: Axis) -> StepPaths:
    """The paths of the steps of serving engines, as far as they launched operations; but not in a
    process that mostly does something else, such as training on what an engine generates."""
    paths = _paths(attribution).filter(pl.col("name") == ENGINE_STEP)
    if paths.is_empty():
        return paths
    working = work.filter(pl.col("ops") > 0).join(paths, on=["process", "path"], how="semi")
    busy = _busy_of_processes(ops.join(working, on="process", how="semi"), axis)
    serving = working.join(busy, on="process").filter(
        (2 * pl.col("busy_ns") > pl.col("of_process")).any().over("process")
    )
    return paths.join(serving, on=["process", "path"], how="semi", maintain_order="left")


def _automatic(attribution: Attribution) -> StepPaths:
    """The automatic steps, and the inferred ones."""
    steps = attribution.ranges.filter(is_step()).select("process", "name").unique()
    no_path, name = pl.lit(None, pl.UInt32).alias("path"), pl.col("name").cast(pl.String)
    return steps.sort("process", "name").select("process", no_path, name, name.alias("joined"))


def _overruled(
    attribution: Attribution, work: Work, busy: pl.DataFrame, automatic: pl.DataFrame
) -> pl.DataFrame:
    """`process`, `path` of the ranges that automatic steps overrule."""
    begun = attribution.placed["steps"].drop_nulls("node")
    rows = attribution.nodes[["process", "path"]][begun["node"]]
    holding = pl.concat([rows.clear(), *attribution.levels(rows)]).unique()
    most = (
        work[["process", "path", "busy_ns"]]
        .join(busy, on="process")
        .filter(2 * pl.col("busy_ns") > pl.col("of_process"))
    )
    steps = holding.join(most, on=["process", "path"], how="semi")
    mine = attribution.nodes[["process", "path"]].unique()
    return mine.join(automatic, on="process", how="semi").join(
        steps, on=["process", "path"], how="anti"
    )


def paths_by_hand(attribution: Attribution) -> pl.DataFrame:
    """`process`, `path` of all ranges except automatic ones, and those around an operator or
    compiling."""
    other = attribution.ranges.select(pl.col("operator") | pl.col("compiling") | is_automatic())
    by_hand = ~other.to_series()[attribution.nodes["range"]]
    return attribution.nodes.filter(by_hand)[["process", "path"]].unique()


def _busy_of_processes(ops: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """`process`, `of_process`: the time in which its operations ran, summed over devices."""
    key = ["process", "device_no"]
    tracks = distinct(ops.select(key)).with_row_index("track")
    busy = merge(on_axis(ops.join(tracks, on=key), axis, "track"))
    length = pl.col("end") - pl.col("start")
    return (
        busy.select(axis.track(pl.col("start")).cast(pl.UInt32).alias("track"), length.alias("ns"))
        .join(tracks, on="track")
        .group_by("process")
        .agg(pl.col("ns").sum().alias("of_process"))
    )


def paths_named(attribution: Attribution, name: str, report: str) -> StepPaths:
    """The paths of the ranges called `name`: by their own name or whole path; or,
    where no range is called so, of the automatic steps.

    Raises:
        SelectionError: the report has no range of that name.
    """
    paths = _paths(attribution)
    called = paths.filter(_is_called(pl.lit(name)))
    if called.is_empty():
        called = _automatic(attribution).filter(pl.col("name") == name)
    if not called.is_empty():
        return called
    kind = without_numbers(name)
    if not paths.filter(_is_called(pl.lit(kind))).is_empty():
        raise SelectionError(
            f"no range {name!r} in {report}: all of its kind are {kind!r} there, without numbers",
            f"Ask for {kind!r}; --steps picks steps by their place, counted from 0",
        )
    names = paths["joined" if "/" in name else "name"].to_list()
    raise SelectionError(
        f"no range {name!r} in {report}",
        near_or_all(name, names, where="--table phases")
        or "It holds no NVTX ranges. Without --step, steps are inferred from repeating kernels",
    )


def _may_be_inferred(attribution: Attribution, name: str) -> bool:
    """Whether inferred steps can have this name, and no range has it."""
    called = _paths(attribution).filter(_is_called(pl.lit(name)))
    return called.is_empty() and re.fullmatch(rf"{STEP}|loop [1-9]\d*", name) is not None


def _is_called(name: pl.Expr) -> pl.Expr:
    """Whether a range is called so: by its own name, or by its whole path."""
    return (pl.col("joined") == name) | (pl.col("name") == name)


def _paths(attribution: Attribution) -> StepPaths:
    """Every path of every process, with its names."""
    seen = attribution.nodes[["process", "path"]].unique(maintain_order=True)
    names = attribution.paths[["path", "name", "joined"]]
    return seen.join(names, on="path", maintain_order="left")


def instance_of_ops(
    attribution: Attribution, paths: pl.DataFrame, ops: PlacedOps, axis: Axis
) -> pl.Series:
    """The instance of `paths` (its `range`) in which each operation was launched; null outside.

    Args:
        attribution: nodes and paths.
        paths: `process`, `path`, `name`, as of `step_paths`: no path for automatic steps.
        ops: all operations, with `node`.
        axis: of the threads.
    """
    members = attribution.within(paths.drop_nulls("path"))
    own = ops[["node"]].join(members, on="node", how="left", maintain_order="left")["range"]
    steps = automatic_steps_of(attribution, paths)
    if steps.is_empty():
        return own
    launched = ops.select("process", pl.col("launch_start_ns").alias("time_ns"))
    return pl.select(pl.coalesce(own, step_at(steps, launched, axis)).alias("range")).to_series()


def instance_ranges(attribution: Attribution, paths: pl.DataFrame) -> PhaseRanges:
    """The rows of `attribution.ranges` that are instances of `paths`, with or without operations.

    Args:
        attribution: nodes and paths.
        paths: as of `instance_of_ops`.
    """
    nodes = attribution.nodes.join(paths, on=["process", "path"], how="semi")
    own = attribution.ranges.join(nodes, on="range", how="semi")
    return pl.concat([own, automatic_steps_of(attribution, paths)])


def automatic_steps_of(attribution: Attribution, paths: pl.DataFrame) -> PhaseRanges:
    """The rows of `attribution.ranges` that are automatic steps, if they are among `paths`."""
    automatic = paths.filter(pl.col("path").is_null())
    return attribution.ranges.filter(is_step()).join(automatic, on=["process", "name"], how="semi")


EARLY_PCT: Final = 1
"""What runs in a step before it waits for work of before the recording takes no longer."""


def early_in_step(ops: pl.DataFrame, unseen: pl.DataFrame) -> pl.Series:
    """Whether an operation of a step (`range`) ran while the GPU still had to do what was launched
    before the recording, and the step begins after it.

    Args:
        ops: all operations, with `range`.
        unseen: of `ended_unseen`.
    """
    if unseen.is_empty():
        return repeated(value=False, length=len(ops))
    key = ["range", "device_no"]
    until = unseen.hstack(ops[key][unseen["op"]]).drop_nulls("range")
    until = until.group_by(key).agg(pl.col("end_ns").max().alias("until_ns"))
    rows = ops[[*key, "start_ns", "end_ns"]].join(until, on=key, how="left", maintain_order="left")
    early = (pl.col("start_ns") < pl.col("until_ns")).fill_null(value=False)
    length = pl.col("end_ns") - pl.col("start_ns")
    little = 100 * length.filter(early).sum().over(key) <= EARLY_PCT * length.sum().over(key)
    return rows.select((early & little).alias("early"))["early"]


def find_steps(attribution: Attribution, ops: pl.DataFrame) -> StepBounds:
    """When each step, and each instance of another loop, ran on each device.

    Args:
        attribution: nodes and paths.
        ops: operations, with `range` and `loop` of the step or instance that launched them, and
            `early`: whether the step begins after them.
    """
    key = ["process", "device", "device_no"]
    ranges = attribution.ranges.select(
        "range",
        "ended",
        "row",
        pl.col("start_ns").alias("begun_ns"),
        pl.col("end_ns").alias("done_ns"),
    )
    spans = (
        ops[[*key, "range", "loop", "start_ns", "end_ns", "early"]]
        .filter(pl.col("end_ns") > pl.col("start_ns"), pl.col("range").is_not_null())
        .group_by(*key, "loop", "range")
        .agg(
            pl.col("start_ns").filter(~pl.col("early")).min(),
            pl.col("end_ns").max().alias("last_ns"),
        )
        .join(ranges, on="range")
        .sort(*key, "start_ns", "begun_ns", "row")
    )
    following = pl.col("start_ns").shift(-1).over(key)
    goes_on = (pl.col("loop").shift(-1).over(key) == pl.col("loop")).fill_null(value=False)
    rows = spans.with_columns(
        pl.when(goes_on)
        .then(following)
        .otherwise(pl.min_horizontal("last_ns", following))
        .alias("end_ns"),
        goes_on.alias("goes_on"),
    )
    return rows.select(
        *key,
        "loop",
        pl.int_range(pl.len(), dtype=pl.Int64).over(*key, "loop").alias("step"),
        "range",
        "start_ns",
        "end_ns",
        "begun_ns",
        "done_ns",
        (~pl.col("goes_on") & ~pl.col("ended")).alias("cut"),
        _tail_missing(key).alias("tail_missing"),
    )


def step_times(attribution: Attribution, ops: pl.DataFrame) -> StepTimes:
    """What `find_steps` finds, and whether the ranges of a loop launch less than half of what runs
    from its first step to the last, other loops apart.

    Args:
        attribution: as of `find_steps`.
        ops: as of `find_steps`.
    """
    key = ["process", "device", "device_no"]
    rows = find_steps(attribution, ops)
    begun, length = pl.col("begun_ns"), pl.col("end_ns") - pl.col("start_ns")
    track = [*key, "loop"]
    spans = rows.group_by(track).agg(begun.min().alias("first_ns"), begun.max().alias("last_ns"))
    launched = ops.select(*key, "loop", "launch_start_ns", length.alias("ns"))
    launched = launched.join(spans.rename({"loop": "own"}), on=key).filter(
        pl.col("launch_start_ns") >= pl.col("first_ns"),
        pl.col("launch_start_ns") < pl.col("last_ns"),
        pl.col("loop").is_null() | (pl.col("loop") == pl.col("own")),
    )
    inside = pl.col("ns").filter(pl.col("loop").is_not_null()).sum()
    found = launched.group_by(*key, "own").agg(
        (2 * inside < pl.col("ns").sum()).alias("mostly_outside")
    )
    marked = rows.join(found.rename({"own": "loop"}), on=track, how="left", maintain_order="left")
    return marked.with_columns(pl.col("mostly_outside").fill_null(value=False))


TAIL_PCT: Final = 1
"""Equal steps of one capture differ by as much."""


def _tail_missing(key: list[str]) -> pl.Expr:
    """Whether a step that none follows lacks what comes after its last operation: the GPU ran for
    less time than the host takes from one step to the next."""
    between = pl.col("begun_ns").shift(-1).over(*key, "loop") - pl.col("done_ns")
    usual = pl.when("goes_on").then(between).median().over(*key, "loop").fill_null(0)
    host_ns = pl.col("done_ns") - pl.col("begun_ns") + usual
    ran_ns = pl.col("end_ns") - pl.col("start_ns")
    return ~pl.col("goes_on") & (100 * ran_ns < (100 - TAIL_PCT) * host_ns)


def step_of_gaps(steps: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The `step` in which each gap starts, of the process whose launch ended the gap, and whether
    that step is `steady`; null and false outside steps."""
    key = ["process", "device_no"]
    pairs = steps.select(key).unique()
    pair, asked = number_in(pairs, steps), number_in(pairs, gaps)
    length = pl.col("end_ns") - pl.col("start_ns")
    place = axis.at(pl.lit(pair), pl.col("start_ns")).alias("start")
    placed = steps.select("step", "steady", place, (place + length).alias("end"))
    placed = placed.sort("start", maintain_order=True)
    starts = gaps.select(axis.at(pl.lit(asked), pl.col("start_ns"))).to_series()
    at = last_at_or_before(placed["start"], starts)
    inside = (starts < placed["end"][at]).fill_null(value=False)
    return pl.select(
        pl.when(inside).then(placed["step"][at]).alias("step"),
        (inside & placed["steady"][at]).fill_null(value=False).alias("steady"),
    )
