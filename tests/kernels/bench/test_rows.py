"""Rows of results; wrong results are called wrong."""

import csv
import json
import math
import statistics
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor

from nsysflow.base.errors import OutputError
from nsysflow.kernels.bench.correctness import ROUNDING, TRUNCATION, Correctness, check, compared
from nsysflow.kernels.bench.problem import Cost, Outputs, Problem, Tolerance
from nsysflow.kernels.bench.rows import (
    Row,
    add_to_csv,
    add_to_json,
    calls_a_sample,
    check_file,
    flat,
    notes_of,
    stats_of,
    table_of,
)
from nsysflow.kernels.bench.session import checked_copy, exit_code
from tests.kernels.bench.rows import measured, row


def test_every_row_has_the_same_columns_and_is_valid_json() -> None:
    for other in (
        row(measured=None, cost=None, error=None, outcome="failed", note="why"),
        row(measured=measured(graph_cold=None, graph_warm=None, why_no_graph="it waits")),
        row(error=math.inf, outcome="wrong", measured=None),
    ):
        columns = flat(other, None)
        assert list(columns) == list(flat(row(), peak_flops_per_s=1e12))
        assert json.loads(json.dumps(columns, allow_nan=False)) == columns


def test_rows_are_appended_and_never_replaced(tmp_path: Path) -> None:
    table, lines = tmp_path / "rows.csv", tmp_path / "rows.json"
    for name in ("advantage", "prio", "muon"):
        columns = flat(row(kernel=name), None)
        check_file(table, columns)
        add_to_csv(table, columns)
        add_to_json(lines, columns)
    with table.open(newline="") as file:
        names = [each["kernel"] for each in csv.DictReader(file)]
    assert names == ["advantage", "prio", "muon"]
    assert [json.loads(line)["kernel"] for line in lines.read_text().splitlines()] == names


def test_a_file_with_other_columns_or_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(OutputError, match="has other columns"):
        check_file(file, flat(row(), None))
    assert file.read_text() == "a,b\n1,2\n"
    with pytest.raises(OutputError, match="cannot append results to"):
        check_file(tmp_path / "no" / "rows.json", None)


@pytest.mark.parametrize(("device_ns", "outcome"), [(800, "right"), (799, "wrong"), (950, "wrong")])
def test_a_copy_at_an_impossible_speed_is_wrong(device_ns: float, outcome: str) -> None:
    copied = row(kernel="copy", measured=measured(device_ns))  # 4000 bytes: 800 ns at 5 GB/s
    assert checked_copy(copied).outcome == outcome
    assert checked_copy(row(measured=measured(device_ns))).outcome == "right"


def test_the_worst_outcome_decides_the_exit_code() -> None:
    right, wrong, failed = (row(outcome=each) for each in ("right", "wrong", "failed"))
    assert exit_code([right, failed, wrong]) == 3
    assert exit_code([right, failed]) == 1
    assert exit_code([right]) == 0


def page(*rows: Row) -> list[str]:
    """The table as it is printed."""
    out = StringIO()
    Console(file=out, width=200, highlight=False).print(table_of(rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_wrong_and_failed_rows_say_why() -> None:
    wrong = row(outcome="wrong", error=7.0, note="output 0 is off", measured=None)
    failed = row(outcome="failed", error=None, note="OSError: no", measured=None)
    assert [line.split()[-1] for line in page(wrong, failed)[2:]] == ["WRONG", "failed"]
    assert notes_of([row(), wrong, failed]) == [
        "advantage triton fwd bf16 S=8 T=2: wrong: output 0 is off",
        "advantage triton fwd bf16 S=8 T=2: failed: OSError: no",
    ]


samples = st.lists(st.integers(1, 10**9).map(float), min_size=2, max_size=60)


@given(st.lists(samples, min_size=1, max_size=3))
def test_every_sample_of_every_run_counts_once(runs: list[list[float]]) -> None:
    stats = stats_of(runs)
    every = sorted(sample for run in runs for sample in run)
    assert stats.n == len(every)
    assert (stats.min_ns, stats.max_ns) == (every[0], every[-1])
    assert stats.median_ns == (every[(len(every) - 1) // 2] + every[len(every) // 2]) / 2
    assert stats.mean_ns == pytest.approx(sum(every) / len(every))
    assert stats.std_ns == pytest.approx(statistics.stdev(every), rel=1e-6, abs=1e-3)


def test_the_spread_compares_medians_of_runs_and_not_samples() -> None:
    assert stats_of([[1.0, 100.0, 900.0], [2.0, 102.0, 300.0]]).spread_pct == pytest.approx(2.0)
    assert stats_of([[1.0, 100.0, 900.0]]).spread_pct == 0


@given(st.floats(1, 1e12))
def test_a_sample_takes_about_a_millisecond_or_is_one_call_or_a_hundred(call_ns: float) -> None:
    calls = calls_a_sample(call_ns)
    assert calls in (1, 100) or abs(calls * call_ns - 1e6) <= call_ns / 2


LOOSE = Tolerance(relative=0.1, absolute=0.0)
EXACT = Tolerance(relative=0.0, absolute=0.0)
RIGHT = torch.arange(1.0, 5.0) * 2


def checked(
    call: Callable[[], Outputs], *, poison: tuple[Tensor, ...] = (), corrupt: bool = False
) -> Correctness:
    """A kernel that should double the numbers from 1 to 4."""
    problem = Problem(
        inputs=(torch.arange(1.0, 5.0),),
        reference=lambda x: (2 * x,),
        kernels={},
        tolerance=LOOSE,
        cost={"fwd": Cost(bytes=32, flops=4)},
        poison=poison,
    )
    return check(problem, "fwd", call, ours=True, interpreted=True, corrupt=corrupt)


@given(st.floats(-1, 1))
def test_a_result_is_correct_up_to_the_tolerance_and_wrong_beyond(off: float) -> None:
    wanted = torch.tensor([8.0], dtype=torch.float64)
    found = compared([wanted * (1 + off)], [wanted], LOOSE, ROUNDING)
    assert (found.problem is None) == (found.error <= 1)
    assert abs(found.error - abs(off) / 0.1) < 1e-9


def test_nan_infinity_and_another_shape_are_wrong() -> None:
    right = torch.ones(4)
    for found in (right * torch.nan, right * torch.inf, right[:3], right[None]):
        assert compared([found], [right], LOOSE, ROUNDING).problem
    assert compared([], [right], LOOSE, ROUNDING).problem


def test_bf16_results_can_be_rounded_once() -> None:
    wanted = torch.rand(1000, dtype=torch.float64) + 1
    found = wanted.bfloat16()
    assert compared([found], [wanted], EXACT, ROUNDING).problem is None
    assert compared([found.float()], [wanted], EXACT, ROUNDING).problem
    assert compared([found * 1.01], [wanted], EXACT, TRUNCATION).problem


def test_a_corrupted_element_is_noticed() -> None:
    assert checked(lambda: (RIGHT,)).error == 0
    assert checked(lambda: (RIGHT,), corrupt=True).error > 1


def test_elements_that_a_kernel_does_not_write_are_noticed() -> None:
    torch.empty(4).copy_(RIGHT)  # freed memory may contain the correct result

    def half() -> Outputs:
        out = torch.empty(4)
        out[:2] = RIGHT[:2]
        return (out,)

    assert checked(half).problem
    assert not torch.are_deterministic_algorithms_enabled()


def test_memory_allocated_before_the_call_is_filled_with_nan_too() -> None:
    out = RIGHT.clone()
    assert checked(lambda: (out,), poison=(out,)).problem
