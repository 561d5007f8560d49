"""Gaps: one row each, summed by place and cause, and summed by length."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, WITH_CULPRIT
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import percent, repeated, scatter_table, whole_ns
from nsysflow.analysis.idle.run_ahead import Gaps
from nsysflow.analysis.phases.attribution import Attribution
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.selection.windows import RowParts
from nsysflow.analysis.tables.table import CAUSE_COLUMNS, Column, Table, TableSchema, shared
from nsysflow.base.names import NOT_RECORDED

GAP_SUMMARY: Final = TableSchema(
    """One row per place, cause, culprit and line. A gap with three causes counts in three rows.
    Rows are ordered by place, not by size, so that two summaries can be compared with diff.
    `phase` is where the host was: empty where no range was open, `(not recorded)` where the
    cause is `unknown`. `gaps` counts a gap once for each place of the cause.
    `per_step_ns` is the part inside steps, divided by the number of steps of the processes whose
    work ended the gaps; null if they have no steps. `steady_per_step_ns` is the same of steady
    steps.""",
    [
        *shared("report device"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges in which the host was; empty outside all ranges; `(not recorded)` "
            "where the cause is `unknown`",
        ),
        *shared("cause culprit source via"),
        Column("gaps", pl.Int64(), "in how many gaps"),
        Column("total_ns", pl.Int64(), "the idle time in all of them together"),
        Column("mean_ns", pl.Int64(), "the idle time per gap"),
        Column("max_ns", pl.Int64(), "the most in a single gap"),
        Column(
            "per_step_ns",
            pl.Int64(),
            "the idle time inside steps, over the number of steps; empty without steps",
        ),
        Column("window_pct", pl.Float64(), "the share of the GPU's window"),
        Column(
            "steady_per_step_ns",
            pl.Int64(),
            "the idle time inside steady steps, over their number; empty without steady steps",
        ),
    ],
)

GAP_HISTOGRAM: Final = TableSchema(
    """One row per device, length (`< 2 us`, …) and largest cause of gaps.""",
    [
        *shared("report device"),
        Column("length", pl.String(), "how long the gaps are"),
        Column("cause", CAUSE, "the cause with the largest part of each gap"),
        *shared("gaps idle_ns"),
    ],
)

GAPS: Final = TableSchema(
    """One row per gap, sorted by device and start; the causes sum to the duration. `cause` is the
    largest part and `culprit` the call blamed for most of it. `phase` is where the host was in
    most of that part, `waiting_phase` where the next operation was launched; both are empty where
    no range was open. `phase` is `(not recorded)` where the cause is `unknown`, `waiting_phase`
    without a launch. `host_range` is where the host
    was between calls; empty where no range was open or the launch had begun before the gap.""",
    [
        *shared("report device"),
        Column("gap", pl.Int64(), "the gap's number on its GPU, from 0"),
        Column("step", pl.Int64(), "the step that it starts in; empty outside the steps"),
        *shared("start_ns end_ns"),
        Column("duration_ns", pl.Int64(), "how long nothing runs"),
        Column("cause", CAUSE, "the cause with the largest part of it"),
        *shared("culprit source via"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges in which the host was for most of the cause; empty outside all ranges",
        ),
        Column(
            "waiting_phase",
            pl.String(),
            "the NVTX ranges in which the next operation was launched: what had to wait",
        ),
        Column(
            "host_range",
            pl.String(),
            "the NVTX ranges in which the host was between calls; empty where the launch had begun "
            "before the gap",
        ),
        Column("prev_op", pl.String(), "the operation that ended at its start"),
        Column("next_op", pl.String(), "the operation that started at its end"),
        *CAUSE_COLUMNS,
        Column(
            "descheduled_ns",
            pl.Int64(),
            "of `host_ns`, how long the thread that launches waited for a CPU; empty where nothing "
            "is known of its waits",
        ),
        Column(
            "gil_ns",
            pl.Int64(),
            "the part of `host` and `launch` in which the thread waits for Python's lock (GIL) "
            "while another thread holds it: recorded by `profile --gil`, else estimated from CPU "
            "time and samples (column `estimated` of table gil); empty where too little is known",
        ),
    ],
)

LENGTHS: Final = (
    (2_000, "< 2 us"),
    (5_000, "< 5 us"),
    (20_000, "< 20 us"),
    (100_000, "< 100 us"),
    (1_000_000, "< 1 ms"),
    (10_000_000, "< 10 ms"),
    (100_000_000, "< 100 ms"),
)
"""Upper borders of the histogram's classes, in ns."""

