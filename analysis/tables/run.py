"""The ledger: of what all recorded time of a process consists (spec §8.17)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.columns import scatter_table
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.schema import CAUSE, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.kinds import (
    NEVER_JUDGED,
    compiling_ranges,
    gaps_in,
    idle_in,
    starting_up,
)
from nsysflow.analysis.steps.loops import MAIN
from nsysflow.analysis.steps.pauses import recurring, size_classes
from nsysflow.analysis.steps.ranges import StepTimes
from nsysflow.analysis.tables.gaps import idle_rows, occurring, place_names
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

PARTS_OF_STEPS: Final = ("typical", "recurring", "longer")
"""The parts of the recorded time that are steps of the judged loop after start-up."""

RUN_PART: Final = pl.Enum(["start-up", *PARTS_OF_STEPS, "loop", "between", "end"])
"""What a row of `run` holds."""

RUN: Final = TableSchema(
    """The ledger of the recording: the rows of a process and device add up to its recorded time,
    from its first event to its last. `start-up` is what precedes the steps, the first ones that
    load or compile code, in other loops too, and those that nsysflow watches; `typical` are the
    steps that are judged; `recurring` and `longer` are those that take much longer, with and
    without a rhythm; `loop` is another loop, such as validation; `between` is what lies between
    loops, and steps that were not recorded whole; `end` is what follows. `cause` has most of the
    row's idle time; `phase`, `source`, `via` and `culprit` say where most of that is.""",
    [
        *shared("report process device"),
        Column("part", RUN_PART, "start-up, typical, recurring, longer, loop, between or end"),
        Column("steps", pl.String(), "the steps' numbers; of another loop, which it is"),
        Column("count", pl.Int64(), "how many steps; of start-up those of the judged loop"),
        Column("start_ns", pl.Int64(), "when the first of them starts, on the report's clock"),
        Column("end_ns", pl.Int64(), "when the last of them ends, on the report's clock"),
        Column("time_ns", pl.Int64(), "how long they last together"),
        Column("busy_ns", pl.Int64(), "the part of it in which the GPU runs something"),
        Column("cause", CAUSE, "the cause with most of their idle time"),
        Column("cause_ns", pl.Int64(), "the idle time with that cause"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges with most of that idle time; of another loop, the range that is its "
            "step",
        ),
        *shared("source via culprit"),
        Column(
            "every",
            pl.Int64(),
            "of recurring steps, the usual distance from one to the next, in steps",
        ),
        Column(
            "excess_ns",
            pl.Int64(),
            "how much longer recurring and longer steps took than those around them",
        ),
    ],
)

_TRACK: Final = ["process", "device_no", "device"]
_CAUSES: Final = [f"{cause}_ns" for cause in CAUSES]
_LINE: Final = ["source", "via", "culprit"]
_PLACE: Final = dict.fromkeys(["phase", *_LINE], pl.String)

MOST_RUNS: Final = 4
"""So many runs of step numbers are listed."""


def run_table(view: View) -> pl.DataFrame:
    """The RUN table."""
    grouped = kept_with(view, "pieces of run", lambda: _grouped(view))
    if grouped is None:
        return RUN.to_frame()
    pieces, of_gap = grouped.pieces, grouped.of_gap
    rows = (
        pieces.sort("group", "start_ns")
        .group_by("group", maintain_order=True)
        .agg(
            pl.col(*_TRACK, "part", "loop", "every").first(),
            pl.col("instance").drop_nulls().n_unique().cast(pl.Int64).alias("count"),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            _length_ns().sum().alias("time_ns"),
            pl.col("busy_ns").sum(),
            _excess_ns().alias("excess_ns"),
            pl.col(_CAUSES).sum(),
        )
    )
    rows = rows.hstack(_main_causes(rows).get_columns())
    groups = [pieces["group"][of_process] for of_process in of_gap]
    loops = view.timeline.loops.paths.select("process", "loop", pl.col("joined").alias("range"))
    return (
        rows.join(_main_places(view, rows, groups), on="group", how="left")
        .join(listed(pieces.filter(pl.col("loop") == MAIN)), on="group", how="left")
        .join(loops, on=["process", "loop"], how="left")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("steps").fill_null(""),
            pl.coalesce("range", "phase").alias("phase"),
        )
        .sort("process", "device", "part", "start_ns")
    )


