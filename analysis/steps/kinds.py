"""Which steps are typical, and what the others are (spec §8)."""

from collections.abc import Iterable
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.lost_launches import MARKED_LAUNCHES
from nsysflow.analysis.frames.columns import median_ns, repeated, whole_ns
from nsysflow.analysis.frames.intervals import Axis, Cover, last_at_or_before, merge, on_axis
from nsysflow.analysis.options import StepPart, typed_steps
from nsysflow.analysis.phases.engine_steps import EngineSteps
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.analysis.steps.ranges import STEP_TIMES, StepTimes
from nsysflow.base.errors import SelectionError

SKIPPED: Final = 2
"""So many steps are warm-up by default, where a program was recorded from its start."""

LOADING_PCT: Final = 1
"""A leading step that spends more of its time on loading or compiling code is still starting up;
one that compiles later is a one-off."""

_TRACK: Final = ("process", "device_no")

_OF_BOUNDS: Final = ("loop", "cut", "tail_missing", "mostly_outside")
"""The columns of StepTimes that decide on a kind."""

STEPS: Final = pl.Schema(
    {
        **{name: dtype for name, dtype in STEP_TIMES.items() if name not in _OF_BOUNDS},
        "excess_ns": pl.Int64(),
        "kind": STEP_KIND,
        "steady": pl.Boolean(),
    }
)
"""A row per step and device. `excess_ns` is what it took over the steps around it, null for those
that are not compared."""
Steps = Annotated[pl.DataFrame, STEPS]


def with_kinds(
    steps: StepTimes,
    *,
    gaps: pl.DataFrame,
    wrong: pl.DataFrame,
    compiling: pl.DataFrame,
    looks: pl.DataFrame,
    launches: Annotated[pl.DataFrame | None, MARKED_LAUNCHES],
    captured: pl.Series,
    engines: EngineSteps,
    communicating: pl.Series,
    skip: int | None,
    axis: Axis,
) -> Steps:
    """The steps, each with its kind.

    Args:
        steps: all steps.
        gaps: all gaps with their causes.
        wrong: operations whose times cannot be right: `process`, `device_no`, `start_ns`.
        compiling: ranges around compiling: `process`, `start_ns`, `end_ns`.
        looks: instants in steps that our runtime slowed down: `process`, `start_ns`.
        launches: all kernel launches; None where none lost its operation.
        captured: the processes that captured a window of their steps.
        engines: the steps of serving engines, and tokens of `generate`.
        communicating: the processes that run communication kernels.
        skip: how many leading steps are never steady; None takes the default.
        axis: of the devices.
    """
    loading_ns = idle_in(steps, gaps, axis, causes=["module_load"])["module_load_ns"]
    steps = steps.with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        loading_ns.alias("loading_ns"),
        _incomplete(steps, launches, axis).alias("incomplete"),
        (_starting_in(steps, wrong, ("start_ns", "end_ns"), _TRACK, axis) > 0).alias("wrong"),
        _compiling_ns(steps, compiling, axis).alias("compiling_ns"),
        (_starting_in(steps, looks, ("begun_ns", "done_ns"), ("process",), axis) > 0).alias(
            "slowed"
        ),
        _ends_early(steps, communicating).alias("ends_early"),
    )
    in_midst = pl.concat([captured, engines.filter(~pl.col("automatic"))["process"]])
    steps = steps.with_row_index("row").with_columns(_apart(in_midst, skip).alias("apart"))
    compared = _compared(steps.filter(pl.col("apart").is_null()), engines)
    # a window begins on an idle GPU
    windowed = pl.col("process").is_in(captured.implode())
    others = pl.len().over(_TRACK) > 1
    tail_missing = pl.col("ends_early") & (others | pl.col("mostly_outside"))
    one_off = pl.col("wrong") | pl.col("outlier") | _much("compiling_ns")
    kind = (
        pl.when(tail_missing)
        .then(pl.lit("cut-off"))
        .when(pl.col("outlier") & (pl.col("step") == 0) & windowed)
        .then(pl.lit("start-up"))
        .when(one_off)
        .then(pl.lit("one-off"))
        .otherwise(pl.lit("steady"))
    )
    compared = compared.select("row", "excess_ns", kind.alias("kind"))
    return (
        steps.join(compared, on="row", how="left")
        .sort("row")
        .with_columns(pl.coalesce("apart", "kind").cast(STEP_KIND).alias("kind"))
        .with_columns((pl.col("kind") == "steady").alias("steady"))
        .drop("row", "apart", "wrong", "slowed", "incomplete", "cut", "tail_missing", "ends_early")
        .drop("mostly_outside", "duration_ns", "loading_ns", "compiling_ns")
    )


