"""Gaps by length and cause, as bars."""

from collections import Counter
from typing import Any

import pytest
from matplotlib.axes import Axes

from nsysflow.analysis.tables.gaps import LENGTHS, LONGER
from nsysflow.report import palette
from nsysflow.report.figures import gpu_time as gap_histogram
from tests.analyses import few_reports, run_of
from tests.report.figures.drawn import bars, colour, drawn, texts
from tests.report.handmade import MS, results

CAUSES = {of.light: name for name, of in palette.CAUSES.items()}
CLASSES = [*(label for _, label in LENGTHS), LONGER]


def shown(axes: Axes) -> dict[tuple[str, str], float]:
    """The height of each bar, by length and cause, without empty ones."""
    return {
        (CLASSES[round(bar.get_x() + bar.get_width() / 2)], CAUSES[colour(bar)]): bar.get_height()
        for bar in bars(axes)
        if bar.get_height()
    }


@few_reports
def test_bars_are_as_high_as_the_table_says(name: str) -> None:
    judged = run_of(name).judged
    if judged.gap_histogram.is_empty():
        assert gap_histogram.draw_gap_histogram(run_of(name)) is None
        return
    figure = drawn(gap_histogram.draw_gap_histogram, run_of(name))
    for axes, column in zip(figure.axes, ("gaps", "idle_ns"), strict=True):
        wanted: Counter[tuple[str, str]] = Counter()
        for row in judged.gap_histogram.rows(named=True):
            wanted[row["length"], row["cause"]] += row[column]
        assert shown(axes) == pytest.approx(
            {key: value / judged.step_count for key, value in wanted.items()}
        )
        assert axes.get_ylim()[0] == 0


def gap(length: str, cause: str = "host") -> dict[str, Any]:
    return {"length": length, "cause": cause, "gaps": 1, "idle_ns": MS}


def test_classes_go_from_the_shortest_to_the_longest_that_has_gaps() -> None:
    figure = drawn(
        gap_histogram.draw_gap_histogram, results(gap_histogram=[gap("< 100 us"), gap("< 5 us")])
    )
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert names == ["< 2 us", "< 5 us", "< 20 us", "< 100 us"]


def test_axes_say_whether_they_are_of_a_step_or_of_the_window() -> None:
    window = texts(drawn(gap_histogram.draw_gap_histogram, results(gap_histogram=[gap("longer")])))
    assert {"gaps in the window", "idle time in the window (ms)"} <= {*window}
    steps = texts(drawn(gap_histogram.draw_gap_histogram, run_of("nan_check-sync")))
    assert {"gaps per step", "idle time per step (us)"} <= {*steps}


def test_without_gaps_there_is_no_figure() -> None:
    assert gap_histogram.draw_gap_histogram(results()) is None
