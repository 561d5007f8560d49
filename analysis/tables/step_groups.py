"""The window by kind of step: what is typical, and what stands beside it (spec §8.17)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import CAUSE, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.selection.windows import clip_rows, whole_windows
from nsysflow.analysis.steps.kinds import gaps_in, idle_in, with_period
from nsysflow.analysis.tables.gaps import gap_rows
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

STEP_GROUP: Final = pl.Enum(
    ["before", "steady", "periodic", "one-off", "incomplete", "cut-off", "after"]
)
"""What a row of step_groups holds (spec §8.17)."""

STEP_GROUPS: Final = TableSchema(
    """The window by kind of step; the rows of a process and device sum to its device's window, and
    the parts of a row (compute, exposed communication and copies, idle) to its `total_ns`.
    `before` is what precedes the steps, and the start-up steps; each one-off has a row, but those
    of the same place and cause that come back `every` so many steps share one (`periodic`); `after`
    follows the last step. `excess_ns` is what one-offs took beyond the steps around them. `cause`
    and `second_cause` have most of the row's idle time. `largest_…` is its longest gap, `phase`,
    `culprit`, `source` and `via` are that gap's; null for steady steps.""",
    [
        *shared("report process device"),
        Column(
            "kind",
            STEP_GROUP,
            "before (the steps, and start-up), steady, one-off, periodic (one-offs at equal "
            "distances), cut-off, incomplete or after",
        ),
        Column("steps", pl.String(), "the steps' numbers"),
        Column("count", pl.Int64(), "how many steps"),
        Column(
            "every",
            pl.Int64(),
            "from one of them to the next, in steps; empty where they are not periodic",
        ),
        Column("start_ns", pl.Int64(), "when the first of them starts, on the report's clock"),
        Column("total_ns", pl.Int64(), "how long they last together"),
        Column(
            "excess_ns",
            pl.Int64(),
            "how much longer one-offs took than the steps around them",
        ),
        *shared("compute_ns comm_exposed_ns copy_exposed_ns"),
        Column("idle_ns", pl.Int64(), "time in which nothing runs on the GPU"),
        Column("cause", CAUSE, "the cause with most of their idle time"),
        Column("cause_ns", pl.Int64(), "the idle time with that cause"),
        Column("second_cause", CAUSE, "the cause with the second most idle time"),
        Column("second_cause_ns", pl.Int64(), "the idle time with the second cause"),
        Column("largest_ns", pl.Int64(), "their longest gap"),
        Column("largest_cause", CAUSE, "the cause of the longest gap"),
        Column("phase", pl.String(), "the NVTX ranges of the longest gap"),
        Column(
            "culprit",
            pl.String(),
            "the CUDA call that is charged with most of the longest gap",
        ),
        Column(
            "source",
            pl.String(),
            "the line of your program at the longest gap; empty where no backtrace was recorded",
        ),
        Column(
            "via",
            pl.String(),
            "the line of a framework at the longest gap; empty where your program called none",
        ),
    ],
)

_OF: Final = ["process", "device_no", "device"]
_CAUSES: Final = [f"{cause}_ns" for cause in CAUSES]
_BUSY: Final = ["compute_ns", "comm_exposed_ns", "copy_exposed_ns"]

MOST_RUNS: Final = 4
"""So many runs of step numbers are listed."""


def step_groups(view: View) -> pl.DataFrame:
    """The STEP_GROUPS table."""
    axis = view.events.axis
    pieces = clip_rows(_pieces(view), view.windows, axis).with_row_index("piece")
    pieces = pieces.hstack(view.busy.parts(pieces, axis).select(_BUSY).get_columns())
    pieces = pieces.hstack(idle_in(pieces, view.gaps, axis).get_columns())
    largest = _largest_gaps(view, pieces)
    pieces = _grouped(pieces.join(largest, on="piece", how="left", maintain_order="left"))
    length = pl.col("end_ns") - pl.col("start_ns")
    rows = (
        pieces.with_columns(length.alias("ns"))
        .sort("group", "start_ns")
        .group_by("group", maintain_order=True)
        .agg(
            pl.col(*_OF, "kind", "every").first(),
            pl.col("step").drop_nulls().n_unique().cast(pl.Int64).alias("count"),
            pl.col("ns").sum().alias("total_ns"),
            _excess_ns().alias("excess_ns"),
            pl.col("start_ns").min(),
            pl.col(*_BUSY, *_CAUSES).sum(),
        )
    )
    of_gap = ["largest_ns", "largest_cause", "phase", "culprit", "source", "via"]
    most = pieces.drop_nulls("largest_ns").sort("largest_ns", "start_ns", descending=[True, False])
    most = most.unique("group", keep="first", maintain_order=True).select("group", *of_gap)
    return (
        rows.join(most, on="group", how="left")
        .join(_listed(pieces), on="group", how="left")
        .join(_main_causes(rows), on="group", how="left")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.sum_horizontal(_CAUSES).alias("idle_ns"),
            pl.col("steps").fill_null(""),
        )
        .sort("process", "device", "kind", "start_ns")
    )


def _pieces(view: View) -> pl.DataFrame:
    """Of each process with steps on a device the time before its steps, each step, and the time
    after them: together the device's window."""
    steps = view.timeline.steps
    kind = pl.col("kind").cast(pl.String).replace("start-up", "before").cast(STEP_GROUP)
    columns = [*_OF, "step", kind.alias("kind"), "excess_ns", "start_ns", "end_ns"]
    whole = whole_windows(view.events.ops).select(
        "device_no", pl.col("start_ns").alias("first_ns"), pl.col("end_ns").alias("last_ns")
    )
    around = (
        steps.group_by(_OF)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .join(whole, on="device_no")
    )
    nothing = pl.lit(None, pl.Int64)
    outside = [
        around.select(
            *_OF,
            nothing.alias("step"),
            pl.lit(name, STEP_GROUP).alias("kind"),
            nothing.alias("excess_ns"),
            pl.col(start).alias("start_ns"),
            pl.col(end).alias("end_ns"),
        )
        for name, start, end in (("before", "first_ns", "start_ns"), ("after", "end_ns", "last_ns"))
    ]
    pieces = pl.concat([steps.select(columns), *outside])
    length_ns = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    return pieces.with_columns(length_ns).filter(pl.col("length_ns") > 0)


