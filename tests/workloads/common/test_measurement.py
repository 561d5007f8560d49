"""The table shows comparisons and times, and on a GPU the times are complete."""

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


PAGE = """\
distance from float64        torch     fused
loss                       1.0e-04   1.9e-03  FAIL
gradient of encoder        2.0e-03   3.9e-03  PASS

us                           torch     fused     graph   share
forward                     4000.0     100.0      25.0   25.0%
backward                    6000.0     200.0      75.0   75.0%
sum of phases              10000.0     300.0     100.0
to the end of loss          4500.0     120.0      31.0
step, measured              9000.0     290.0      96.0
graph against torch: 93.8 times
graph against fused: 3.0 times"""
ONLY_TIMES = """\
us                           torch     fused   share
forward                     4000.0      70.0  100.0%
backward                    6000.0         -    0.0%
sum of phases              10000.0      70.0
to the end of loss          4500.0      50.0
step, measured              9000.0      60.0
fused against torch: 150.0 times"""


def test_an_error_passes_up_to_twice_that_of_pytorch_or_one_thousandth() -> None:
    assert str(TABLE) == PAGE
    assert TABLE.wrong == ("loss",)


def test_without_comparisons_there_are_only_times_and_none_of_a_phase_without_launches() -> None:
    fused = column("fused", (70_000, None), 50_000, 60_000)
    table = replace(TABLE, compared=(), columns=(TABLE.columns[0], fused))
    assert str(table) == ONLY_TIMES
    assert table.wrong == ()
    assert "against" not in str(replace(table, columns=TABLE.columns[:1]))


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
