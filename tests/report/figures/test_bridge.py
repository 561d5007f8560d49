import numpy as np
import pytest

from nsysflow.compare.comparison import compared
from nsysflow.report.diff import label
from nsysflow.report.figures import bridge
from nsysflow.report.figures.style import paled
from nsysflow.report.palette import PAGE
from tests.compare.handmade import capture, row
from tests.report.figures.drawn import bars, colour, drawn, texts
from tests.report.test_diff import BASE, NEW, steps

FOUND = compared([capture(*BASE)], [capture(*NEW, row(*steps(30), kind="norm", name="layer_norm"))])
SAME = compared([capture(*BASE)], [capture(*BASE)])
PALE = paled(PAGE["slower"]).light


def test_a_bar_begins_where_the_one_above_ends_and_is_as_wide_as_its_change() -> None:
    (axes,) = drawn(bridge.draw, FOUND).axes
    *parts, step = bars(axes)
    ends = [bar.get_x() + bar.get_width() for bar in parts]
    assert parts[0].get_x() == step.get_x() == 0
    assert [bar.get_x() for bar in parts[1:]] == ends[:-1]
    assert ends[-1] == step.get_width() == FOUND.bridge.total.change_ns
    names = [text.get_text() for text in axes.get_yticklabels()]
    changes = {label(part): part.change.change_ns for part in FOUND.bridge.parts}
    assert dict(zip(names, (bar.get_width() for bar in bars(axes)), strict=True)) == {
        "idle: waiting in a sync": changes["idle: waiting in a sync"],
        "compute: matmul": changes["compute: matmul"],
        "1 more": changes["compute: norm"],
        "step: 150 us → 140 us": FOUND.bridge.total.change_ns,
    }
    faster, slower = PAGE["faster"].light, PAGE["slower"].light
    assert [colour(bar) for bar in bars(axes)] == [faster, slower, PALE, faster]


def test_lines_are_the_intervals_of_the_changes() -> None:
    (axes,) = drawn(bridge.draw, FOUND).axes
    marked = [line for line in axes.lines if line.get_marker() == "|"]
    lines = [np.asarray(line.get_xdata()).tolist() for line in marked]
    first, total = FOUND.bridge.parts[0].change, FOUND.bridge.total
    assert lines[0] == pytest.approx([first.low_ns, first.high_ns])
    assert lines[-1] == pytest.approx([total.low_ns, total.high_ns])
    assert len(lines) == 3  # the line of the rest has none


def test_what_may_be_noise_is_pale() -> None:
    few = drawn(bridge.draw, compared([capture(row(100_000))], [capture(row(150_000))]))
    assert {colour(bar) for bar in bars(few.axes[0])} == {PALE}
    assert "? +50.0 us" in [text.strip() for text in texts(few)]
