from collections import defaultdict

import polars as pl
import pytest

from nsysflow.analysis.tables.gaps import LENGTHS, LONGER
from nsysflow.report import palette
from nsysflow.report.figures.gpu_time import (
    PHASES,
    draw_breakdown,
    draw_gap_histogram,
    draw_kernel_classes,
    draw_phases,
)
from nsysflow.report.phase_tree import phase_tree
from nsysflow.report.pictures import ALL
from tests.analyses import run_of
from tests.report.figures.drawn import bars, drawn, lengths, some_reports, texts
from tests.report.handmade import MS, device, results

COLUMNS = {part.colour.light: part.column for part in ALL}


@some_reports
def test_bars_are_as_wide_as_the_accounting_of_a_judged_step_says(name: str) -> None:
    judged = run_of(name).judged
    (axes,) = drawn(draw_breakdown, run_of(name)).axes
    rows = [row for row in judged.accounting.rows(named=True) if row["window_ns"]]
    for row, found in zip(rows, lengths(axes, COLUMNS, upright=False).values(), strict=True):
        steps = judged.steps_on(row["report"], row["device"])
        wanted = {part.column: row[part.column] / steps for part in ALL if row[part.column]}
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-6)


def test_a_name_from_the_program_is_no_formula_and_no_markup() -> None:
    run = results(accounting=[device(9 * MS, name="H$200$ <b>", host_ns=MS)])
    (about,) = [text for text in texts(drawn(draw_breakdown, run)) if "H$200$" in text]
    assert about == "run.sqlite · H$200$ <b>"


PARTS = {palette.CLASSES["compute"].light: "busy"} | {
    of.light: name for name, of in palette.CAUSES.items()
}


@some_reports
def test_bars_are_as_wide_as_the_tree_of_phases_says(name: str) -> None:
    judged = run_of(name).judged
    tree, _ = phase_tree(judged, PHASES)
    if not any(phase.instances and phase.time_ns for phase in tree):
        assert draw_phases(run_of(name)) is None
        return
    (axes,) = drawn(draw_phases, run_of(name)).axes
    parts = [{"busy": phase.busy_ns, **phase.causes_ns} for phase in tree if phase.time_ns]
    found = lengths(axes, PARTS, upright=False).values()
    assert [*found] == [
        pytest.approx({part: ns / judged.step_count for part, ns in each.items() if ns})
        for each in parts
    ]
    assert axes.get_xlim()[0] == 0


def test_phases_that_have_no_room_are_counted() -> None:
    rows = [
        {"path": f"part{at}", "depth": 1, "instances": 1, "busy_ns": at * MS}
        for at in range(1, PHASES + 4)
    ]
    window_ns = sum(at * MS for at in range(1, PHASES + 4))
    figure = drawn(draw_phases, results(phases=rows, accounting=[device(window_ns)]))
    assert any("3 shorter phases are not shown" in text for text in texts(figure))


@some_reports
def test_bars_are_as_wide_as_the_classes_in_kernels(name: str) -> None:
    judged = run_of(name).judged
    sums = judged.kernels.group_by("class").agg(pl.col("total_ns").sum())
    wanted = sums.filter(pl.col("total_ns") > 0).sort("total_ns", descending=True)
    (axes,) = drawn(draw_kernel_classes, run_of(name)).axes
    widths = [bar.get_width() * judged.step_count for bar in bars(axes)]
    assert widths == pytest.approx(wanted["total_ns"].to_list())
    assert axes.get_xlim()[0] == 0


@some_reports
def test_bars_are_as_high_as_the_table_says(name: str) -> None:
    judged = run_of(name).judged
    if judged.gap_histogram.is_empty():
        assert draw_gap_histogram(run_of(name)) is None
        return
    bins = [*(label for _, label in LENGTHS), LONGER]
    figure = drawn(draw_gap_histogram, run_of(name))
    for axes, column in zip(figure.axes, ("gaps", "idle_ns"), strict=True):
        wanted: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for row in judged.gap_histogram.rows(named=True):
            wanted[bins.index(row["length"])][row["cause"]] += row[column] / judged.step_count
        assert lengths(axes, PARTS, upright=True) == {
            at: pytest.approx(dict(parts)) for at, parts in wanted.items()
        }
        assert axes.get_ylim()[0] == 0
