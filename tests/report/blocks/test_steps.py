"""Steps: the sentence on all of them, and a row for each."""

from dataclasses import replace

import polars as pl
import pytest

from nsysflow.report.blocks.steps import block, steps_sentence
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, Handmade, Results, captured, handmade, training


def steady(step_ms: float, steps: int = 5, process: int = 7) -> Handmade:
    """Steps of one process, all steady."""
    rows = [
        {"step": step, "process": process, "duration_ns": int(step_ms * MS), "steady": True}
        for step in range(steps)
    ]
    return handmade(step_name="step", steps=rows)


def sentence(*runs: Handmade) -> str:
    return steps_sentence(Results(runs))


def test_what_the_profiler_adds_to_a_step_is_said_where_it_was_measured() -> None:
    run = captured(steady(5.5), (7, 4_500_000))
    assert sentence(run) == (
        "5 steps of step, median 5.50 ms (unprofiled 4.50 ms: the profiler adds 22 %)"
    )


def test_the_profiler_is_compared_with_the_steady_steps() -> None:
    slow = training()  # 60 ms, then 40 ms, of which the second is steady
    steps = slow.tables["steps"].with_columns(process=pl.lit(7, pl.Int64))
    run = captured(replace(slow, tables=slow.tables | {"steps": steps}), (7, 32 * MS))
    assert sentence(run) == (
        "2 steps of step, median 50.0 ms"
        " (step 1 steady: 40.0 ms, 25 % idle; unprofiled 32.0 ms: the profiler adds 25 %)"
    )


@pytest.mark.parametrize("process", [(7, None), (8, 4 * MS)])
def test_without_a_measured_step_of_that_process_nothing_is_said(
    process: tuple[int, int | None],
) -> None:
    assert sentence(captured(steady(5.5), process)) == "5 steps of step, median 5.50 ms"


def test_a_profiler_that_costs_nothing_adds_nothing() -> None:
    run = captured(steady(5.5), (7, 5_600_000))
    assert sentence(run) == "5 steps of step, median 5.50 ms (unprofiled 5.60 ms)"


def test_ranks_that_measured_different_steps_give_their_median() -> None:
    runs = [
        replace(
            captured(steady(5.5, process=pid), (pid, unprofiled_ns)),
            step_name="step",
        )
        for pid, unprofiled_ns in ((7, 4 * MS), (9, 5 * MS))
    ]
    assert "unprofiled 4.50 ms: the profiler adds 22 %" in sentence(*runs)


def test_each_range_that_is_a_step_is_compared_with_its_own_unprofiled_steps() -> None:
    trainer = captured(steady(15.0, process=7), (7, 12 * MS))
    server = captured(replace(steady(1.0, process=8), step_name="serve"), (8, 900_000))
    assert sentence(trainer, server) == (
        "5 steps of step, median 15.0 ms (unprofiled 12.0 ms: the profiler adds 25 %);"
        " 5 steps of serve, median 1.00 ms (unprofiled 900 us: the profiler adds 11 %)"
    )


def test_each_range_that_is_a_step_has_its_own_count_and_median() -> None:
    """A trainer and a server in one report: no number is of both."""
    trainer, server = steady(14.0, steps=10, process=7), steady(0.5, steps=200, process=8)
    server = replace(server, step_name="generate")
    assert sentence(trainer, server) == (
        "10 steps of step, median 14.0 ms; 200 steps of generate, median 500 us"
    )


def test_steady_steps_with_others_between_them_are_counted() -> None:
    rows = [
        {"step": step, "duration_ns": MS, "idle_ns": MS // 4, "steady": step in (2, 4)}
        for step in range(5)
    ]
    assert sentence(handmade(step_name="step", steps=rows)).endswith(
        "(2 of 5 steady: 1.00 ms, 25 % idle)"
    )


def test_the_parts_of_a_step_have_their_share_of_it() -> None:
    first, second = block(Results([training()]), Limits(rows=9)).rows
    assert first == ("0", "60.0 ms", "20.0 ms 33 %", "0", "0", "40.0 ms 67 %", "")
    assert second[-1] == "yes"


def test_the_steps_of_several_gpus_name_theirs() -> None:
    rows = block(Results([steady(1.0, steps=1), steady(2.0, steps=1, process=8)]), Limits(rows=9))
    assert "GPU" not in [column.head for column in rows.columns]
    other = handmade(steps=[{"step": 0, "device": 1, "duration_ns": MS}])
    both = block(Results([steady(1.0, steps=1), other]), Limits(rows=9))
    assert [row[0] for row in both.rows] == ["run.sqlite GPU 0", "run.sqlite GPU 1"]
