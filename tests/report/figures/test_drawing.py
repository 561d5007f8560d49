import re
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from nsysflow.compare.comparison import compared
from nsysflow.report.diff import label
from nsysflow.report.figures.drawing import OF_COMPARISON, OF_RUN
from nsysflow.report.figures.steps import draw_bridge
from nsysflow.report.figures.style import (
    BACKGROUND,
    COLUMN_MM,
    INK,
    PAGE_MM,
    Sheet,
    applied,
    fill,
    ink_on,
    paled,
)
from nsysflow.report.palette import CAUSES, PAGE, Colour
from nsysflow.report.pictures import FIGURE_FORMS
from tests.compare.handmade import capture, row
from tests.report.figures.drawn import bars, colour, drawn, ranks, texts
from tests.report.handmade import device, results
from tests.report.test_diff import BASE, NEW, steps

MM_PER_POINT = 25.4 / 72
SVG = "{http://www.w3.org/2000/svg}"


def test_a_run_of_ranks_has_every_figure_and_one_has_the_same_bytes() -> None:
    of_ranks = OF_RUN.draw(ranks())
    assert of_ranks.names == [kind.name for kind in OF_RUN.kinds]
    assert [*of_ranks.files] == OF_RUN.files
    assert of_ranks.empty == {}
    assert OF_COMPARISON.draw(FOUND).files == OF_COMPARISON.draw(FOUND).files


def test_what_is_empty_is_not_drawn_and_why_is_said() -> None:
    drawn = OF_RUN.draw(results())
    assert drawn.files == {}
    assert [*drawn.empty] == [kind.name for kind in OF_RUN.kinds]
    assert drawn.not_there == OF_RUN.files
    assert OF_COMPARISON.draw(SAME).empty == {"bridge": "nothing changed"}


def test_an_svg_is_one_or_two_columns_wide_with_text_undated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(FIGURE_FORMS, "png")
    for content in OF_RUN.draw(ranks()).files.values():
        tree = ElementTree.fromstring(content)
        width = float(tree.attrib["width"].removesuffix("pt")) * MM_PER_POINT
        assert min(abs(width - mm) for mm in (COLUMN_MM, PAGE_MM)) < 0.01
        read = [text.text or "" for text in tree.iter(f"{SVG}text")]
        assert any("ddp-bucketed-rank0" in text for text in read)
        assert not re.search(rb"dc:date|\b20\d\d-\d\d", content)


def test_names_in_an_svg_are_text_whatever_they_are() -> None:
    name = '<script>alert("$x^2$")</script> & \N{HEBREW LETTER ALEF}\N{GRINNING FACE}'
    run = results(accounting=[device(9_000_000, name=name)])
    tree = ElementTree.fromstring(OF_RUN.draw(run).files["breakdown.svg"])
    read = [text.text or "" for text in tree.iter(f"{SVG}text")]
    assert any(name in text for text in read)
    assert not [*tree.iter(f"{SVG}script")]


FOUND = compared([capture(*BASE)], [capture(*NEW, row(*steps(30), kind="norm", name="layer_norm"))])
SAME = compared([capture(*BASE)], [capture(*BASE)])
PALE = paled(PAGE["slower"]).light


def test_a_bar_begins_where_the_one_above_ends_and_is_as_wide_as_its_change() -> None:
    (axes,) = drawn(draw_bridge, FOUND).axes
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
    (axes,) = drawn(draw_bridge, FOUND).axes
    marked = [line for line in axes.lines if line.get_marker() == "|"]
    lines = [np.asarray(line.get_xdata()).tolist() for line in marked]
    first, total = FOUND.bridge.parts[0].change, FOUND.bridge.total
    assert lines[0] == pytest.approx([first.low_ns, first.high_ns])
    assert lines[-1] == pytest.approx([total.low_ns, total.high_ns])
    assert len(lines) == 3  # the line of the rest has none


def test_what_may_be_noise_is_pale() -> None:
    few = drawn(draw_bridge, compared([capture(row(100_000))], [capture(row(150_000))]))
    assert {colour(bar) for bar in bars(few.axes[0])} == {PALE}
    assert "? +50.0 us" in [text.strip() for text in texts(few)]


def sheet(**changed: Any) -> Sheet:
    usual: dict[str, Any] = {"title": "Title", "about": "about", "width_mm": PAGE_MM}
    return Sheet(**(usual | {"body_mm": 40} | changed))


def test_the_user_s_own_settings_neither_count_nor_change() -> None:
    with mpl.rc_context({"font.size": 30, "text.usetex": True}):
        with applied():
            assert (mpl.rcParams["font.size"], mpl.rcParams["text.usetex"]) == (7, False)
        assert mpl.rcParams["font.size"] == 30


def test_long_small_print_takes_three_lines_and_no_control_character_is_printed() -> None:
    (_, small) = sheet(about="a\x1b[31mb " + "word " * 200).figure().texts
    lines = small.get_text().splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert "\x1b" not in lines[0]


def test_text_on_a_patch_can_be_read_and_what_may_be_noise_is_closer_to_the_page() -> None:
    assert ink_on(CAUSES["launch"])["color"] == INK
    assert ink_on(CAUSES["blocking_copy"])["color"] == BACKGROUND
    assert [fill(CAUSES[name])["hatch"] for name in ("host", "launch")] == [None, "////"]
    assert paled(Colour(light="#000000", dark="#000000")).light == "#8c8c8c"