def _compared(steps: pl.DataFrame, engines: EngineSteps) -> pl.DataFrame:
    """`steps` as of `with_excess`. Steps of an engine that read prompts take as long as these are:
    they are not compared."""
    unlike = engines.filter(pl.col("kind").ne_missing("decode"))["range"]
    alone = pl.col("range").is_in(unlike.implode())
    lone = steps.filter(alone).with_columns(
        pl.lit(None, pl.Int64).alias("excess_ns"), pl.lit(value=False).alias("outlier")
    )
    return pl.concat([with_excess(steps.filter(~alone)), lone])


def _apart(in_midst: pl.Series, skip: int | None) -> pl.Expr:
    """The kind of the steps that are not compared with others; null for those that are."""
    begins = _much("loading_ns") | _much("compiling_ns")
    skipped = _skipped(in_midst, skip)
    early = (pl.col("step") < skipped) | begins | pl.col("incomplete")
    leading = early.cast(pl.UInt8).cum_min().over(_TRACK) == 1
    others = ~(leading | pl.col("cut") | pl.col("incomplete") | pl.col("slowed"))
    return (
        pl.when("cut")
        .then(pl.lit("cut-off"))
        .when("incomplete")
        .then(pl.lit("incomplete"))
        .when(leading | (pl.col("slowed") & others.any().over(_TRACK)))
        .then(pl.lit("start-up"))
    )


def _ends_early(steps: StepTimes, communicating: pl.Series) -> pl.Series:
    """Whether a step lacks its tail. Ranks of a report have the same steps: if the last one is cut
    off on one rank, it is on all. Ranks of other reports are not known here."""
    ranks = steps.filter(pl.col("process").is_in(communicating.implode()))
    if ranks["process"].n_unique() < 2:
        lacks = pl.col("tail_missing") & ~pl.col("process").is_in(communicating.implode())
        return steps.select(lacks).to_series()
    last = pl.col("step") == pl.col("step").max().over(_TRACK)
    first = ranks.filter(last & (pl.col("cut") | pl.col("tail_missing")))["step"].min()
    on_one = last & (pl.col("step") >= pl.lit(first)).fill_null(value=False)
    is_rank = pl.col("process").is_in(communicating.implode())
    return steps.select(pl.when(is_rank).then(on_one).otherwise("tail_missing")).to_series()


def compiling_ranges(ranges: pl.DataFrame) -> pl.DataFrame:
    """Those of a trace's ranges around compiling: what a CUDA graph launches compiles nothing."""
    return ranges.filter("compiling", pl.col("captured_ns") == 0)


def starting_up(
    instances: StepTimes, *, gaps: pl.DataFrame, compiling: pl.DataFrame, axis: Axis
) -> pl.Series:
    """Whether each instance of a loop loads or compiles code, as all before it in the loop do.

    Args:
        instances: of all loops, those of each in their order.
        gaps: as of `with_kinds`, and so are the others.
    """
    timed = instances.select(
        *_TRACK,
        "loop",
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        idle_in(instances, gaps, axis, causes=["module_load"])["module_load_ns"].alias(
            "loading_ns"
        ),
        _compiling_ns(instances, compiling, axis).alias("compiling_ns"),
    )
    begins = _much("loading_ns") | _much("compiling_ns")
    leading = begins.cast(pl.UInt8).cum_min().over(*_TRACK, "loop") == 1
    return timed.select(leading).to_series()


def _much(part_ns: str) -> pl.Expr:
    """Whether a step that runs as the others do would spend less of its time on this."""
    return 100 * pl.col(part_ns) > LOADING_PCT * pl.col("duration_ns")


