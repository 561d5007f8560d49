"""Kernel time by class, as bars."""

import polars as pl
import pytest

from nsysflow.report import palette
from nsysflow.report.figures import gpu_time as kernel_classes
from tests.analyses import few_reports, run_of
from tests.report.figures.drawn import bars, colour, drawn, ranks, texts
from tests.report.handmade import MS, results


@few_reports
def test_bars_are_as_wide_as_the_classes_in_kernels(name: str) -> None:
    judged = run_of(name).judged
    sums = judged.kernels.group_by("class").agg(pl.col("total_ns").sum())
    wanted = sums.filter(pl.col("total_ns") > 0).sort("total_ns", descending=True)
    (axes,) = drawn(kernel_classes.draw_kernel_classes, run_of(name)).axes
    widths = [bar.get_width() * judged.step_count for bar in bars(axes)]
    assert widths == pytest.approx(wanted["total_ns"].to_list())
    assert axes.get_xlim()[0] == 0


def test_each_class_has_its_share_and_number_of_launches() -> None:
    rows = [
        {"class": "matmul", "total_ns": 6 * MS, "count": 4, "name": "a"},
        {"class": "matmul", "total_ns": 1 * MS, "count": 1, "name": "b"},
        {"class": "norm", "total_ns": 3 * MS, "count": 1200},
    ]
    read = [
        text.strip()
        for text in texts(drawn(kernel_classes.draw_kernel_classes, results(kernels=rows)))
    ]
    assert {"matmul", "70 %, 5 x", "norm", "30 %, 1,200 x"} <= {*read}


def test_only_communication_has_the_colour_of_communication() -> None:
    figure = drawn(kernel_classes.draw_kernel_classes, ranks())
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    wanted = palette.CLASSES["communication"].light
    found = [name for name, bar in zip(names, bars(axes), strict=True) if colour(bar) == wanted]
    assert found == ["comm"]
    assert any("2 GPUs together" in text for text in texts(figure))


def test_without_kernels_there_is_no_figure() -> None:
    assert kernel_classes.draw_kernel_classes(results()) is None
