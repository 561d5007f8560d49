"""The bars of a notebook are those of the accounting."""

import pytest

from nsysflow.report.notebook import LABEL, WIDTH, bars
from nsysflow.report.pictures import ALL
from nsysflow.report.results import Results
from tests.analyses import analysed, few_reports, run_of
from tests.report.handmade import results
from tests.report.notebook.read import boxes, title_of


@few_reports
def test_bars_are_as_wide_as_the_parts_of_the_accounting(name: str) -> None:
    judged = run_of(name).judged
    rows = judged.accounting.rows(named=True)
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    wanted = [
        row[part.column] / count / longest_ns * (WIDTH - LABEL)
        for row, count in zip(rows, steps, strict=True)
        for part in ALL
        if row[part.column]
    ]
    found = [float(each.attrib["width"]) for each in boxes(bars(run_of(name)))]
    assert found == pytest.approx(wanted, abs=0.01)


def test_a_bar_says_what_it_is() -> None:
    titles = [title_of(each) for each in boxes(bars(run_of("nan_check-sync")))]
    assert titles[0] == "compute 3.24 ms, 84 %"
    assert titles[2] == "idle: waiting in a sync 520 us, 14 %"


def test_the_legend_of_several_gpus_has_no_figures() -> None:
    run = Results([analysed("ddp-bucketed-rank0"), analysed("ddp-bucketed-rank1")])
    assert "compute</span>" in bars(run)


def test_without_gpu_work_there_is_no_bar() -> None:
    assert bars(results()) == ""