@dataclass(frozen=True, kw_only=True)
class _Grouped:
    """The pieces of the recorded time by the row of RUN that they are part of (`group`), and for
    each process the piece of each gap."""

    pieces: pl.DataFrame
    of_gap: list[pl.Series]


def _grouped(view: View) -> _Grouped | None:
    """None where nothing was recorded."""
    axis = view.events.axis
    pieces = view.clip_recorded(_pieces(view)).with_row_index("piece")
    if pieces.is_empty():
        return None
    parts = view.busy.parts(pieces, axis).select(
        (pl.col("window_ns") - pl.col("idle_ns")).alias("busy_ns")
    )
    pieces = pieces.hstack([*parts, *idle_in(pieces, view.gaps, axis)])
    of_gap = _pieces_of_gaps(view, pieces)
    return _Grouped(pieces=_with_groups(view, pieces, of_gap), of_gap=of_gap)


def steps_of_rows(view: View) -> pl.DataFrame:
    """The steps of RUN's rows of recurring and longer steps: rows of `timeline.steps`, with `part`
    and `row_ns`, the `start_ns` of the row."""
    grouped = kept_with(view, "pieces of run", lambda: _grouped(view))
    key = [*_TRACK, "step"]
    if grouped is None:
        return view.timeline.steps.clear().with_columns(part=pl.lit(None, RUN_PART), row_ns=0)
    long = pl.col("part").cast(pl.String).is_in(["recurring", "longer"])
    pieces = grouped.pieces.with_columns(row_ns=pl.col("start_ns").min().over("group"))
    rows = pieces.filter(long)[[*key, "part", "row_ns"]].unique()
    return view.timeline.steps.join(rows, on=key, maintain_order="left")


def _length_ns() -> pl.Expr:
    return pl.col("end_ns") - pl.col("start_ns")


def _pieces(view: View) -> pl.DataFrame:
    """Of each process with steps on a device its recorded time, cut into pieces: each step and each
    instance of another loop, and what lies before, between and after them."""
    kinds = view.timeline.steps[[*_TRACK, "step", "kind", "excess_ns"]]
    key = [*_TRACK, "loop", "step"]
    main = kinds.with_columns(pl.lit(MAIN, pl.UInt32).alias("loop"))
    instances = view.timeline.instances
    instances = instances.with_columns(_starting_up(view, instances).alias("starts"))
    instances = instances.join(main, on=key, how="left", maintain_order="left")
    last = pl.int_range(pl.len(), 0, -1).over(_TRACK) == 1
    kind = pl.col("kind").cast(pl.String).replace({"steady": "typical", "one-off": "longer"})
    not_whole = pl.col("kind").cast(pl.String).is_in(NEVER_JUDGED)
    part = (
        pl.when(pl.col("loop") > MAIN)
        .then(pl.when("starts").then(pl.lit("start-up")).otherwise(pl.lit("loop")))
        .when(not_whole & last)
        .then(pl.lit("end"))
        .when(not_whole)
        .then(pl.lit("between"))
        .otherwise(kind)
    )
    inside = instances.join(recorded_times(view), on="process", maintain_order="left").select(
        *key,
        "excess_ns",
        part.alias("part"),
        *("start_ns", "end_ns", "first_ns", "last_ns"),
        pl.col("end_ns").shift(1).over(_TRACK).alias("before_ns"),
        last.alias("last"),
    )
    first = pl.col("before_ns").is_null()
    begins = first | ((pl.col("loop") == MAIN) & (pl.col("part") == "start-up"))
    ahead = inside.with_columns(
        pl.coalesce("before_ns", "first_ns").alias("start_ns"),
        pl.col("start_ns").alias("end_ns"),
        pl.when(begins).then(pl.lit("start-up")).otherwise(pl.lit("between")).alias("part"),
    )
    behind = inside.filter("last").with_columns(
        pl.col("end_ns").alias("start_ns"), pl.col("last_ns").alias("end_ns"), part=pl.lit("end")
    )
    columns = [*key, "excess_ns", "part", "start_ns", "end_ns"]
    around = pl.concat([ahead, behind]).with_columns(
        pl.lit(None, inside.schema[name]).alias(name) for name in ("loop", "step", "excess_ns")
    )
    pieces = pl.concat([inside.select(columns), around.select(columns)])
    of_other_start = (pl.col("loop") > MAIN) & (pl.col("part") == "start-up")
    return pieces.filter(_length_ns() > 0).with_columns(
        pl.col("part").cast(RUN_PART),
        _length_ns().alias("length_ns"),
        pl.when(pl.col("step").is_not_null() & ~of_other_start)
        .then(pl.struct("loop", "step"))
        .alias("instance"),
    )


