"""Kernel time by class of kernel."""

from typing import Final

import polars as pl
from matplotlib.figure import Figure

from nsysflow.base.units import share
from nsysflow.report import palette
from nsysflow.report.about import about_run, time_label
from nsysflow.report.fields import mean_count, together
from nsysflow.report.figures.style import COLUMN_MM, Sheet, fill, scale_in_time
from nsysflow.report.results import Results

_AXES_MM: Final = 9
_CLASS_MM: Final = 4.6

COMMUNICATION: Final = "comm"
"""The class of communication kernels."""


def draw(results: Results) -> Figure | None:
    """A bar per class, the longest first; None without kernels."""
    judged = results.judged
    classes = (
        judged.table("kernels")
        .group_by("class")
        .agg(pl.col("total_ns", "count").sum())
        .filter(pl.col("total_ns") > 0)
        .sort("total_ns", "class", descending=[True, False])
    )
    if classes.is_empty():
        return None
    sheet = Sheet(
        title="Kernel time by class",
        about=about_run(results) + together(results),
        width_mm=COLUMN_MM,
        body_mm=_AXES_MM + _CLASS_MM * classes.height,
    )
    figure = sheet.figure()
    axes = figure.subplots()
    total_ns, longest_ns = int(classes["total_ns"].sum()), classes["total_ns"][0]
    for at, (name, ns, count) in enumerate(classes.rows()):
        kind = "communication" if name == COMMUNICATION else "compute"
        axes.barh(at, ns / judged.step_count, 0.75, **fill(palette.CLASSES[kind]))
        text = f" {share(ns, total_ns)}, {mean_count(count, judged.step_count)} x"
        axes.text(ns / judged.step_count, at, text, va="center", size=6)
    axes.set_yticks(range(classes.height), classes["class"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(classes.height - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * longest_ns / judged.step_count)  # room for the text
    scale_in_time(axes, "x", longest_ns / judged.step_count, time_label(results))
    return figure
