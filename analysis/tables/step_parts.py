"""What each step consists of: kernels, communication, copies, idle time; to the ns (spec §19)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import class_of
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.intervals import on_axis, overlaps, reached_before
from nsysflow.analysis.frames.scratch import in_files, in_slices
from nsysflow.analysis.phases.attribution import Attribution
from nsysflow.analysis.schema import GRID, STEP_PART, grid_as_text, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.gaps import (
    LINES,
    both_lines,
    idle_rows,
    lines_in,
    occurring,
    place_names,
)
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

STEP_PARTS: Final = TableSchema(
    """One row per step and part of it: kernels by class, name, grid and phase; communication and
    copies likewise; idle time by cause, phase, culprit and line. `ns` is the part of the step's
    time, so that the rows of a step sum to its duration: an instant with several kernels belongs to
    the one that started first, and of communication and copies only the exposed time counts.
    `duration_ns` and `count` are of all operations that start in the step, overlapped or not; of
    idle time `count` is that of its gaps. `kind` is the class of kernels, the kind of copies or the
    cause. `process` and `step` are null on a device without steps, whose whole window it is.""",
    [
        *shared("report process device"),
        Column(
            "step",
            pl.Int64(),
            "the step's number on its GPU, from 0; empty where the GPU has no steps",
        ),
        Column(
            "part",
            STEP_PART,
            "compute, communication, copies or idle; of communication and copies only the exposed "
            "time counts",
        ),
        Column(
            "kind",
            pl.String(),
            "the class of a kernel, the kind of a copy, or the cause of idle time",
        ),
        Column(
            "name",
            pl.String(),
            "the full name of the kernel or copy; of idle time the call that is charged with it",
        ),
        Column("short_name", pl.String(), "the name without namespace and template arguments"),
        Column("grid", pl.String(), "the grid of the kernel; empty of all else"),
        Column("phase", pl.String(), "where it was launched; of idle time where the host was"),
        *shared("source via"),
        Column(
            "ns",
            pl.Int64(),
            "its part of the step's time: the parts of a step sum to its duration",
        ),
        Column(
            "duration_ns",
            pl.Int64(),
            "how long these operations that start in the step run, overlapped or not",
        ),
        Column(
            "count",
            pl.Int64(),
            "how many of these operations start in the step; of idle time how many gaps",
        ),
    ],
)


_PARTS: Final = {"compute": "compute", "comm": "communication", "copy": "copies"}


def step_part_table(view: View) -> pl.DataFrame:
    """The STEP_PARTS table."""
    pieces = _pieces(view)
    whole = View(view.timeline)
    rows = pl.concat([_of_operations(whole, pieces), _of_gaps(whole, pieces)], how="diagonal")
    of_piece = ["process", "device", "step"]
    rows = rows.join(pieces[["piece", *of_piece]], on="piece")
    rows = rows.with_columns(
        os_pid(pl.col("process")).alias("process"), pl.col("duration_ns").fill_null(0)
    )
    return rows.sort(*of_piece, "part", "kind", "name", "grid", "phase", *LINES)


def _pieces(view: View) -> pl.DataFrame:
    """The steps, and of a device that never has any its whole window: `piece`, `layer`, `process`,
    `device_no`, `device`, `step`, `start`, `end` on the axis. Pieces of a layer are disjoint, and
    none is empty."""
    columns = ["process", "device_no", "step", "start_ns", "end_ns"]
    steps = view.steps.select(columns)
    windows = View(view.timeline).windows.join(view.windows, on="device_no", how="semi")
    windows = windows.join(view.timeline.steps, on="device_no", how="anti")
    nobody = [pl.lit(None, steps.schema[name]).alias(name) for name in ("process", "step")]
    pieces = pl.concat([steps, windows.with_columns(nobody).select(columns)])
    pieces = pieces.filter(pl.col("end_ns") > pl.col("start_ns"))
    layer = pl.col("process").rank("dense").over("device_no").fill_null(1).alias("layer")
    return (
        pieces.hstack(on_axis(pieces, view.events.axis).get_columns())
        .join(view.events.devices, on="device_no", maintain_order="left")
        .with_columns(layer)
        .sort("start")
        .with_row_index("piece")
    )


def _cut(rows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """The parts of `rows` (`start`, `end` on the axis, …) in each piece, with `piece`."""
    layers = pieces.partition_by("layer", maintain_order=True) or [pieces]
    cut = [(overlaps(rows, layer), layer["piece"]) for layer in layers]
    return pl.concat(
        [part.with_columns(piece[part["other"]].alias("piece")) for part, piece in cut]
    ).drop("other")


def _of_operations(view: View, pieces: pl.DataFrame) -> pl.DataFrame:
    """The parts of operations, by piece and what they are."""
    hidden_by = {"compute": None, "comm": view.busy.compute, "copy": view.busy.with_comm}
    ops = view.ops.select(
        "op",
        "part",
        pl.col("place").alias("start"),
        (pl.col("place") + pl.col("end_ns") - pl.col("start_ns")).alias("end"),
    )
    path = _by_name(view.attribution)[view.attribution.path_of(view.ops["node"])]
    what = view.ops.select("part", "name", *_grids(view), path.alias("path"))
    what = in_files(what, view.scratch)
    found = [_summed(_begun(rows, pieces), what) for rows in in_slices(ops, view.scratch)]
    for part, cover in hidden_by.items():
        for rows in in_slices(_alone(ops.filter(pl.col("part") == part)), view.scratch):
            alone = _cut(rows, pieces)
            ns = alone["end"] - alone["start"]
            if cover is not None:
                ns -= cover.between(alone["start"], alone["end"])
            found.append(_summed(alone.select("op", "piece", ns.alias("ns")), what))
    sums = pl.col("ns", "duration_ns", "count").sum()
    grouped = pl.concat(found, how="diagonal").group_by("piece", *what.columns).agg(sums)
    return _in_words(view, grouped.filter((pl.col("ns") > 0) | (pl.col("count") > 0)))


def _summed(rows: pl.DataFrame, what: pl.DataFrame) -> pl.DataFrame:
    """Rows with `op` and `piece`, summed by piece and `what` their operation is."""
    named = rows.drop("op").hstack(what[rows["op"]].get_columns())
    return named.group_by("piece", *what.columns).agg(pl.exclude("piece", *what.columns).sum())


def _by_name(attribution: Attribution) -> pl.Series:
    """Per path the first of those that are written like it, as `a/b` may be one range or two; null
    of what is written like the outside of all ranges."""
    paths = attribution.paths[["joined"]].with_row_index("path")
    first = pl.col("path").first().over("joined")
    return paths.select(pl.when(pl.col("joined") != "").then(first).alias("path")).to_series()


def _alone(ops: pl.DataFrame) -> pl.DataFrame:
    """The stretches in which no operation runs that started earlier: `op`, `start`, `end`.

    So an instant with several operations belongs to the one that started first.
    """
    start = pl.max_horizontal("start", reached_before(pl.col("end")))
    return ops.select("op", start, "end").filter(pl.col("end") > pl.col("start"))


def _begun(ops: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """The operations that start in each piece: `op`, `piece`, `duration_ns`, `count`."""
    length = (pl.col("end") - pl.col("start")).alias("duration_ns")
    instants = ops.select("op", "start", (pl.col("start") + 1).alias("end"), length)
    return _cut(instants, pieces).select(
        "op", "piece", "duration_ns", pl.lit(1, pl.Int64).alias("count")
    )


def _grids(view: View) -> list[pl.Series]:
    """The grid of each operation; null of copies, and where the report was read without shapes."""
    shapes, ops = view.trace.shapes, view.ops
    if shapes.is_empty():
        return [repeated(None, len(ops), pl.Int32).alias(x) for x in GRID]
    row = ops.select(pl.when(pl.col("kind") == "kernel").then("detail")).to_series()
    return [shapes[axis][row] for axis in GRID]


def _in_words(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of operations with names for their numbers."""
    part = pl.col("part").cast(pl.String).replace_strict(_PARTS, return_dtype=STEP_PART)
    phase = view.attribution.paths["joined"][rows["path"]].fill_null("")
    classes = _kernel_classes(view)
    return rows.join(classes, on="name", maintain_order="left").select(
        *("piece", "ns", "duration_ns", "count"),
        part.alias("part"),
        pl.when(pl.col("part") == "copy").then("short_name").otherwise("class").alias("kind"),
        pl.col("name").cast(pl.String),
        "short_name",
        grid_as_text().alias("grid"),
        phase.alias("phase"),
    )


