"""Outlier steps that hold most of the idle time are named, and no others."""

from dataclasses import replace
from itertools import accumulate

import pytest

from nsysflow.analysis.options import Options, StepPart
from nsysflow.report.bottleneck.outlier_steps import outlier_sentences
from nsysflow.report.results import Results
from tests.report.handmade import MS, Handmade, device, handmade

Step = tuple[int, int]
"""Its length and its idle, in ms."""


def rows_of(process: int, *steps: Step, begin_ms: int = 0) -> list[dict[str, int]]:
    """One step after the other."""
    begins = accumulate((length for length, _ in steps), initial=begin_ms)
    return [
        {
            "step": step,
            "process": process,
            "start_ns": begin * MS,
            "end_ns": (begin + length) * MS,
            "duration_ns": length * MS,
            "idle_ns": idle * MS,
        }
        for step, (begin, (length, idle)) in enumerate(zip(begins, steps, strict=False))
    ]


def run(*steps: Step, more_idle_ms: int = 0) -> Handmade:
    """Steps of one GPU, and idle time outside of them."""
    rows = rows_of(7, *steps)
    window_ns = (sum(length for length, _ in steps) + more_idle_ms) * MS
    host_ns = (sum(idle for _, idle in steps) + more_idle_ms) * MS
    return handmade(step_name="step", steps=rows, accounting=[device(window_ns, host_ns=host_ns)])


def sentence(*runs: Handmade) -> str:
    return " ".join(outlier_sentences(Results(runs)))


def test_a_first_step_that_holds_most_of_the_idle_can_be_left_out() -> None:
    assert sentence(run((60, 55), (5, 2), (5, 2), (5, 2))) == (
        "outlier step 0: 60.0 ms, 12 times the median of the 4 steps, with 90 % of the idle time;"
        " --steps '!0' leaves it out"
    )


def test_the_end_that_was_asked_for_stays() -> None:
    some = replace(run((60, 55), (5, 2), (5, 2)), options=Options(steps=(StepPart(0, 3),)))
    assert sentence(some).endswith("--steps 0:3 --steps '!0' leaves it out")


def test_one_from_the_middle_can_be_looked_at_alone() -> None:
    assert sentence(run((5, 1), (5, 1), (5, 1), (12, 8), (5, 1))) == (
        "outlier step 3: 12.0 ms, 2.4 times the median of the 5 steps, with 67 % of the idle time;"
        " --steps 3 shows it alone"
    )


def test_several_are_counted_and_the_first_are_named() -> None:
    each = [(5, 1), (5, 1), (50, 40)]
    assert sentence(run(*each * 5)) == (
        "5 outlier steps of 15 (2, 5, 8, …): at least 10 times the median, with 95 % of the idle"
        " time; --steps 2 shows the first alone"
    )


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([], id="no steps"),
        pytest.param([(60, 55)], id="one step is like itself"),
        pytest.param([(9, 8), (5, 2), (5, 2)], id="longer, but not twice as long"),
        pytest.param([(60, 18), (20, 10), (20, 10)], id="not most of the idle"),
        pytest.param([(60, 2), (20, 0), (20, 0)], id="hardly any idle"),
        pytest.param([(60, 0), (20, 0), (20, 0)], id="no idle at all"),
        pytest.param([(6, 5), (0, 0), (0, 0)], id="steps without a length"),
    ],
)
def test_steps_without_an_outlier_that_matters_get_no_sentence(steps: list[Step]) -> None:
    assert sentence(run(*steps)) == ""


def test_idle_time_outside_the_steps_is_of_no_step() -> None:
    assert sentence(run((60, 55), (5, 2), (5, 2), more_idle_ms=100)) == ""


def test_a_step_is_compared_with_the_median_of_its_own_gpu() -> None:
    slow, fast = run((50, 1), (50, 1), (50, 1)), run((5, 1), (5, 1), (5, 1))
    assert sentence(slow, fast) == ""
    ranks = run((60, 55), (5, 2), (5, 2)), run((62, 57), (5, 2), (5, 2))
    assert sentence(*ranks).startswith("outlier step 0: 62.0 ms, 12 times the median of the 3 ")


def test_processes_that_share_a_gpu_hold_its_idle_time_once() -> None:
    some = [(5, 1), (60, 55), (5, 1)]
    shared = handmade(
        step_name="step",
        steps=rows_of(7, *some) + rows_of(8, *some, begin_ms=2),
        accounting=[device(75 * MS, host_ns=58 * MS)],
    )
    assert "with 95 % of the idle time" in sentence(shared)


def test_processes_that_take_turns_on_a_gpu_hold_their_own_idle_time_each() -> None:
    some = [(5, 1), (60, 55), (5, 1)]
    in_turn = handmade(
        step_name="step",
        steps=rows_of(7, *some) + rows_of(8, *some, begin_ms=70),
        accounting=[device(140 * MS, host_ns=114 * MS)],
    )
    assert "with 96 % of the idle time" in sentence(in_turn)


@pytest.mark.parametrize("cut", [Options(range="forward"), Options(from_ns=1), Options(to_ns=9)])
def test_steps_that_a_window_cuts_are_not_compared_with_its_idle_time(cut: Options) -> None:
    some = run((60, 55), (5, 2), (5, 2), (5, 2))
    assert sentence(some)
    assert sentence(replace(some, options=cut)) == ""
