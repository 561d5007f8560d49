"""The other loops of a program: what repeats beside its steps, such as validation (spec §8.22)."""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, last_at_or_before, merge
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.phases.automatic import is_automatic, is_step
from nsysflow.analysis.phases.work import Work
from nsysflow.analysis.steps.ranges import (
    MIN_REPEATS,
    STEP_PATHS,
    StepPaths,
    instance_of_ops,
    instance_ranges,
    paths_by_hand,
)

MAIN: Final = 0
"""The number of the loop whose instances are the steps; the others count from 1."""

LOOP_PATHS: Final = pl.Schema({**STEP_PATHS, "loop": pl.UInt32()})
"""The paths whose instances make other loops, numbered; the one with most GPU time first."""
LoopPaths = Annotated[pl.DataFrame, LOOP_PATHS]

PLACED_IN_LOOPS: Final = pl.Schema({"range": pl.UInt32(), "loop": pl.UInt32()})
"""Per operation the step, or the instance of another loop, that launched it (as `range`), and of
which loop that is; null outside all of them."""
PlacedInLoops = Annotated[pl.DataFrame, PLACED_IN_LOOPS]

SPANS: Final = pl.Schema({"process": pl.Int64(), "begun_ns": pl.Int64(), "done_ns": pl.Int64()})
"""When the host was in some ranges."""
Spans = Annotated[pl.DataFrame, SPANS]

INSTANCES: Final = pl.Schema(
    {**STEP_PATHS, "range": pl.UInt32(), **SPANS, "automatic": pl.Boolean()}
)
"""A row per instance of a range that may make a loop. The range with most GPU time comes first."""
Instances = Annotated[pl.DataFrame, INSTANCES]

FORWARD: Final = "forward"
"""The automatic range around a call of a model in training mode."""

WHOLE_MODELS: Final = (FORWARD, "eval", "generate")
"""The automatic ranges around calls of a whole model. They make a loop where nothing is trained:
without a backward between them."""

MIN_FORWARDS: Final = 10
"""Fewer `forward` in a row are no loop. They are a part of the step, which looks for hard examples
or asks a second model."""

_PATH: Final = ["process", "path"]


@dataclass(frozen=True, kw_only=True)
class Loops:
    """What repeats in a program.

    Attributes:
        paths: the other loops.
        of_ops: the step, or the instance of another loop, of each operation.
    """

    paths: LoopPaths
    of_ops: PlacedInLoops


@dataclass(frozen=True, kw_only=True)
class HostLine:
    """The times of processes, laid end to end.

    Attributes:
        processes: `process`, `track`.
        axis: of the tracks.
    """

    processes: pl.DataFrame
    axis: Axis

    def places(self, rows: pl.DataFrame, time: str) -> pl.Series:
        """The place of that time of each row."""
        placed = rows.join(self.processes, on="process", how="left", maintain_order="left")
        return self.axis.at(placed["track"], placed[time])

    def count_before(self, borders: Spans, rows: pl.DataFrame, time: str) -> pl.Series:
        """How many of these borders of its process begin at that time of each row, or before."""
        known = self.places(borders, "begun_ns").sort()
        origin = rows.select("process", pl.lit(self.axis.origin_ns).alias(time))
        until = known.search_sorted(self.places(rows, time), side="right")
        others = known.search_sorted(self.places(origin, time), side="left")
        return until.cast(pl.Int64) - others.cast(pl.Int64)