def _excess_ns() -> pl.Expr:
    """What one-offs took beyond the steps around them; null where a window cuts one."""
    whole = pl.col("ns") == pl.col("length_ns")
    one_off = pl.col("kind").cast(pl.String).is_in(["one-off", "periodic"])
    return pl.when((whole & one_off).all()).then(pl.col("excess_ns").sum())


def _largest_gaps(view: View, pieces: pl.DataFrame) -> pl.DataFrame:
    """By `piece`, but not of steady steps, the longest gap: its length, cause, place and line."""
    apart = pieces.filter(pl.col("kind") != "steady")
    first, past = gaps_in(apart, view.gaps, view.events.axis)
    inside = apart.select("piece", pl.int_ranges(first, past).alias("gap")).explode("gap")
    inside = inside.drop_nulls("gap")
    length_ns = view.gaps.select((pl.col("end_ns") - pl.col("start_ns")).alias("ns"))["ns"]
    inside = inside.with_columns(length_ns.gather(inside["gap"]).alias("largest_ns"))
    longest = inside.filter(pl.col("largest_ns") == pl.col("largest_ns").max().over("piece"))
    longest = longest.unique("piece", keep="first", maintain_order=True)
    named = gap_rows(view, view.gaps[longest["gap"]]).select(
        pl.col("cause").alias("largest_cause"), "phase", "culprit", "source", "via"
    )
    return longest.drop("gap").hstack(named.get_columns())


def _grouped(pieces: pl.DataFrame) -> pl.DataFrame:
    """`pieces` with `group` (those of a row), and `every` and the kind `periodic` for one-offs that
    come back."""
    paused = pieces.filter(pl.col("kind") == "one-off").drop_nulls("largest_ns")
    paused = paused.sort("largest_ns", "start_ns", descending=[True, False])
    steps = paused.unique([*_OF, "step"], keep="first", maintain_order=True)
    common = [*_OF, "phase", "largest_cause"]
    periods = with_period(steps, common).select(*_OF, "step", "period", "every")
    pieces = pieces.join(
        periods, on=[*_OF, "step"], how="left", nulls_equal=True, maintain_order="left"
    )
    again = pl.col("period").is_not_null()
    kind = pl.when(again).then(pl.lit("periodic", STEP_GROUP)).otherwise("kind").alias("kind")
    pieces = pieces.with_columns(kind)
    alone = pl.when(pl.col("kind") == "one-off").then("step").alias("alone")
    numbered = pieces.select(pl.struct(*_OF, "kind", "period", alone).alias("of"))
    return pieces.with_columns(numbered["of"].rank("dense").alias("group"))


def _listed(pieces: pl.DataFrame) -> pl.DataFrame:
    """By `group` its `steps` as text: `0, 4 to 9`; of many runs the first."""
    steps = pieces.select("group", "step").drop_nulls().unique().sort("group", "step")
    apart = (pl.col("step").diff() != 1) | (pl.col("group").diff() != 0)
    runs = (
        steps.with_columns(apart.fill_null(value=False).cum_sum().alias("run"))
        .group_by("group", "run", maintain_order=True)
        .agg(pl.col("step").first(), pl.col("step").last().alias("last"))
    )
    first, last = pl.col("step"), pl.col("last")
    text = (
        pl.when(last == first)
        .then(pl.format("{}", first))
        .when(last == first + 1)
        .then(pl.format("{}, {}", first, last))
        .otherwise(pl.format("{} to {}", first, last))
    )
    more = pl.when(pl.len() > MOST_RUNS).then(pl.lit(", …")).otherwise(pl.lit(""))
    return (
        runs.with_columns(text.alias("text"))
        .group_by("group", maintain_order=True)
        .agg(pl.col("text").head(MOST_RUNS).str.join(", ").alias("text"), more.alias("more"))
        .select("group", (pl.col("text") + pl.col("more")).alias("steps"))
    )


def _main_causes(rows: pl.DataFrame) -> pl.DataFrame:
    """By `group` the two causes with most of its idle time."""
    long = rows.unpivot(_CAUSES, index="group", variable_name="cause", value_name="ns")
    long = long.filter(pl.col("ns") > 0).with_columns(
        pl.col("cause").str.strip_suffix("_ns").cast(CAUSE)
    )
    ranked = long.sort("group", "ns", "cause", descending=[False, True, False])
    return ranked.group_by("group", maintain_order=True).agg(
        pl.col("cause").first(),
        pl.col("ns").first().alias("cause_ns"),
        pl.col("cause").get(1, null_on_oob=True).alias("second_cause"),
        pl.col("ns").get(1, null_on_oob=True).alias("second_cause_ns"),
    )


TABLES: Final = (
    Table(
        name="step_groups",
        schema=STEP_GROUPS,
        make=step_groups,
        csv="with rows",
        json_key="step_groups",
        page_rows=3,
        full_rows=20,
        judged=False,
        filled_by="name the range that is one step with --step NAME, or use nsysflow.steps",
        shown=(
            "kind steps count total_ns excess_ns idle_ns cause largest_ns phase source device "
            "process report every comm_exposed_ns largest_cause culprit second_cause"
        ),
    ),
)