def _starting_up(view: View, instances: StepTimes) -> pl.Series:
    timeline = view.timeline
    return starting_up(
        instances,
        gaps=timeline.gap_causes.gaps,
        compiling=compiling_ranges(timeline.attribution.ranges),
        axis=view.events.axis,
    )


def recorded_times(view: View) -> pl.DataFrame:
    """`process`, `first_ns`, `last_ns`: from the first to the last event of each process."""
    events = view.events
    threads = events.threads[["thread_no", "process"]]
    ends = [pl.col("start_ns").min().alias("first_ns"), pl.col("end_ns").max().alias("last_ns")]
    both = [
        rows.lazy().group_by("process").agg(ends)
        for rows in (events.ops, events.ranges, events.overhead)
    ]
    calls = events.calls.lazy().group_by("thread_no").agg(ends).join(threads.lazy(), on="thread_no")
    both.append(calls.select("process", "first_ns", "last_ns"))
    return (
        pl.concat(both)
        .group_by("process")
        .agg(pl.col("first_ns").min(), pl.col("last_ns").max())
        .collect()
    )


def _pieces_of_gaps(view: View, pieces: pl.DataFrame) -> list[pl.Series]:
    """For each process, the piece in which each of the view's gaps starts; null outside all. A
    piece begins and ends where an operation does, so that none cuts a gap."""
    found = []
    for _, mine in pieces.group_by("process", maintain_order=True):
        first, past = gaps_in(mine, view.gaps, view.events.axis)
        inside = mine.select("piece", pl.int_ranges(first, past).alias("row")).explode("row")
        inside = inside.drop_nulls("row")
        found.append(scatter_table(len(view.gaps), inside["row"], inside["piece"]))
    return found


def _with_groups(view: View, pieces: pl.DataFrame, of_gap: list[pl.Series]) -> pl.DataFrame:
    """`pieces` with `group` (those of a row), and for steps that come back the part `recurring` and
    `every`."""
    longer = pieces.filter(pl.col("part") == "longer")
    places = _idle_places(view, of_gap, longer["piece"])
    longer = longer.join(places, on="piece", how="left", maintain_order="left")
    recurs = [
        row
        for (process, device, *_), pauses in longer.group_by(
            "process", "device_no", "place", maintain_order=True
        )
        for row in _recurring(view, pauses.sort("step"), int(process), int(device))
    ]
    schema = {"piece": pl.UInt32, "rhythm": pl.Int64, "every": pl.Int64}
    rhythms = pl.DataFrame(recurs, schema=schema, orient="row")
    pieces = pieces.join(rhythms, on="piece", how="left", maintain_order="left")
    recurring_part = pl.lit("recurring", RUN_PART)
    again = pl.col("rhythm").is_not_null()
    pieces = pieces.with_columns(
        pl.when(again).then(recurring_part).otherwise("part").alias("part")
    )
    other_loop = pl.when(pl.col("part") == "loop").then("loop").alias("of")
    numbered = pieces.select(pl.struct(*_TRACK, "part", other_loop, "rhythm").alias("of"))
    return pieces.with_columns(numbered["of"].rank("dense").alias("group"))


def _recurring(
    view: View, pauses: pl.DataFrame, process: int, device_no: int
) -> Iterator[tuple[int, int, int]]:
    """The pauses at one place that come back: piece, the first piece of its row, the distance."""
    steps = view.timeline.steps.filter(
        pl.col("process") == process,
        pl.col("device_no") == device_no,
        pl.col("kind").cast(pl.String) != "start-up",
    )
    typical = steps.filter("steady").select(_length_ns().median()).item()
    run = range(steps["step"][0], steps["step"][-1] + 1)
    for of_size in size_classes(pauses["excess_ns"].to_list()):
        alike = pauses[of_size]
        pieces, numbers = alike["piece"].to_list(), alike["step"].to_list()
        for row in recurring(numbers, alike["start_ns"].to_list(), run, round(typical or 1)):
            for member in row.members:
                yield pieces[member], pieces[row.members[0]], row.every


