"""The table shows comparisons and times, and on a GPU the times are complete."""

import re
from dataclasses import replace
from typing import Any

import pytest

from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.accuracy import Comparison
from nsysflow.workloads.common.measurement import Column, Table
from nsysflow.workloads.common.run import run
from tests.workloads.toys import toy, without_gpu


def column(name: str, phases_ns: tuple[int | None, ...], begun_ns: int, step_ns: int) -> Column:
    return Column(name=name, phases_ns=phases_ns, begun_ns=(begun_ns,), step_ns=step_ns)


TABLE = Table(
    compared=(
        Comparison(what="loss", torch_error=1e-4, error=1.9e-3),
        Comparison(what="gradient of encoder", torch_error=2e-3, error=3.9e-3),
    ),
    phases=("forward", "backward"),
    ends=("loss",),
    columns=(
        column("torch", (4_000_000, 6_000_000), 4_500_000, 9_000_000),
        column("fused", (100_000, 200_000), 120_000, 290_000),
        column("graph", (25_000, 75_000), 31_000, 96_000),
    ),
)


def words(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def lines(table: Table) -> dict[str, list[str]]:
    """The cells after each name."""
    split = [words(line) for line in str(table).splitlines()]
    return {first: rest for first, *rest in split}


def test_an_error_passes_up_to_twice_that_of_pytorch_or_one_thousandth() -> None:
    assert lines(TABLE)["loss"] == ["1.0e-04", "1.9e-03", "FAIL"]
    assert lines(TABLE)["gradient of encoder"] == ["2.0e-03", "3.9e-03", "PASS"]


def test_only_failed_comparisons_are_wrong() -> None:
    assert TABLE.wrong == ("loss",)
    assert replace(TABLE, compared=TABLE.compared[1:]).wrong == ()


def test_times_are_in_us_and_shares_are_of_the_last_column() -> None:
    assert lines(TABLE)["forward"] == ["4000.0", "100.0", "25.0", "25.0%"]
    assert lines(TABLE)["backward"] == ["6000.0", "200.0", "75.0", "75.0%"]


def test_a_phase_without_launches_has_no_time() -> None:
    fused = column("fused", (70_000, None), 50_000, 60_000)
    table = replace(TABLE, compared=(), columns=(TABLE.columns[0], fused))
    assert lines(table)["backward"] == ["6000.0", "-", "0.0%"]
    assert lines(table)["sum of phases"] == ["10000.0", "70.0"]


def test_the_sum_of_phases_and_the_measured_step_are_both_shown() -> None:
    assert lines(TABLE)["sum of phases"] == ["10000.0", "300.0", "100.0"]
    assert lines(TABLE)["step, measured"] == ["9000.0", "290.0", "96.0"]


def test_the_first_parts_of_a_step_are_shown() -> None:
    assert lines(TABLE)["to the end of loss"] == ["4500.0", "120.0", "31.0"]


def test_the_last_column_is_compared_with_each_other() -> None:
    last = str(TABLE).splitlines()[-2:]
    assert last == ["graph against torch: 93.8 times", "graph against fused: 3.0 times"]


def test_the_record_has_the_same_numbers() -> None:
    record = TABLE.record
    assert [row["passed"] for row in record["compared"]] == [False, True]
    assert record["columns"][2] == {
        "name": "graph",
        "phases_ns": {"forward": 25_000, "backward": 75_000},
        "sum_ns": 100_000,
        "to_the_end_of_ns": {"loss": 31_000},
        "step_ns": 96_000,
    }


def test_a_table_without_comparisons_shows_only_times() -> None:
    alone = replace(TABLE, compared=(), columns=TABLE.columns[:1])
    assert "float64" not in str(alone)
    assert lines(alone)["forward"] == ["4000.0", "40.0%"]


def test_without_a_gpu_nothing_is_timed() -> None:
    outcome = run(toy(find("trainstep"), "torch", steps=1))
    assert outcome.table is None
    assert outcome.record["table"] is None


@pytest.mark.gpu
@without_gpu
@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("rolloutcopy", ("compute_prio",)),
        ("trainforward", ("loss",)),
        ("trainstep", ("loss", "backward")),
    ],
)
def test_on_a_gpu_all_comparisons_pass_and_every_phase_is_timed_as_a_graph_too(
    name: str, ends: tuple[str, ...]
) -> None:
    table: Any = run(toy(find(name), "graph", on="cuda")).table
    assert [row.what for row in table.compared if not row.passed] == []
    assert [column.name for column in table.columns] == ["torch", "fused", "graph"]
    assert table.ends == ends
    times_ns = [ns for column in table.columns for ns in (*column.begun_ns, column.step_ns)]
    assert min(times_ns) > 0