LONGER: Final = "longer"
"""The histogram's last class."""


LINES: Final = ("source", "via")
"""The columns that say where in the program's code the host was."""

SLICE_ROWS: Final = 262_144
"""How many gaps become text at a time. As text, a gap takes ten times the memory."""

FIRST_ROWS: Final = 1000
"""How many are in the first slice."""


def gap_table(view: View) -> pl.DataFrame:
    """The GAPS table."""
    return pl.concat(gap_slices(view))


def gap_slices(view: View, at_least_ns: int = 0) -> Iterator[pl.DataFrame]:
    """The GAPS table in slices, only gaps of `at_least_ns` or longer; at least one slice.

    The first slice is short: some only look at it.
    """
    gaps = view.gaps
    if at_least_ns > 0:
        gaps = gaps.filter(_length_ns() >= at_least_ns)
    yield gap_rows(view, gaps[:FIRST_ROWS])
    for first in range(FIRST_ROWS, len(gaps), SLICE_ROWS):
        yield gap_rows(view, gaps[first : first + SLICE_ROWS])


def longest_gaps(view: View, limit: int, at_least_ns: int = 0) -> pl.DataFrame:
    """The longest `limit` rows of GAPS, longest first; the others are not made."""
    length = view.gaps.select(_length_ns().alias("ns")).with_row_index("row")
    top = length.filter(pl.col("ns") >= at_least_ns).top_k(limit, by="ns")
    longest = view.gaps[top["row"]].sort(
        _length_ns(), "device_no", "start_ns", descending=[True, False, False]
    )
    return gap_rows(view, longest)


def count_gaps(view: View, at_least_ns: int = 0) -> int:
    """How many gaps, or parts of gaps in the windows, are `at_least_ns` or longer."""
    return int(view.gaps.select((_length_ns() >= at_least_ns).sum()).item())


def _length_ns() -> pl.Expr:
    return pl.col("end_ns") - pl.col("start_ns")


def gap_rows(view: View, gaps: Gaps) -> pl.DataFrame:
    """Rows of GAPS for some of the view's gaps."""
    events, attribution, ops = view.events, view.attribution, view.events.ops
    dominant = pl.col("cause")
    culprit = pl.coalesce(
        pl.when(dominant == cause).then(f"{cause}_by")
        for cause in WITH_CULPRIT
        if cause != "profiler"
    )
    rows = gaps.select(
        culprit.alias("call"), pl.when(dominant == "profiler").then("profiler_by").alias("overhead")
    )
    host, waiting = view.timeline.main_paths[gaps["gap"]], attribution.path_of(gaps["node"])
    launchless = pl.col("next_call").is_null()
    return gaps.select(
        ops["device"][gaps["next_op"]],
        _numbers(view, gaps),
        "step",
        "start_ns",
        "end_ns",
        _length_ns().alias("duration_ns"),
        "cause",
        _culprits(view, gaps, rows).alias("culprit"),
        *(line.cast(pl.String) for line in _lines(events, rows["call"], gaps["next_call"])),
        place_names(attribution, host).alias("phase"),
        place_names(attribution, waiting, unknown=launchless).alias("waiting_phase"),
        attribution.name_of(gaps["host_node"]).alias("host_range"),
        ops["short_name"][gaps["prev_op"]].cast(pl.String).alias("prev_op"),
        ops["short_name"][gaps["next_op"]].cast(pl.String).alias("next_op"),
        *(f"{cause}_ns" for cause in CAUSES),
        descheduled(view, gaps),
        _gil_ns(view, gaps),
    )