def _compiling_ns(steps: pl.DataFrame, compiling: pl.DataFrame, axis: Axis) -> pl.Series:
    """How long any thread of the step's process compiled during the step."""
    tracks = steps[["process"]].unique().with_row_index("track")
    covered = Cover(merge(on_axis(compiling.join(tracks, on="process"), axis, "track")))
    asked = on_axis(steps.join(tracks, on="process", maintain_order="left"), axis, "track")
    return covered.between(asked["start"], asked["end"])


def _skipped(in_midst: pl.Series, skip: int | None) -> pl.Expr:
    """How many leading steps are warm-up: none of a process that was recorded in the midst of its
    steps (a captured window, a serving engine), else 2.

    Of 5 or 6 steps, as many as leave 5: that many are enough to see which of them are slow.
    """
    if skip is not None:
        return pl.lit(skip)
    count = pl.len().over(_TRACK).cast(pl.Int64)
    few = pl.when(count >= LEAST_STEPS).then(count - LEAST_STEPS).otherwise(SKIPPED)
    skipped = pl.min_horizontal(few, pl.lit(SKIPPED))
    return pl.when(pl.col("process").is_in(in_midst.implode())).then(0).otherwise(skipped)


def _incomplete(
    steps: StepTimes, launches: Annotated[pl.DataFrame | None, MARKED_LAUNCHES], axis: Axis
) -> pl.Series:
    """Whether launches that lost their operation start in the step: before the next one's range
    begins, since a step whose operations are all lost is part of the step before it."""
    if launches is None:
        return repeated(value=False, length=len(steps))
    following = pl.col("begun_ns").shift(-1).over(_TRACK)
    hosted = steps.with_columns(pl.max_horizontal("done_ns", following).alias("done_ns"))
    lost = launches.filter("lost")
    return _starting_in(hosted, lost, ("begun_ns", "done_ns"), ("process",), axis) > 0


def _starting_in(
    pieces: pl.DataFrame,
    rows: pl.DataFrame,
    ends: tuple[str, str],
    by: tuple[str, ...],
    axis: Axis,
) -> pl.Series:
    """How many of `rows` (`start_ns`) start in each piece, of those that agree in `by`."""
    tracks = pieces.select(by).unique().with_row_index("track")
    starts = (
        rows.join(tracks, on=by)
        .select(axis.at(pl.col("track"), pl.col("start_ns")).alias("place"))
        .to_series()
        .sort()
    )
    placed = pieces.join(tracks, on=by, maintain_order="left")
    first, past = (
        starts.search_sorted(
            placed.select(axis.at(pl.col("track"), pl.col(end)).alias("place")).to_series(),
            side="left",
        ).cast(pl.Int64)
        for end in ends
    )
    return past - first


NEAREST: Final = 9
"""A step is compared with the median of so many: enough to bear four others that are slow, few
enough to follow steps that grow longer."""

LEAST_STEPS: Final = 5
"""With fewer steps, none can be called unusual."""

PCT_OF_MEDIAN: Final = 20
"""A step that is off by no more is still like the others …"""

TIMES_RESIDUAL: Final = 5
"""… and so is one that is off by no more than five times what steps usually are."""


def with_excess(steps: pl.DataFrame) -> pl.DataFrame:
    """`steps` with `excess_ns`, what each took beyond the median of those around it, and `outlier`.

    Args:
        steps: `process`, `device_no`, `duration_ns`, in the order of the steps.
    """
    around = pl.col("duration_ns").rolling_median(NEAREST, min_samples=NEAREST, center=True)
    # at the rims the first and the last nine are the nearest ones
    nearest = whole_ns(around.backward_fill().forward_fill())
    turn = (pl.int_range(pl.len()).over(_TRACK) % 2).alias("turn")
    steps = steps.with_columns(turn)
    own_kind = pl.when(_take_turns(pl.col("duration_ns"), _TRACK)).then("turn").otherwise(0)
    steps = steps.with_columns(own_kind.alias("turn"))
    local = pl.coalesce(nearest, median_ns(pl.col("duration_ns"))).over(*_TRACK, "turn")
    steps = steps.with_columns(local.alias("local_ns"))
    excess = pl.col("duration_ns") - pl.col("local_ns")
    usual = median_ns(excess.abs()).over(_TRACK)
    outlier = (
        (pl.len().over(_TRACK) >= LEAST_STEPS)
        & (100 * excess > PCT_OF_MEDIAN * pl.col("local_ns"))
        & (excess > TIMES_RESIDUAL * usual)
    )
    return steps.with_columns(excess.alias("excess_ns"), outlier.alias("outlier")).drop(
        "local_ns", "turn"
    )