def find_loops(
    attribution: Attribution, work: Work, steps: StepPaths, ops: PlacedOps, axis: Axis
) -> Loops:
    """The other loops beside the steps.

    A range makes one if three or more of its instances (ten of a model in training mode) follow
    each other without a step between, and it does so between fewer than half of the steps: what
    repeats in each step is a part of it.
    The range with most GPU time comes first, and its instances then part others as steps do.

    Args:
        attribution: nodes and paths.
        work: what each path did.
        steps: which ranges are steps.
        ops: all operations.
        axis: of the threads.
    """
    own = instance_of_ops(attribution, steps, ops, axis)
    processes = steps[["process"]].unique().sort("process").with_row_index("track")
    line = HostLine(processes=processes, axis=axis)
    spans = _spans(instance_ranges(attribution, steps))
    inferred = _inferred(attribution, steps)
    known = _candidates(attribution, work, steps, spans, line)
    if known.is_empty() and inferred.is_empty():
        return Loops(paths=LOOP_PATHS.to_frame(), of_ops=_in_steps(own))
    backward = _spans(attribution.ranges.filter(is_automatic() & (pl.col("name") == "backward")))
    backward = backward.join(processes, on="process", how="semi")
    loops = [known.clear(), *inferred.partition_by("process", "name", maintain_order=True)]
    borders = pl.concat([spans, inferred[[*SPANS]]])
    known = _beside(known, inferred[[*SPANS]], line)
    while len(runs := _in_runs(known, spans, borders, backward, line)):
        best = runs.select(_PATH).head(1)
        loop = runs.join(best, on=_PATH, how="semi", maintain_order="left")
        loops.append(loop)
        borders = pl.concat([borders, loop[[*SPANS]]])
        known = known.join(best, on=_PATH, how="anti", maintain_order="left")
        known = _beside(known, loop[[*SPANS]], line)
    instances = pl.concat(
        loop.with_columns(pl.lit(number, pl.UInt32).alias("loop"))
        for number, loop in enumerate(loops)
    )
    return Loops(
        paths=instances.unique("loop", maintain_order=True)[[*LOOP_PATHS]],
        of_ops=_placed(attribution, instances, own, ops, line),
    )


def _spans(ranges: pl.DataFrame) -> Spans:
    """When the host was in these ranges."""
    begun, done = pl.col("start_ns").alias("begun_ns"), pl.col("end_ns").alias("done_ns")
    return ranges.select("process", begun, done)


def _inferred(attribution: Attribution, steps: StepPaths) -> Instances:
    """The instances of the inferred loops that are not the steps."""
    processes = steps.filter(pl.col("path").is_null())[["process"]]
    others = attribution.ranges.filter(is_step()).join(processes, on="process", how="semi")
    others = others.join(steps, on=["process", "name"], how="anti", maintain_order="left")
    name = pl.col("name").cast(pl.String)
    return others.select(
        "process",
        pl.lit(None, pl.UInt32).alias("path"),
        name,
        name.alias("joined"),
        "range",
        pl.col("start_ns").alias("begun_ns"),
        pl.col("end_ns").alias("done_ns"),
        pl.lit(value=True).alias("automatic"),
    ).match_to_schema(INSTANCES)


def _candidates(
    attribution: Attribution, work: Work, steps: StepPaths, spans: Spans, line: HostLine
) -> Instances:
    """The instances of ranges that may make a loop: those that people opened, and the automatic
    ones around a whole model; neither inside a step that people opened nor around one."""
    ranges, nodes = attribution.ranges, attribution.nodes
    models = ranges.select(is_automatic() & pl.col("name").is_in(WHOLE_MODELS)).to_series()
    automatic = nodes.filter(models[nodes["range"]]).select(_PATH)
    repeating = (
        work.filter(pl.col("instances") >= MIN_REPEATS, pl.col("ops") > 0)
        .join(pl.concat([paths_by_hand(attribution), automatic]), on=_PATH, how="semi")
        .join(steps, on="process", how="semi")
        .join(steps, on=_PATH, how="anti")
        .join(attribution.paths[["path", "name"]], on="path")
        .sort("process", "busy_ns", "depth", "joined", descending=[False, True, False, False])
    )
    if repeating.is_empty():
        return INSTANCES.to_frame()
    times = _spans(ranges).with_columns(ranges["range"], models.alias("automatic"))
    known = (
        repeating.join(nodes[[*_PATH, "range"]].unique(), on=_PATH, maintain_order="left")
        .join(times.drop("process"), on="range", maintain_order="left")
        .select(*INSTANCES)
    )
    opened = steps.filter(pl.col("path").is_not_null())
    return _beside(
        _not_around(known, spans, line), spans.join(opened, on="process", how="semi"), line
    )


def _beside(known: Instances, spans: Spans, line: HostLine) -> Instances:
    """The instances that begin in none of these spans, of ranges around none of them."""
    known = _not_around(known, spans, line)
    ends = {name: line.places(spans, f"{name}_ns") for name in ("begun", "done")}
    covered = merge(pl.DataFrame({"start": ends["begun"], "end": ends["done"]}))
    begun = line.places(known, "begun_ns")
    until = covered["end"][last_at_or_before(covered["start"], begun)]
    return known.filter(~(begun < until).fill_null(value=False))


