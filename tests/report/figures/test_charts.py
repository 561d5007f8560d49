from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from matplotlib.axes import Axes

from nsysflow.analysis.tables.gaps import LENGTHS, LONGER
from nsysflow.report import palette
from nsysflow.report.figures.gpu_time import (
    PHASES,
    draw_breakdown,
    draw_gap_histogram,
    draw_kernel_classes,
    draw_phases,
)
from nsysflow.report.figures.steps import GPUS, LOST, draw_idle_over_steps, draw_ranks
from nsysflow.report.phase_tree import phase_tree
from nsysflow.report.pictures import ALL, IDLE
from tests.analyses import run_of
from tests.report.figures.drawn import bars, drawn, lengths, ranks, some_reports, texts
from tests.report.handmade import MS, Handmade, Results, device, handmade, renamed, results

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
    (axes,) = drawn(draw_phases, run_of(name)).axes
    parts = [{"busy": phase.busy_ns, **phase.causes_ns} for phase in tree if phase.time_ns]
    found = lengths(axes, PARTS, upright=False).values()
    assert [*found] == [
        pytest.approx({part: ns / judged.step_count for part, ns in each.items() if ns})
        for each in parts
    ]
    assert axes.get_xlim()[0] == 0


def test_phases_that_have_no_room_are_counted() -> None:
    busy = [at * MS for at in range(1, PHASES + 4)]
    rows = [{"path": f"part{ns}", "depth": 1, "instances": 1, "busy_ns": ns} for ns in busy]
    figure = drawn(draw_phases, results(phases=rows, accounting=[device(sum(busy))]))
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


UNUSUAL = ("cut-off", "incomplete")


def step(number: int, idle_ns: int, kind: str = "steady") -> dict[str, Any]:
    """A step that is idle in host code."""
    return {"step": number, "idle_ns": idle_ns, "host_ns": idle_ns, "kind": kind}


@some_reports
def test_bars_are_as_high_as_the_causes_in_steps(name: str) -> None:
    run = run_of(name)
    rows = [row for row in run.steps.rows(named=True) if row["kind"] not in UNUSUAL]
    gpus = dict.fromkeys((row["process"], row["device"]) for row in rows)
    every = drawn(draw_idle_over_steps, run).axes
    for gpu, axes in zip(gpus, every, strict=True):
        wanted = {
            row["step"]: {part.column: row[part.column] for part in IDLE if row[part.column]}
            for row in rows
            if (row["process"], row["device"]) == gpu
        }
        found = lengths(axes, COLUMNS, upright=True)
        assert found == {step: parts for step, parts in wanted.items() if parts}
        assert axes.get_ylim()[0] == 0


class Judged(Handmade):
    """An analysis of which only steady steps are judged."""

    @property
    def judged(self) -> Handmade:
        steady = self.steps.filter(self.steps["kind"] == "steady")
        return Handmade(tables={**self.tables, "steps": steady})


@pytest.mark.parametrize(
    ("rows", "top_ms", "written"),
    [
        # a start-up that is far longer is cut off with its length in it
        ([step(0, 900 * MS, "start-up"), step(1, 8 * MS), step(2, 10 * MS)], 12.5, ["900 ms"]),
        # where most steps are far longer none is cut off
        ([step(0, 900 * MS, "start-up"), step(1, 800 * MS, "one-off"), step(2, 10 * MS)],
         1.05 * 900, []),
        # of cut bars side by side the longest has its length
        ([step(at, (800 + at) * MS, "start-up") for at in range(3)]
         + [step(at, 8 * MS) for at in range(3, 200)], 10, ["802 ms"]),
    ],
)  # fmt: skip
def test_a_step_that_is_far_longer_is_cut_off_with_its_length_in_it(
    rows: list[dict[str, Any]], top_ms: float, written: list[str]
) -> None:
    figure = drawn(draw_idle_over_steps, Results([Judged(tables=handmade(steps=rows).tables)]))
    assert figure.axes[0].get_ylim()[1] == pytest.approx(top_ms * MS)
    assert [text.strip() for text in texts(figure) if text.endswith("ms")] == written


def test_ranks_have_axes_of_their_own_on_one_scale() -> None:
    figure = drawn(draw_idle_over_steps, ranks())
    assert len(figure.axes) == 2
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert "ddp-bucketed-rank1 GPU 1" in texts(figure)


def test_of_many_gpus_those_that_idle_longest_are_shown_and_the_others_counted() -> None:
    both = {at: handmade(steps=[step(0, at * MS), step(1, at * MS)]) for at in range(1, GPUS + 3)}
    run = Results([renamed(steps, f"rank{at}") for at, steps in both.items()])
    figure = drawn(draw_idle_over_steps, run)
    assert len(figure.axes) == GPUS
    assert any("2 GPUs that idle less are not shown" in text for text in texts(figure))
    assert "rank1 GPU 0" not in texts(figure)


def cells(axes: Axes) -> list[list[float | None]]:
    """The values of a heat map, rank by rank."""
    (image,) = axes.images
    values = image.get_array()
    assert values is not None
    rows: list[list[float | None]] = values.tolist()  # what is masked becomes None
    return rows


def test_cells_are_the_steps_and_what_they_lost() -> None:
    run = ranks()
    length, lost = drawn(draw_ranks, run).axes[:2]
    for axes, value in ((length, pl.col("duration_ns")), (lost, pl.sum_horizontal(LOST))):
        whole = pl.when(pl.col("kind") != "cut-off").then(value)
        steps = run.steps.select("report", "step", whole.alias("ns")).sort("report", "step")
        by_rank = steps.group_by("report", maintain_order=True).agg("ns")
        assert cells(axes) == by_rank["ns"].to_list()