LEAST_TURNS: Final = 10
"""Five of each kind. With fewer steps, kinds may take turns by chance."""

TURNS_PCT: Final = 90
"""This share of the steps must be as long as their kind. Where only every fourth step is longer,
70 % are."""


def _take_turns(length: pl.Expr, track: Iterable[str]) -> pl.Expr:
    """Whether steps of two kinds take turns, such as the batches of a program that updates at every
    second one; of steps with their `turn`, 0 or 1, in order."""
    first, second = (median_ns(length.filter(pl.col("turn") == turn)) for turn in (0, 1))
    shorter, longer = pl.min_horizontal(first, second), pl.max_horizontal(first, second)
    is_long = (pl.col("turn") == 1) == (second > first)
    right = (2 * length >= shorter + longer) == is_long
    return (
        (pl.len() >= LEAST_TURNS)
        & (100 * longer > (100 + PCT_OF_MEDIAN) * shorter)
        & (100 * right.sum() >= TURNS_PCT * pl.len())
    ).over(*track)


GROWN_TIMES: Final = 4
"""Steps that grow are longer by so many times in the end, also without those that are one-offs."""

GROWN_PCT: Final = 90
"""So many of them are longer than the one before. Of equal steps it is half, as chance has it."""

GROWING: Final = pl.Schema(
    {"process": pl.Int64(), "device": pl.Int32(), "first_ns": pl.Int64(), "last_ns": pl.Int64()}
)


def growing(steps: Steps) -> Annotated[pl.DataFrame, GROWING]:
    """The processes and devices whose steps after start-up grow from one to the next, as in a sweep
    over sizes, with the length of the first step and of the last."""
    compared = steps.drop_nulls("excess_ns").sort("process", "device", "step")
    length = pl.col("end_ns") - pl.col("start_ns")
    tracks = compared.group_by("process", "device", maintain_order=True).agg(
        length.first().alias("first_ns"),
        length.last().alias("last_ns"),
        length.filter("steady").max().alias("steady_ns"),
        (length.diff() > 0).sum().alias("longer"),
        pl.len().alias("steps"),
    )
    often = 100 * pl.col("longer") >= GROWN_PCT * (pl.col("steps").cast(pl.Int64) - 1)
    much = pl.col("steady_ns") >= GROWN_TIMES * pl.col("first_ns")
    grown = tracks.filter(pl.col("steps") >= LEAST_STEPS, often, much)
    return grown.select(GROWING.names()).cast(GROWING)


TURNS: Final = pl.Schema(
    {"process": pl.Int64(), "device": pl.Int32(), "shorter_ns": pl.Int64(), "longer_ns": pl.Int64()}
)


def by_turns(steps: Steps) -> Annotated[pl.DataFrame, TURNS]:
    """The processes and devices whose steps after start-up are of two kinds that take turns, with
    the median length of each kind."""
    track = ["process", "device"]
    compared = steps.drop_nulls("excess_ns").sort(*track, "step")
    turn = (pl.int_range(pl.len()).over(track) % 2).alias("turn")
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    turning = compared.with_columns(turn, length).filter(_take_turns(pl.col("length_ns"), track))
    kinds = turning.group_by(*track, "turn").agg(median_ns(pl.col("length_ns")))
    shorter, longer = pl.col("length_ns").min(), pl.col("length_ns").max()
    found = kinds.group_by(track, maintain_order=True).agg(
        shorter.alias("shorter_ns"), longer.alias("longer_ns")
    )
    return found.sort(track).cast(TURNS)


NEVER_JUDGED = ("cut-off", "incomplete")
"""Of these kinds, the recording does not hold the whole step."""


def selected_steps(steps: Steps, parts: tuple[StepPart, ...]) -> Steps:
    """The steps that `--steps` selects; all where it selects none."""
    wanted = [_in(part) for part in parts if not part.out]
    unwanted = [_in(part) for part in parts if part.out]
    inside = pl.any_horizontal(wanted) if wanted else pl.lit(value=True)
    return steps.filter(inside, *(~part for part in unwanted))


