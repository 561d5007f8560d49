"""Parts of the time of phases, steps and views, which of them bounds it, and the largest loss
beside that (spec §15.7 to §15.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, DECLARED
from nsysflow.analysis.events.kernel_classes import class_of
from nsysflow.analysis.events.waits import WaitPieces
from nsysflow.analysis.frames.intervals import Axis, Cover, on_axis
from nsysflow.analysis.phases.work import PathIdle
from nsysflow.analysis.selection.view import View

_WAITED: Final = {"communication": "communication_ns", "copy": "copies_ns"}

_CAUSES: Final = [f"{cause}_ns" for cause in CAUSES]


def device_parts(view: View) -> pl.DataFrame:
    """The parts of each device of a view: `device_no` and a column for each of `PARTS`."""
    length = pl.col("end_ns") - pl.col("start_ns")
    windows = view.windows
    busy = view.busy.parts(windows, view.events.axis)
    compute = windows[["device_no"]].with_columns(busy["compute_ns"])
    waited = view.waited.group_by("device_no").agg(
        length.filter(pl.col("kind") == kind).sum().alias(column)
        for kind, column in _WAITED.items()
    )
    idle = view.without_unwaited.gaps.group_by("device_no").agg(pl.col(_CAUSES).sum())
    return (
        compute.group_by("device_no")
        .agg(pl.col("compute_ns").sum())
        .join(waited, on="device_no", how="left")
        .join(idle, on="device_no", how="left")
        .with_columns(pl.exclude("device_no").fill_null(0))
        .sort("device_no")
    )


def view_parts(view: View) -> dict[str, int]:
    """The parts of all devices of a view, by column."""
    sums: dict[str, int] = device_parts(view).drop("device_no").sum().row(0, named=True)
    return sums


def phase_parts(view: View) -> pl.DataFrame:
    """The parts of each phase, with what is nested in it: by `process` and `path` number."""
    key = ["process", "path"]
    idle = _with_paths_of(view)
    frames = [view.compute, _waited_of_phases(view), idle]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.join(frame, on=key, how="full", coalesce=True)
    return joined.with_columns(pl.exclude(key).fill_null(0))


def _with_paths_of(view: View) -> PathIdle:
    """The idle time by phase without the work that nobody waited for, with the paths of `view`."""
    other = view.without_unwaited
    if other is view:
        return view.idle[["process", "path", *_CAUSES]]
    # numbers and keys of paths shift where a path inside a graph exists in one of the two only
    by_names = pl.col("names").list.join("\0").alias("names")
    ours, theirs = (part.attribution.paths.select("path", by_names) for part in (view, other))
    numbers = theirs.join(ours, on="names", suffix="_here")[["path", "path_here"]]
    idle = other.idle.join(numbers, on="path").drop("path").rename({"path_here": "path"})
    return idle[["process", "path", *_CAUSES]]


def _waited_of_phases(view: View) -> pl.DataFrame:
    """How long communication and copies of each phase were waited for."""
    pieces = view.waited.filter(pl.col("kind").is_in([*_WAITED]))
    ops, length = view.timeline.ops, pl.col("end_ns") - pl.col("start_ns")
    rows = pieces.select("kind", length.alias("ns"), ops["process"][pieces["op"]])
    rows = rows.with_columns(
        view.attribution.path_of(ops["node"][pieces["op"]]).alias("path")
    ).drop_nulls("path")
    sums = [
        pl.col("ns").filter(pl.col("kind") == kind).sum().alias(column)
        for kind, column in _WAITED.items()
    ]
    key = ["process", "path"]
    placed = rows.group_by(key).agg(sums)
    total = pl.col([*_WAITED.values()]).sum()
    levels = [level.group_by(key).agg(total) for level in view.attribution.levels(placed)]
    return pl.concat([placed.clear(), *levels])


def waits_in_stretches(view: View, stretches: pl.DataFrame) -> pl.DataFrame:
    """How long communication and copies were waited for in each of `stretches` (`device_no`,
    `start_ns`, `end_ns`)."""
    axis = view.events.axis
    place = on_axis(stretches, axis)
    waits = {}
    for kind, column in _WAITED.items():
        cover = _cover(view.timeline.waited, kind, axis)
        waits[column] = cover.between(place["start"], place["end"]).alias(column)
    return pl.DataFrame(waits)


def _cover(pieces: WaitPieces, kind: str, axis: Axis) -> Cover:
    mine = on_axis(pieces.filter(pl.col("kind") == kind), axis)
    return Cover(mine.sort("start"))


WORK: Final = ("compute", "communication", "copies")
"""The parts in which the GPU did something that was needed."""

PARTS: Final = (*WORK, *CAUSES)
"""The names of bounds, in the order that breaks ties; the column of each is `NAME_ns`."""

MOST: Final = 3

NEAR: Final = (5, 6)
"""A part joins the largest if it is at least 5/6 of it: within a factor of 1.2."""

LEAST_PCT: Final = 10


def bounds(parts: pl.DataFrame) -> pl.DataFrame:
    """What bounds each row: `bound` (names joined by `+`, empty below 10 %) and `bound_pct` (of the
    first; null where `bound` is empty).

    Args:
        parts: a column for each of `PARTS`.
    """
    rows = parts.select(f"{name}_ns" for name in PARTS).iter_rows()
    schema = {"bound": pl.String(), "bound_pct": pl.Float64()}
    return pl.DataFrame([_bound(row) for row in rows], schema, orient="row")


def _bound(parts_ns: tuple[int, ...]) -> tuple[str, float | None]:
    most, total = max(parts_ns), sum(parts_ns)
    if most <= 0 or 100 * most < LEAST_PCT * total:
        return "", None
    near, whole = NEAR
    largest = sorted(zip(parts_ns, PARTS, strict=True), key=lambda part: -part[0])
    names = [name for ns, name in largest[:MOST] if whole * ns >= near * most]
    return "+".join(names), 100 * most / total


TOGETHER: Final = ("host", "launch")
"""Causes that are one loss: the host did not keep up."""

HOST_PARTS: Final = tuple(
    f"{cause.name}_ns"
    for cause in DECLARED
    if cause.kind in ("profiler", "call", "launch", "other call", "host")
)
"""The parts in which the host runs: what recording adds to a step is in them."""


@dataclass(frozen=True, kw_only=True)
class ViewBound:
    """What bounds a view.

    Attributes:
        names: the largest parts, of `PARTS`; empty where no part has 10 %.
        pct: the share of the first, None without one.
        loss: the largest loss: a part that is not compute, or `host` and `launch` together; empty
            where nothing is lost.
        loss_pct: its share, None without one.
        parts_ns: all parts, by name.
        kernel_class: the class of kernels with most of the compute kernels' time; None without any.
        kernel_class_pct: its share of their time.
    """

    names: tuple[str, ...]
    pct: float | None
    loss: tuple[str, ...]
    loss_pct: float | None
    parts_ns: dict[str, int]
    kernel_class: str | None
    kernel_class_pct: float | None


def bound_of_view(view: View) -> ViewBound:
    """What bounds a view, all its devices together."""
    kind, kind_pct = _largest_class(view)
    return bound_of_parts(view_parts(view), kernel_class=kind, kernel_class_pct=kind_pct)


def bound_of_parts(
    by_column: Mapping[str, int],
    *,
    kernel_class: str | None = None,
    kernel_class_pct: float | None = None,
) -> ViewBound:
    """What bounds some time, of which the parts are known.

    Args:
        by_column: the ns of each of `PARTS`, by column.
        kernel_class: of `ViewBound`.
        kernel_class_pct: of `ViewBound`.
    """
    bound, pct = bounds(pl.DataFrame([by_column])).row(0)
    parts = {part: by_column[f"{part}_ns"] for part in PARTS}
    loss, loss_ns = _largest_loss(parts)
    return ViewBound(
        names=tuple(filter(None, bound.split("+"))),
        pct=pct,
        loss=loss,
        loss_pct=100 * loss_ns / sum(parts.values()) if loss else None,
        parts_ns=parts,
        kernel_class=kernel_class,
        kernel_class_pct=kernel_class_pct,
    )


def without_recording(parts: Mapping[str, int], added_ns: int) -> dict[str, int]:
    """The parts without what recording adds to them (spec §15.10).

    Args:
        parts: the ns of each of `PARTS`, by column.
        added_ns: how much longer all of them take for being recorded.
    """
    host_ns = sum(parts[column] for column in HOST_PARTS)
    left = 1 - min(1.0, added_ns / host_ns) if host_ns else 1.0
    return {
        column: round(ns * left) if column in HOST_PARTS else ns for column, ns in parts.items()
    }


def _largest_loss(parts: dict[str, int]) -> tuple[tuple[str, ...], int]:
    """The parts of the largest loss, and its time; the first of `PARTS` on a tie."""
    together = tuple(part for part in TOGETHER if parts[part])
    alone = [(part,) for part in parts if part != "compute" and part not in TOGETHER]
    losses = {names: sum(parts[name] for name in names) for names in [*alone, together]}
    names = max(losses, key=lambda names: losses[names])
    return (names, losses[names]) if losses[names] else ((), 0)


def _largest_class(view: View) -> tuple[str | None, float | None]:
    """The class with most time of the kernels that compute, and its share."""
    ns = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    computing = view.ops.filter(pl.col("kind") == "kernel", pl.col("part") == "compute")
    by_name = computing.group_by("name", "short_name").agg(ns)
    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    kind = class_of(name, short, view.options.kernel_classes).alias("class")
    sums = by_name.group_by(kind).agg(pl.col("ns").sum()).sort(-pl.col("ns"), "class")
    if sums.is_empty() or not sums["ns"][0]:
        return None, None
    return sums["class"][0], 100 * sums["ns"][0] / sums["ns"].sum()