def _not_around(known: Instances, spans: Spans, line: HostLine) -> Instances:
    """The instances of ranges of which no instance has the begin of such a span in it."""
    begun = line.places(spans, "begun_ns").sort()
    first, past = (
        begun.search_sorted(line.places(known, time), side="left")
        for time in ("begun_ns", "done_ns")
    )
    return known.join(known.filter(past > first), on=_PATH, how="anti", maintain_order="left")


def _in_runs(
    known: Instances, steps: Spans, borders: Spans, backward: Spans, line: HostLine
) -> Instances:
    """The instances of loops, in the order of `known`: those that follow each other in rows that
    are long enough, of ranges that do so between fewer than half of the steps.

    Args:
        known: instances that may be of a loop.
        steps: all steps.
        borders: these, and the instances of loops that are known.
        backward: what parts the instances of automatic ranges, too.
        line: of the processes.
    """
    known = _not_trained(known, borders, backward, line)
    by_hand = line.count_before(borders, known, "begun_ns")
    by_itself = line.count_before(pl.concat([borders, backward]), known, "begun_ns")
    row = pl.when("automatic").then(by_itself).otherwise(by_hand).alias("row")
    rows = known.with_columns(row, line.count_before(steps, known, "begun_ns").alias("after"))
    least = pl.when(pl.col("automatic") & (pl.col("name") == FORWARD)).then(MIN_FORWARDS)
    rows = rows.filter(pl.len().over(*_PATH, "row") >= least.otherwise(MIN_REPEATS))
    rows = rows.join(
        steps.group_by("process").len("steps"), on="process", how="left", maintain_order="left"
    )
    steps_before = pl.col("steps").cast(pl.Int64) - 1
    between = pl.col("after").is_between(1, steps_before)
    places = pl.when(between).then("after").drop_nulls().n_unique().over(_PATH)
    is_part = (2 * places >= steps_before) & (steps_before > 0)
    return rows.filter(~is_part)[[*INSTANCES]]


def _not_trained(known: Instances, borders: Spans, backward: Spans, line: HostLine) -> Instances:
    """The instances without each automatic `forward` that a backward follows before another one or
    a border: it is a step's, also right after an evaluation."""
    is_forward = pl.col("automatic") & (pl.col("name") == FORWARD)
    origins = line.processes.select("process", pl.lit(line.axis.origin_ns).alias("begun_ns"))
    places = [
        line.places(rows, "begun_ns").alias("place").to_frame().with_columns(backward=is_backward)
        for rows, is_backward in (
            (origins, False),
            (borders, False),
            (known.filter(is_forward), False),
            (backward, True),
        )
    ]
    begins = pl.concat(places).sort("place", "backward")
    following = begins["place"].search_sorted(line.places(known, "begun_ns"), side="right")
    trained = begins["backward"].gather(following, null_on_oob=True).fill_null(value=False)
    return known.filter(~(is_forward & trained))


def _in_steps(own: pl.Series) -> PlacedInLoops:
    """Per operation its step in `own`, where there is no other loop."""
    main = pl.when(pl.col("range").is_not_null()).then(pl.lit(MAIN, pl.UInt32))
    return own.to_frame("range").with_columns(main.alias("loop"))


def _placed(
    attribution: Attribution,
    instances: pl.DataFrame,
    own: pl.Series,
    ops: PlacedOps,
    line: HostLine,
) -> PlacedInLoops:
    """Per operation the instance of a loop that launched it, else its step in `own`. What an
    automatic step launched before such an instance began is neither the loop's nor the step's."""
    members = attribution.projected(instances.select(_PATH).unique())
    of_loops = members.join(instances[["range", "loop"]], on="range").unique("node")
    by_node = ops[["node"]].join(of_loops, on="node", how="left", maintain_order="left")["range"]
    by_time = instance_of_ops(
        attribution, instances.filter(pl.col("path").is_null()), ops, line.axis
    )
    there = pl.select(pl.coalesce(by_node, by_time).alias("range"))
    there = there.join(instances[["range", "loop"]], on="range", how="left", maintain_order="left")
    launched = line.count_before(instances, ops[["process", "launch_start_ns"]], "launch_start_ns")
    ranges = attribution.ranges.select("process", pl.col("end_ns") - 1)
    of_step = line.count_before(instances, ranges, "end_ns")[own]
    step = pl.when(launched >= of_step).then(own)
    loop = pl.when(step.is_not_null()).then(pl.lit(MAIN, pl.UInt32))
    return pl.select(
        pl.coalesce(there["range"], step).alias("range"),
        pl.coalesce(there["loop"], loop).alias("loop"),
    )