def require_steps(steps: Steps, parts: tuple[StepPart, ...], report: str) -> None:
    """Check that `--steps` selects something.

    Raises:
        SelectionError: it selects no step of the report.
    """
    if not selected_steps(steps, parts).is_empty():
        return
    count = steps["step"].n_unique()
    if not count:
        seen = f"{report} has no steps to choose from"
        raise SelectionError(seen, "Name the range that is one with --step")
    raise SelectionError(
        f"{report} has {count} steps, 0 to {count - 1}: none of them is in {typed_steps(parts)}",
        f"Choose some of them, e.g. --steps 0:{count}",
    )


def judged_steps(steps: Steps, parts: tuple[StepPart, ...]) -> Steps:
    """The steps that `--steps` selects, as far as they were recorded whole; without it the steady
    ones.

    Args:
        steps: all steps.
        parts: of the options.
    """
    if not parts:
        return steps.filter("steady")
    whole = ~pl.col("kind").cast(pl.String).is_in(NEVER_JUDGED)
    return selected_steps(steps, parts).filter(whole)


def steps_of_run(steps: Steps) -> Steps:
    """The steps that a long run consists of: all after start-up that were recorded whole."""
    return steps.filter(pl.col("kind").cast(pl.String).is_in(["steady", "one-off"]))


def step_time_ns(steps: pl.DataFrame, track: Iterable[str] = _TRACK) -> int:
    """What one of these steps takes (spec §8.23): their mean, in whole ns, of the process and
    device where it is longest.

    Args:
        steps: at least one; `duration_ns` and `track`.
        track: the columns that name a process and device.
    """
    means = steps.group_by(*track).agg(pl.col("duration_ns").mean())
    return round(float(means.select(pl.col("duration_ns").max()).item()))


def _in(part: StepPart) -> pl.Expr:
    number = pl.col("step")
    return (number >= part.first) & (True if part.end is None else number < part.end)


def gaps_in(pieces: pl.DataFrame, gaps: pl.DataFrame, axis: Axis) -> tuple[pl.Series, pl.Series]:
    """Per piece the rows of its first gap, and of the one after its last.

    Args:
        pieces: `device_no`, `start_ns`, `end_ns`.
        gaps: in the order of the axis.
        axis: of the devices.
    """
    starts, begin = (axis.at(rows["device_no"], rows["start_ns"]) for rows in (gaps, pieces))
    ends = begin + (pieces["end_ns"] - pieces["start_ns"])
    return starts.search_sorted(begin), starts.search_sorted(ends)


def idle_in(
    pieces: pl.DataFrame, gaps: pl.DataFrame, axis: Axis, *, causes: Iterable[str] = CAUSES
) -> pl.DataFrame:
    """Per piece, the time by cause of the gaps that start in it.

    It is the sum of all gaps before its end, less the sum of those before its start.

    Args:
        pieces: `device_no`, `start_ns`, `end_ns`.
        gaps: with their causes, in the order of the axis.
        axis: of the devices.
        causes: which of them.
    """
    first, past = gaps_in(pieces, gaps, axis)
    borders = pl.concat([first, past]).unique().sort()
    sums = _sums_before(borders, gaps.select(f"{cause}_ns" for cause in causes))
    until_first, until_past = (sums[borders.search_sorted(border)] for border in (first, past))
    return until_past - until_first


def _sums_before(borders: pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
    """The sums of the rows before each of the sorted, distinct `borders`.

    The rows between two borders are summed first, then these sums. Running sums of all rows take 4
    times as long.
    """
    opens = borders.filter(borders < len(rows))
    number = repeated(0, len(rows), pl.Int64).scatter(opens, 1).cum_sum()
    between = number.set_sorted().alias("number")
    sums = rows.group_by(between, maintain_order=True).agg(pl.all().sum())
    known = sums.with_columns(pl.exclude("number").cum_sum())
    last = last_at_or_before(known["number"], pl.int_range(len(borders), eager=True))
    return known.select(pl.exclude("number").gather(last).fill_null(0))
