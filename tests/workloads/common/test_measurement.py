"""The table shows comparisons and times, and on a GPU the times are complete."""

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


def test_an_error_passes_up_to_twice_that_of_pytorch_or_one_thousandth() -> None:
    assert str(TABLE) == PAGE
    assert TABLE.wrong == ("loss",)


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
def test_on_a_gpu_all_phases_agree_and_are_timed(name: str, ends: tuple[str, ...]) -> None:
    table: Any = run(toy(find(name), "graph", on="cuda")).table
    assert [row.what for row in table.compared if not row.passed] == []
    assert [column.name for column in table.columns] == ["torch", "fused", "graph"]
    assert table.ends == ends
    times_ns = [ns for column in table.columns for ns in (*column.begun_ns, column.step_ns)]
    assert min(times_ns) > 0
