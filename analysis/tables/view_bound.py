"""What bounds a whole view, and the largest loss beside it (spec §15.9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import DECLARED
from nsysflow.analysis.events.kernel_classes import class_of
from nsysflow.analysis.selection.bound import PARTS, bounds, view_parts
from nsysflow.analysis.selection.view import View

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
