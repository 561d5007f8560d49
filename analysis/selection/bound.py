"""Parts of the time of phases, steps and views, and which of them bounds it (spec §15.7, §15.8)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
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