def _idle_places(view: View, of_gap: list[pl.Series], pieces: pl.Series) -> pl.DataFrame:
    """By `piece` the `place` (a path, null outside ranges) with most of its idle time."""
    rows = [
        pl.DataFrame([of_process[parts["row"]].alias("piece"), parts["path"], parts["ns"]])
        for parts in occurring(view.idle_parts).values()
        for of_process in of_gap
    ]
    idle = pl.concat(rows).filter(pl.col("piece").is_in(pieces.implode()))
    sums = idle.group_by("piece", "path").agg(pl.col("ns").sum())
    rank = view.attribution.by_name[sums["path"]].fill_null(0).alias("rank")
    most = sums.with_columns(rank).sort("piece", "ns", "rank", descending=[False, True, False])
    return most.unique("piece", keep="first").select("piece", pl.col("path").alias("place"))


def _excess_ns() -> pl.Expr:
    """What long steps took beyond those around them; null where a window cuts one. One that is
    unusual for another reason may have taken less."""
    whole = _length_ns() == pl.col("length_ns")
    long = pl.col("part").cast(pl.String).is_in(["longer", "recurring"])
    return pl.when((whole & long).all()).then(pl.col("excess_ns").clip(lower_bound=0).sum())


def _main_causes(rows: pl.DataFrame) -> pl.DataFrame:
    """Per row the cause with most of its idle time, and that time; null without idle time."""
    most = pl.max_horizontal(_CAUSES)
    first = pl.coalesce(
        pl.when(pl.col(f"{cause}_ns") == most).then(pl.lit(cause, CAUSE)) for cause in CAUSES
    )
    return rows.select(
        pl.when(most > 0).then(first).alias("cause"), pl.when(most > 0).then(most).alias("cause_ns")
    )


def _main_places(view: View, rows: pl.DataFrame, groups: list[pl.Series]) -> pl.DataFrame:
    """By `group` the place with most of its main cause: `phase`, `source`, `via`, `culprit`. Of the
    phase, the line and call with most of it.

    Args:
        view: the selected part.
        rows: `group`, `cause`.
        groups: for each process, the group of each gap.
    """
    wanted = dict(rows.filter(pl.col("cause").is_not_null())[["group", "cause"]].rows())
    found = []
    for cause, parts in view.idle_parts.items():
        mine = [group for group, of in wanted.items() if of == cause]
        for of_gap in groups if mine else ():
            here = parts.filter(of_gap[parts["row"]].is_in(mine))
            idle = idle_rows(view, view.gaps, here, cause)
            found.append(
                idle.select(
                    of_gap[idle["row"]].alias("group"),
                    "path",
                    "ns",
                    pl.lit(cause, CAUSE).alias("cause"),
                    *(pl.col(name).cast(pl.String) for name in _LINE),
                )
            )
    if not found:
        return pl.DataFrame(schema={"group": rows.schema["group"], **_PLACE})
    idle = pl.concat(found)
    rank = view.attribution.by_name[idle["path"]].fill_null(0).alias("rank")
    sums = (
        idle.with_columns(rank)
        .group_by("group", "cause", "path", "rank", *_LINE)
        .agg(
            pl.col("ns").sum(),
        )
    )
    sums = sums.with_columns(pl.col("ns").sum().over("group", "rank").alias("of_place"))
    order = ["group", "of_place", "rank", "ns", *_LINE]
    first = sums.sort(order, descending=[False, True, False, True, False, False, False])
    first = first.unique("group", keep="first", maintain_order=True)
    return first.select(
        "group",
        place_names(view.attribution, first["path"]).alias("phase"),
        "source",
        "via",
        pl.col("culprit").fill_null("").alias("culprit"),
    )


def listed(steps: pl.DataFrame) -> pl.DataFrame:
    """By `group` its `steps` as text: `0, 4 to 9`; of many runs the first."""
    steps = steps[["group", "step"]].drop_nulls().unique().sort("group", "step")
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


TABLES: Final = (
    Table(
        name="run",
        schema=RUN,
        make=run_table,
        csv="with rows",
        json_key="run",
        page_rows=0,
        full_rows=20,
        judged=False,
        complete=True,
        filled_by="name the range that is one step with --step NAME, or use nsysflow.steps",
        shown=(
            "part steps count time_ns busy_ns cause cause_ns phase source device process report "
            "excess_ns every"
        ),
    ),
)