def descheduled(view: View, gaps: Gaps) -> pl.Series:
    """Per gap of the view `descheduled_ns`, how much of its host code is a wait for a CPU (spec
    §29.4); null where that is not known."""
    by_gap = descheduled_by_thread(view, gaps).group_by("row").agg(pl.col("descheduled_ns").sum())
    found = scatter_table(len(gaps), by_gap["row"], by_gap["descheduled_ns"])
    return found.alias("descheduled_ns")


def descheduled_by_thread(view: View, gaps: Gaps) -> pl.DataFrame:
    """`row` (in `gaps`), `thread_no`, `descheduled_ns`: the same for each thread."""
    of_rows = gaps.select("gap", "host_ns").with_row_index("row")
    rows = of_rows.join(view.timeline.gap_causes.delays, on="gap")
    left = (pl.col("delayed_ns").cast(pl.Int128) * pl.col("host_ns")).floordiv(pl.col("code_ns"))
    return rows.select("row", "thread_no", left.cast(pl.Int64).alias("descheduled_ns"))


def _gil_ns(view: View, gaps: Gaps) -> pl.Series:
    """`gil_ns` of each gap; null where nobody recorded the GIL."""
    if view.gil_instants is None:
        return repeated(None, len(gaps), pl.Int64).alias("gil_ns")
    held = view.gil_instants.drop_nulls("stack")
    key = ["gap", "start_ns"]
    parts = view.gaps[key][held["row"]].with_columns(held["ns"]).group_by(key).agg(pl.sum("ns"))
    found = gaps[key].join(parts, on=key, how="left", maintain_order="left")["ns"]
    return found.fill_null(0).alias("gil_ns")


def _numbers(view: View, gaps: Gaps) -> pl.Series:
    """The number of each gap, from 0 on its device."""
    device_no = view.timeline.bare_gaps["device_no"]
    first = device_no.search_sorted(gaps["device_no"])
    return (gaps["gap"].cast(pl.Int64) - first.cast(pl.Int64)).alias("gap")


_UNKNOWN: Final = pl.col("cause") == "unknown"


def place_names(
    attribution: Attribution, path: pl.Series, *, unknown: pl.Expr = _UNKNOWN
) -> pl.Expr:
    """The names of the paths of rows; empty outside all ranges, NOT_RECORDED where `unknown`."""
    name = attribution.paths["joined"][path].fill_null("")
    return pl.when(unknown).then(pl.lit(NOT_RECORDED)).otherwise(name)


def _culprits(view: View, gaps: Gaps, rows: pl.DataFrame) -> pl.Series:
    """The culprit of each gap; empty without one."""
    names = _names(view.events, rows)
    if not (gaps["cause"] == "dependency").any():
        return names
    awaited = _awaited(view, gaps["next_op"]).fill_null("")
    dependent = pl.lit(gaps["cause"]) == "dependency"
    return pl.select(pl.when(dependent).then(awaited).otherwise(names)).to_series()


def _awaited(view: View, ops: pl.Series) -> pl.Series:
    """The operation whose event the stream of each of `ops` was told to wait for, as
    `NAME on stream S`; null without one."""
    awaited = view.timeline.producers.by_event[ops]
    name, stream = (view.events.ops[column][awaited] for column in ("short_name", "stream"))
    text = pl.format("{} on stream {}", name.cast(pl.String), stream)
    return pl.select(text.alias("culprit")).to_series()


def _names(events: Events, rows: pl.DataFrame) -> pl.Series:
    """Names of `call` or `overhead` rows; empty if there is neither."""
    call = events.calls["name"][rows["call"]].cast(pl.String)
    if rows["overhead"].null_count() == len(rows):
        return call.fill_null("")
    overhead = events.overhead["name"][rows["overhead"]].cast(pl.String)
    return pl.select(pl.coalesce(call, overhead, pl.lit(""))).to_series()


