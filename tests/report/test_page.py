"""The page model: what is on a page, and in which order."""

from dataclasses import replace

import pytest

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.options import Options, StepPart
from nsysflow.report.page import Length, Page, compose, rows_shown
from tests.report.handmade import MS, Results, device, measured, results, training


def composed(of: Results, length: Length = "page", top: int | None = None, least: int = 0) -> Page:
    return compose(of, length, top=top, at_least_ns=least)


def titles(page: Page) -> list[str]:
    return [block.title for block in page.blocks]


def test_the_page_has_the_blocks_in_the_declared_order() -> None:
    assert titles(composed(Results([training()]))) == [
        "GPU time", "Idle time", "Phases", "Waits", "Longest gaps", "Data quality",
    ]  # fmt: skip


def test_the_summary_has_steps_kernels_and_copies_too() -> None:
    some, more = (titles(composed(Results([training()]), each)) for each in ("page", "summary"))
    assert [title for title in more if title not in some] == ["Steps", "Kernels", "Copies"]
    assert {*some} < {*more}


def test_a_table_with_a_sentence_alone_has_no_block() -> None:
    assert rows_shown(TABLES["steps"], "page") == 0
    assert rows_shown(TABLES["steps"], "summary") > 0
    assert rows_shown(TABLES["launches"], "page") == 0


def test_the_title_says_what_ran_on_what_and_how_long_a_step_took() -> None:
    page = composed(Results([training(), training()]))
    assert page.gpus == "2 x NVIDIA H200"
    assert page.steps.startswith("2 steps of step, median 50.0 ms")
    assert page.reports == "run.sqlite, run.sqlite"
    assert page.selection == ""


def test_the_options_that_narrow_the_window_are_named() -> None:
    options = Options(range="train", from_ns=1_500_000_000, steps=(StepPart(2),))
    page = composed(Results([replace(training(), options=options)]))
    assert page.selection == "--range train --from 1.5 --steps 2:"


@pytest.mark.parametrize("length", ["page", "summary"])
def test_top_sets_the_rows_of_each_list_but_not_the_gpus(length: Length) -> None:
    rows = [device(100 * MS, device=index, host_ns=MS) for index in range(3)]
    page = composed(results(accounting=rows), length, top=1)
    assert [len(block.rows) for block in page.blocks if block.title == "GPU time"] == [3]
    training_page = composed(Results([training()]), length, top=1)
    (idle,) = [block for block in training_page.blocks if block.title.startswith("Idle")]
    assert len(idle.rows) == 1


def test_gaps_that_are_too_short_are_not_shown() -> None:
    page = composed(Results([training()]), least=10 * MS)
    assert [len(block.rows) for block in page.blocks if block.title == "Longest gaps"] == [1]


def test_mfu_and_outlier_steps_are_sentences() -> None:
    (mfu,) = composed(Results([measured()])).sentences
    assert mfu.startswith("MFU 40 %")
    assert composed(Results([training()])).sentences == ()


def test_a_run_without_gpu_work_has_a_verdict_and_no_blocks() -> None:
    page = composed(results())
    assert [each.sentence.partition(" (")[0] for each in page.headlines] == ["no GPU work"]
    assert page.blocks == ()
