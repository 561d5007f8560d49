"""Steps: the sentence on all of them, and a row for each."""

from dataclasses import dataclass, field, replace

import polars as pl
import pytest

from nsysflow.report.blocks.steps import block, steps_sentence
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, Handmade, Results, captured, handmade, training


@dataclass(frozen=True)
class PartlyJudged(Handmade):
    """An analysis of which a part is judged."""

    part: Handmade = field(default_factory=lambda: Handmade(tables={}))

    @property
    def judged(self) -> Handmade:
        return self.part


def steady(step_ms: float, steps: int = 5, process: int = 7) -> Handmade:
    """Steps of one process, all steady."""
    rows = [
        {"step": step, "process": process, "duration_ns": int(step_ms * MS), "steady": True}
        for step in range(steps)
    ]
    return handmade(step_name="step", steps=rows)


def sentence(*runs: Handmade) -> str:
    return steps_sentence(Results(runs))


def judged(run: Handmade, *steps: int) -> Handmade:
    """`run`, of which only some steps are judged."""
    rows = run.tables["steps"].filter(pl.col("step").is_in(steps))
    part = replace(run, tables=run.tables | {"steps": rows})
    return PartlyJudged(**{**vars(run), "part": replace(part, step_counts={("run.sqlite", 0): 1})})


def test_a_step_is_as_long_as_the_mean_of_all_where_none_are_judged() -> None:
    assert sentence(training()) == "step 50.0 ms, mean of 2"


def test_a_single_step_has_no_mean() -> None:
    assert sentence(steady(5.5, steps=1)) == "step 5.50 ms"


def test_the_mean_is_that_of_the_judged_steps_and_says_of_how_many() -> None:
    assert sentence(judged(training(), 1)) == "step 40.0 ms, mean of 1 of 2"


def test_of_several_ranks_the_slowest_counts() -> None:
    assert sentence(steady(5.0), steady(7.0, process=8)) == "step 7.00 ms, mean of 5"


def test_an_unprofiled_step_is_said_where_it_was_measured() -> None:
    run = captured(steady(5.5), (7, 4_500_000))
    assert sentence(run) == "step 5.50 ms, mean of 5 (unprofiled 4.50 ms)"


@pytest.mark.parametrize("process", [(7, None), (8, 4 * MS)])
def test_without_a_measured_step_of_that_process_nothing_is_said(
    process: tuple[int, int | None],
) -> None:
    assert sentence(captured(steady(5.5), process)) == "step 5.50 ms, mean of 5"


def test_ranks_that_measured_different_steps_give_their_median() -> None:
    runs = [
        captured(steady(5.5, process=pid), (pid, unprofiled_ns))
        for pid, unprofiled_ns in ((7, 4 * MS), (9, 5 * MS))
    ]
    assert sentence(*runs).endswith("(unprofiled 4.50 ms)")


def test_each_range_that_is_a_step_has_figures_of_its_own() -> None:
    """A trainer and a server in one report: no number is of both."""
    trainer = captured(steady(14.0, steps=10), (7, 12 * MS))
    server = replace(steady(0.5, steps=200, process=8), step_name="generate")
    assert sentence(trainer, server) == (
        "step 14.0 ms, mean of 10 (unprofiled 12.0 ms); generate 500 us, mean of 200"
    )


def test_without_steps_there_is_no_sentence() -> None:
    assert sentence(handmade()) == ""


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
