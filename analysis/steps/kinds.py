"""Which steps are typical, and what the others are (spec §8.4, §8.12 to §8.15)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover, merge, on_axis
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.analysis.steps.idle import idle_in
from nsysflow.analysis.steps.one_offs import LEAST_STEPS, with_excess

SKIPPED: Final = 2
"""So many steps are warm-up by default, where a program was recorded from its start."""

LOADING_PCT: Final = 1
"""A leading step that spends more of its time on loading or compiling code is still starting up;
one that compiles later is a one-off."""

_OF: Final = ("process", "device_no")


def with_kinds(
    steps: pl.DataFrame,
    *,
    gaps: pl.DataFrame,
    wrong: pl.DataFrame,
    compiling: pl.DataFrame,
    launches: pl.DataFrame | None,
    captured: pl.Series,
    skip: int | None,
    axis: Axis,
) -> pl.DataFrame:
    """`steps` with `kind`, `steady` and `excess_ns` (over the steps around it; null for those that
    are not compared).

    Args:
        steps: of `find_steps`.
        gaps: all gaps with their causes.
        wrong: operations whose times cannot be right: `process`, `device_no`, `start_ns`.
        compiling: ranges around compiling: `process`, `start_ns`, `end_ns`.
        launches: of `launches_in_stretches`.
        captured: the processes that captured a window of their steps.
        skip: how many leading steps are never steady; None takes the default.
        axis: of the devices.
    """
    loading_ns = idle_in(steps, gaps, axis, of=["module_load"])["module_load_ns"]
    steps = steps.with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        loading_ns.alias("loading_ns"),
        _incomplete(steps, launches, axis).alias("incomplete"),
        (_starting_in(steps, wrong, ("start_ns", "end_ns"), _OF, axis) > 0).alias("wrong"),
        _compiling_ns(steps, compiling, axis).alias("compiling_ns"),
    )
    steps = steps.with_row_index("row").with_columns(_apart(captured, skip).alias("apart"))
    compared = with_excess(steps.filter(pl.col("apart").is_null()))
    one_off = pl.col("wrong") | pl.col("outlier") | _much("compiling_ns")
    kind = pl.coalesce("apart", pl.when(one_off).then(pl.lit("one-off")), pl.lit("steady"))
    return (
        steps.join(compared.select("row", "excess_ns", "outlier"), on="row", how="left")
        .sort("row")
        .with_columns(kind.cast(STEP_KIND).alias("kind"))
        .with_columns((pl.col("kind") == "steady").alias("steady"))
        .drop("row", "apart", "outlier", "wrong", "incomplete", "cut")
        .drop("duration_ns", "loading_ns", "compiling_ns")
    )


def _apart(captured: pl.Series, skip: int | None) -> pl.Expr:
    """The kind of the steps that are not compared with others; null for those that are."""
    begins = _much("loading_ns") | _much("compiling_ns")
    early = (pl.col("step") < _skipped(captured, skip)) | begins | pl.col("incomplete")
    leading = early.cast(pl.UInt8).cum_min().over(_OF) == 1
    return (
        pl.when("cut")
        .then(pl.lit("cut-off"))
        .when("incomplete")
        .then(pl.lit("incomplete"))
        .when(leading)
        .then(pl.lit("start-up"))
    )


def _much(part_ns: str) -> pl.Expr:
    """Whether a step that runs as the others do would spend less of its time on this."""
    return 100 * pl.col(part_ns) > LOADING_PCT * pl.col("duration_ns")


def _compiling_ns(steps: pl.DataFrame, compiling: pl.DataFrame, axis: Axis) -> pl.Series:
    """How long any thread of the step's process compiled during the step."""
    tracks = steps.select("process").unique().with_row_index("track")
    covered = Cover(merge(on_axis(compiling.join(tracks, on="process"), axis, "track")))
    asked = on_axis(steps.join(tracks, on="process", maintain_order="left"), axis, "track")
    return covered.between(asked["start"], asked["end"])


def _skipped(captured: pl.Series, skip: int | None) -> pl.Expr:
    """How many leading steps are warm-up: none of a captured window, which leaves them out, else 2.

    Of 5 or 6 steps, as many as leave 5: that many are enough to see which of them are slow.
    """
    if skip is not None:
        return pl.lit(skip)
    count = pl.len().over(_OF).cast(pl.Int64)
    few = pl.when(count >= LEAST_STEPS).then(count - LEAST_STEPS).otherwise(SKIPPED)
    skipped = pl.min_horizontal(few, pl.lit(SKIPPED))
    return pl.when(pl.col("process").is_in(captured.implode())).then(0).otherwise(skipped)


def _incomplete(steps: pl.DataFrame, launches: pl.DataFrame | None, axis: Axis) -> pl.Series:
    """Whether launches that lost their operation start in the step: before the next one's range
    begins, since a step whose operations are all lost is part of the step before it."""
    if launches is None:
        return pl.repeat(value=False, n=len(steps), eager=True)
    following = pl.col("begun_ns").shift(-1).over(_OF)
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
    laid = pieces.join(tracks, on=by, maintain_order="left")
    first, past = (
        starts.search_sorted(
            laid.select(axis.at(pl.col("track"), pl.col(end)).alias("place")).to_series(),
            side="left",
        ).cast(pl.Int64)
        for end in ends
    )
    return past - first