def _lines(events: Events, culprit: pl.Series, launch: pl.Series) -> list[pl.Series]:
    """`source` and `via` of the culprits, or else of the launches; both are rows of the calls."""
    call = pl.select(pl.coalesce(culprit, launch)).to_series()
    return [events.calls[column][call] for column in LINES]


def gap_summary(view: View) -> pl.DataFrame:
    """The GAP_SUMMARY table, in a stable order."""
    events, attribution = view.events, view.attribution
    gaps, tracks = _with_track(view.gaps)
    base = len(attribution.paths) + 1
    groups = pl.concat(
        [
            _parts(view, gaps, rows, cause, base)
            for cause, rows in occurring(view.idle_parts).items()
        ]
    )
    groups = groups.join(tracks, on="track")
    groups = groups.with_columns(place_names(attribution, groups["path"]).alias("phase"))
    counted = view.steps.group_by("process", "device_no").agg(
        pl.len().alias("steps"), pl.col("steady").sum().alias("steady_steps")
    )
    key = ["device_no", "phase", "cause", "culprit", *LINES]
    sums = pl.col("gaps", "total_ns", "in_steps_ns", "in_steady_ns").sum()
    by_process = groups.group_by(*key, "process").agg(sums, pl.col("max_ns").max())
    by_process = by_process.join(counted, on=["process", "device_no"], how="left")
    window = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("window_ns")
    return (
        by_process.group_by(key)
        .agg(sums, pl.col("max_ns").max(), pl.col("steps", "steady_steps").sum())
        .join(view.windows.group_by("device_no").agg(window), on="device_no")
        .join(events.devices, on="device_no")
        .with_columns(
            whole_ns(pl.col("total_ns") / pl.col("gaps")).alias("mean_ns"),
            _mean_ns("in_steps_ns", "steps").alias("per_step_ns"),
            _mean_ns("in_steady_ns", "steady_steps").alias("steady_per_step_ns"),
            percent(pl.col("total_ns"), pl.col("window_ns")).alias("window_pct"),
        )
        .sort("device", "phase", "cause", "culprit", *LINES)
    )


def _mean_ns(total: str, count: str) -> pl.Expr:
    """Per step; null where there are none."""
    steps = pl.when(pl.col(count) > 0).then(count)  # older polars also casts what `then` leaves out
    return whole_ns(pl.col(total) / steps)