def _kernel_classes(view: View) -> pl.DataFrame:
    """`name`, `short_name`, `class`, a row per name: the rules are tried once on each."""
    named = view.ops[["name", "short_name"]].unique()
    short = named.group_by("name").agg(pl.col("short_name").cast(pl.String).min())
    name = pl.col("name").cast(pl.String)
    kernels = class_of(name, pl.col("short_name"), view.options.kernel_classes)
    return short.with_columns(kernels.alias("class"))


def _of_gaps(view: View, pieces: pl.DataFrame) -> pl.DataFrame:
    """The idle time, by piece, cause, place, culprit and line."""
    begin = view.events.axis.at(pl.col("device_no"), pl.col("start_ns"))
    by_name = _by_name(view.attribution)
    instants = view.gaps.select("gap", begin.alias("start"), (begin + 1).alias("end"))
    placed = _cut(instants, pieces)[["gap", "piece"]]
    found = []
    for cause, parts in occurring(view.idle_parts).items():
        rows = idle_rows(view, view.gaps, parts, cause)
        rows = rows.with_columns(by_name[rows["path"]].alias("path"))
        rows = rows.join(placed, left_on="row", right_on="gap")
        lines = lines_in(rows)
        sums = rows.group_by("piece", "path", "culprit", *lines).agg(
            pl.col("ns").sum(), pl.len().cast(pl.Int64).alias("count")
        )
        sums = sums.with_columns(pl.lit(cause).alias("cause"))
        culprit = pl.col("culprit").cast(pl.String).fill_null("")
        found.append(
            sums.select(
                *("piece", "ns", "count"),
                pl.lit("idle", STEP_PART).alias("part"),
                pl.lit(cause).alias("kind"),
                culprit.alias("name"),
                culprit.alias("short_name"),
                place_names(view.attribution, sums["path"]).alias("phase"),
                *both_lines(lines),
            )
        )
    return pl.concat(found, how="diagonal")


TABLES: Final = (
    Table(
        name="step_parts",
        schema=STEP_PARTS,
        make=step_part_table,
        csv="never",
        json_key="series",
        judged=False,
        filled_by="record with --trace cuda,nvtx while the GPU is in use",
        shown="step ns part kind name phase source count device report process",
    ),
)
