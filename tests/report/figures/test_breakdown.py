"""Where each GPU's time goes, as bars."""

from collections import defaultdict

import pytest

from nsysflow.report.figures import gpu_time as breakdown
from nsysflow.report.pictures import ALL
from nsysflow.report.results import Results
from tests.analyses import few_reports, run_of
from tests.report.figures.drawn import bars, colour, drawn, ranks, texts
from tests.report.handmade import MS, device, results

COLUMNS = {part.colour.light: part.column for part in ALL}


def shown_ns(run: Results) -> list[dict[str, float]]:
    """The width of each part's bar, of each GPU."""
    (axes,) = drawn(breakdown.draw_breakdown, run).axes
    found: dict[float, dict[str, float]] = defaultdict(dict)
    for bar in bars(axes):
        found[round(bar.get_y() + bar.get_height() / 2)][COLUMNS[colour(bar)]] = bar.get_width()
    return [found[at] for at in sorted(found)]


@few_reports
def test_bars_are_as_wide_as_the_accounting_of_a_judged_step_says(name: str) -> None:
    judged = run_of(name).judged
    rows = [row for row in judged.accounting.rows(named=True) if row["window_ns"]]
    for row, found in zip(rows, shown_ns(run_of(name)), strict=True):
        steps = judged.steps_on(row["report"], row["device"])
        wanted = {part.column: row[part.column] / steps for part in ALL if part.column in found}
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-6)
        assert sum(found.values()) == pytest.approx(row["window_ns"] / steps)


def test_each_rank_has_a_bar_with_its_name() -> None:
    figure = drawn(breakdown.draw_breakdown, ranks())
    assert len(shown_ns(ranks())) == 2
    assert {"ddp-bucketed-rank0 GPU 0", "ddp-bucketed-rank1 GPU 1"} <= {*texts(figure)}


def test_the_axis_starts_at_0() -> None:
    (axes,) = drawn(breakdown.draw_breakdown, run_of("nan_check-sync")).axes
    assert axes.get_xlim()[0] == 0


def test_the_legend_of_one_gpu_has_the_page_s_figures() -> None:
    read = texts(drawn(breakdown.draw_breakdown, run_of("nan_check-sync")))
    assert "compute 3.24 ms, 84 %" in read
    assert "idle: waiting in a sync 520 us, 14 %" in read
    assert (
        "nan_check-sync · NVIDIA H200 · step 3.85 ms, mean of 4 of 5 (unprofiled 4.06 ms)" in read
    )


def test_a_name_from_the_program_is_no_formula_and_no_markup() -> None:
    run = results(accounting=[device(9 * MS, name="H$200$ <b>", host_ns=MS)])
    (about,) = [text for text in texts(drawn(breakdown.draw_breakdown, run)) if "H$200$" in text]
    assert about == "run.sqlite · H$200$ <b>"


def test_without_gpu_work_there_is_no_figure() -> None:
    assert breakdown.draw_breakdown(results()) is None