def _with_track(gaps: Gaps) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`gaps` plus `track`, a number for `device_no` and `process`; and a frame of the tracks."""
    process = pl.col("process").rank("dense").fill_null(0).cast(pl.Int64)
    track = pl.col("device_no").cast(pl.Int64) * (process.max() + 1) + process
    gaps = gaps.with_columns(track.alias("track"))
    return gaps, gaps[["track", "device_no", "process"]].unique("track")


def occurring(parts: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """`View.idle_parts` of the causes that occur, as most are rare. If none does, of all causes: a
    table made of no frames would lack its columns."""
    return {cause: rows for cause, rows in parts.items() if not rows.is_empty()} or parts


def idle_rows(view: View, gaps: pl.DataFrame, rows: RowParts, cause: str) -> pl.DataFrame:
    """The parts of gaps with one cause, one by one: `row`, `path`, `ns`, and as categories
    `culprit`, `source` and `via`.

    Args:
        view: the selected part.
        gaps: of the view.
        rows: that cause's part of `View.idle_parts`.
        cause: its name.
    """
    events = view.events
    next_op, next_call = (gaps[column][rows["row"]] for column in ("next_op", "next_call"))
    nobody = repeated(None, len(rows), pl.UInt32)
    culprit = gaps[f"{cause}_by"][rows["row"]] if cause in WITH_CULPRIT else nobody
    culprit = rows["call"].zip_with(rows["split"], culprit)
    names = events.overhead["name"] if cause == "profiler" else events.calls["name"]
    call = nobody if cause == "profiler" else culprit
    named = names[culprit].alias("culprit")
    if cause == "dependency":
        named = _awaited(view, next_op)
    return rows[["row", "path", "ns"]].hstack([named, *_lines(events, call, next_call)])


def lines_in(parts: pl.DataFrame) -> list[str]:
    """The columns of lines that hold any: most reports have no backtraces, and no lines to group
    by."""
    return [name for name in LINES if parts[name].null_count() < len(parts)]


def both_lines(lines: list[str]) -> list[pl.Expr]:
    """Both columns of lines as text, of rows that have those of `lines_in`."""
    return [
        (pl.col(name) if name in lines else pl.lit(None)).cast(pl.String).alias(name)
        for name in LINES
    ]


def _parts(view: View, gaps: pl.DataFrame, rows: RowParts, cause: str, base: int) -> pl.DataFrame:
    """The parts of gaps with one cause, grouped by track, path, culprit and line.

    Args:
        view: the selected part.
        gaps: with `track`.
        rows: that cause's part of `View.idle_parts`.
        cause: its name.
        base: more than all paths. Grouping by one number for track and path takes half the time of
            grouping by two.
    """
    parts = idle_rows(view, gaps, rows, cause)
    of_gap = [gaps[column][parts["row"]] for column in ("track", "step", "steady")]
    place = pl.col("track") * base + pl.col("path").fill_null(base - 1)
    parts = parts.with_columns(*of_gap).with_columns(place.alias("place"))
    lines = lines_in(parts)
    ns = pl.col("ns")
    return (
        parts.group_by("place", "culprit", *lines)
        .agg(
            pl.len().cast(pl.Int64).alias("gaps"),
            ns.sum().alias("total_ns"),
            ns.max().alias("max_ns"),
            ns.filter(pl.col("step").is_not_null()).sum().alias("in_steps_ns"),
            ns.filter("steady").sum().alias("in_steady_ns"),
            pl.col("track", "path").first(),
        )
        .select(
            "track",
            "path",
            *("gaps", "total_ns", "max_ns", "in_steps_ns", "in_steady_ns"),
            pl.col("culprit").cast(pl.String).fill_null(""),
            *both_lines(lines),
            pl.lit(cause, CAUSE).alias("cause"),
        )
    )


def gap_histogram(view: View) -> pl.DataFrame:
    """The GAP_HISTOGRAM table."""
    ns = _length_ns()
    labels = [label for _, label in LENGTHS] + [LONGER]
    length_class = pl.sum_horizontal((ns >= border).cast(pl.UInt8) for border, _ in LENGTHS)
    groups = (
        view.gaps.group_by("device_no", length_class.alias("length"), "cause")
        .agg(pl.len().cast(pl.Int64).alias("gaps"), ns.sum().alias("idle_ns"))
        .join(view.events.devices, on="device_no")
        .sort("device", "length", "cause")
    )
    named = pl.Series("length", labels).gather(groups["length"])
    return groups.with_columns(named)


TABLES: Final = (
    Table(
        name="gap_summary",
        schema=GAP_SUMMARY,
        make=gap_summary,
        json_key="gap_summary",
        page_rows=0,
        full_rows=15,
        ranked_by="total_ns",
        filled_by="this selection has no idle time between two operations",
        shown="total_ns cause phase source culprit window_pct device report per_step_ns gaps",
    ),
    Table(
        name="gap_histogram",
        schema=GAP_HISTOGRAM,
        make=gap_histogram,
        csv="never",
        json_key="gap_histogram",
        filled_by="this selection has no idle time between two operations",
        shown="length cause gaps idle_ns device report",
    ),
    Table(
        name="gaps",
        schema=GAPS,
        make=gap_table,
        json_key=None,
        full_rows=10,
        in_slices=True,
        ranked_by="duration_ns",
        filled_by="this selection has no idle time between two operations",
        shown=(
            "duration_ns start_ns cause phase source culprit device report waiting_phase next_op "
            "step"
        ),
    ),
)
