from typing import Any

import matplotlib as mpl
import pytest

from nsysflow.report.figures.style import (
    BACKGROUND,
    INK,
    PAGE_MM,
    Sheet,
    applied,
    fill,
    ink_on,
    paled,
    scale_in_time,
)
from nsysflow.report.palette import CAUSES, CLASSES, Colour
from nsysflow.report.pictures import LegendEntry


def sheet(**changed: Any) -> Sheet:
    usual: dict[str, Any] = {"title": "Title", "about": "about", "width_mm": PAGE_MM}
    return Sheet(**(usual | {"body_mm": 40} | changed))


def test_the_user_s_own_settings_neither_count_nor_change() -> None:
    with mpl.rc_context({"font.size": 30, "text.usetex": True}):
        with applied():
            assert (mpl.rcParams["font.size"], mpl.rcParams["text.usetex"]) == (7, False)
        assert mpl.rcParams["font.size"] == 30


def test_a_figure_is_as_wide_as_asked_for_and_higher_for_its_legend() -> None:
    keys = [LegendEntry(label="a" * 60, colour=CLASSES["compute"])] * 3
    bare, full = sheet().figure(), sheet(keys=keys).figure()
    for figure in (bare, full):
        assert figure.get_figwidth() * 25.4 == pytest.approx(PAGE_MM)
    assert full.get_figheight() > bare.get_figheight()


def test_long_small_print_takes_three_lines_and_no_control_character_is_printed() -> None:
    (_, small) = sheet(about="a\x1b[31mb " + "word " * 200).figure().texts
    lines = small.get_text().splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert "\x1b" not in lines[0]


def test_an_axis_shows_the_unit_of_its_longest_time() -> None:
    axes = sheet().figure().subplots()
    axes.set_xlim(0, 5_000_000)
    scale_in_time(axes, "x", 5_000_000, "time per step")
    assert axes.get_xlabel() == "time per step (ms)"
    assert axes.xaxis.get_major_formatter()(2_500_000) == "2.5"


def test_text_on_a_patch_can_be_read_and_what_may_be_noise_is_closer_to_the_page() -> None:
    assert ink_on(CAUSES["launch"])["color"] == INK
    assert ink_on(CAUSES["blocking_copy"])["color"] == BACKGROUND
    assert [fill(CAUSES[name])["hatch"] for name in ("host", "launch")] == [None, "////"]
    assert paled(Colour(light="#000000", dark="#000000")).light == "#8c8c8c"
