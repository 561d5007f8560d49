"""The page model: what is on a page, and in which order."""

from dataclasses import replace

import pytest

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.options import Options, StepPart
from nsysflow.report.page import FIRST, Length, Page, compose, rows_shown
from nsysflow.report.results import Origin
from tests.report.handmade import (
    MS,
    Results,
    device,
    measured,
    results,
    training,
    valued,
    with_findings,
)


def composed(of: Results, length: Length = "page", top: int | None = None, least: int = 0) -> Page:
    return compose(of, length, top=top, at_least_ns=least)


def titles(page: Page) -> list[str]:
    return [block.title for block in page.blocks]


def test_the_page_has_the_blocks_in_the_declared_order() -> None:
    assert titles(composed(Results([training()]))) == [
        "GPU time", "Kernels", "Phases", "Waits", "Start-up and one-offs",
    ]  # fmt: skip


def test_the_full_page_has_all_that_people_read() -> None:
    some, more = (titles(composed(Results([training()]), each)) for each in ("page", "full"))
    assert [title for title in more if title not in some] == [
        "Idle time", "Longest gaps", "Steps", "Copies", "Data quality",
    ]  # fmt: skip
    assert {*some} < {*more}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_full_page_shows_no_fewer_rows(table: object) -> None:
    assert rows_shown(table, "full") >= rows_shown(table, "page")  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "count"), [("page", FIRST), ("full", 5)])
def test_one_screen_has_the_first_findings_and_the_full_page_all(
    length: Length, count: int
) -> None:
    found = composed(with_findings(*[valued()] * 5), length).suggestions
    assert len(found.rows) == count
    assert ("2 more" in found.more) == (count < 5)


def test_the_title_says_what_ran_on_what_and_how_long_a_step_took() -> None:
    page = composed(Results([training(), training()]))
    assert page.gpus == "2 x NVIDIA H200"
    assert page.steps == "step 50.0 ms, mean of 2"
    assert page.reports == "run.sqlite, run.sqlite"
    assert page.selection == ""


def test_what_took_part_in_the_recording_is_said_as_far_as_it_is_known() -> None:
    trace = replace(training().trace, source="Nsight Systems 2025.1, schema 3.11")
    run = replace(training(), trace=trace)
    versions = {"nvtx": "0.2", "torch": "2.13.0", "driver": "580.65"}
    origin = Origin(versions=versions, started="2026-11-20T10:00:00+00:00")
    assert composed(Results([run])).recorded == ("Nsight Systems 2025.1",)
    assert composed(Results([run], origin=origin)).recorded == (
        "Nsight Systems 2025.1", "driver 580.65", "torch 2.13.0", "2026-11-20",
    )  # fmt: skip


def test_the_options_that_narrow_the_window_are_named() -> None:
    options = Options(range="train", from_ns=1_500_000_000, steps=(StepPart(2),))
    page = composed(Results([replace(training(), options=options)]))
    assert page.selection == "--range train --from 1.5 --steps 2:"


@pytest.mark.parametrize("length", ["page", "full"])
def test_top_sets_the_rows_of_each_list_but_not_the_gpus(length: Length) -> None:
    rows = [device(100 * MS, device=index, host_ns=MS) for index in range(3)]
    page = composed(results(accounting=rows), length, top=1)
    assert [len(block.rows) for block in page.blocks if block.title == "GPU time"] == [3]
    training_page = composed(Results([training()]), length, top=1)
    (waits,) = [block for block in training_page.blocks if block.title == "Waits"]
    assert len(waits.rows) == 1


def test_gaps_that_are_too_short_are_not_shown() -> None:
    page = composed(Results([training()]), "full", least=10 * MS)
    assert [len(block.rows) for block in page.blocks if block.title == "Longest gaps"] == [1]


def test_mfu_is_a_sentence() -> None:
    (mfu,) = composed(Results([measured()])).sentences
    assert mfu.startswith("MFU 40 %")
    assert composed(Results([training()])).sentences == ()


def test_what_may_be_wrong_is_a_note_on_one_screen_and_a_table_on_the_full_page() -> None:
    page, full = (composed(Results([training()]), length) for length in ("page", "full"))
    assert page.notes == (
        "12 ranges of NCCL are not phases",
        "unattributed operations: 3 (0.3 %); affects phases: these operations are in none",
    )
    assert full.notes == page.notes[:1]


def test_a_run_without_gpu_work_has_a_verdict_and_no_blocks() -> None:
    page = composed(results())
    assert [each.sentence.partition(" (")[0] for each in page.headlines] == ["no GPU work"]
    assert page.blocks == ()
