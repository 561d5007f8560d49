"""The other loops beside the steps."""

from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests.tiny import Row, analysis_of, kernel, launch, opened

MODELS = ("forward", "eval")
"""The ranges that are automatic."""


def instance(name: str, number: int, *, at: int, busy: int = 80) -> list[Row]:
    """A range of 90 ns with a launch and its kernel."""
    domain = AUTO_DOMAIN if name in MODELS else None
    range_ = replace(opened(at, at + 90, name), domain=domain)
    return [range_, launch(at + 5, at + 8, number), kernel(at + 10, at + 10 + busy, number)]


def program(*names: str, busy: dict[str, int] | None = None) -> nsysflow.Analysis:
    """A program that opens these ranges one after the other."""
    rows = [
        row
        for number, name in enumerate(names)
        for row in instance(name, number + 1, at=100 * number, busy=(busy or {}).get(name, 80))
    ]
    return analysis_of(*rows)


def parts(analysis: nsysflow.Analysis) -> list[tuple[str, str | None, int]]:
    """Part, phase of a loop, and count of each row of the ledger with steps."""
    rows = analysis.run.filter(pl.col("count") > 0)
    part = pl.col("part").cast(pl.String)
    phase = pl.when(part == "loop").then("phase")
    return rows.select(part, phase.alias("phase"), "count").rows()


TRAIN = ["train"] * 8


def test_a_validation_between_steps_is_a_loop_of_its_own() -> None:
    analysis = program(*TRAIN, *["validate"] * 4, *TRAIN, busy={"validate": 10})
    assert ("loop", "validate", 4) in parts(analysis)
    assert analysis.step_name == "train"
    # the step before it ends with its own operation, and lasts no longer than the others
    assert analysis.steps["duration_ns"].max() == 100


def test_twelve_phases_one_after_the_other_are_twelve_loops() -> None:
    names = [f"phase_{letter}" for letter in "abcdefghijkl"]
    analysis = program(*(name for name in names for _ in range(5)))
    loops = {phase for part, phase, _ in parts(analysis) if part == "loop"}
    assert len(loops) == 11
    assert loops | {analysis.step_name} == set(names)


def test_two_in_a_row_are_no_loop() -> None:
    assert all(part != "loop" for part, *_ in parts(program(*TRAIN, *["log"] * 2, *TRAIN)))


@pytest.mark.parametrize(
    ("name", "count", "is_loop"),
    [("forward", 9, False), ("forward", 10, True), ("eval", 2, False), ("eval", 3, True)],
)
def test_a_few_calls_of_a_model_in_training_are_a_part_of_the_step_before(
    name: str, count: int, *, is_loop: bool
) -> None:
    analysis = program(*TRAIN, *[name] * count, *TRAIN, busy=dict.fromkeys(MODELS, 10))
    assert (("loop", name, count) in parts(analysis)) == is_loop
    longest = 100 if is_loop else 100 * (count + 1)
    assert analysis.steps["duration_ns"].max() == longest


def test_what_repeats_between_the_steps_is_a_part_of_them() -> None:
    rollout = [name for _ in range(8) for name in ("train", *["act"] * 4)]
    assert all(part != "loop" for part, *_ in parts(program(*rollout, busy={"act": 10})))


def test_the_rows_of_the_ledger_are_the_recorded_time() -> None:
    analysis = program(*TRAIN, *["validate"] * 4, *TRAIN, busy={"validate": 10})
    assert analysis.run["time_ns"].sum() == 100 * 20 - 10
