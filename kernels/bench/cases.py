"""Cases of the benchmark and their rows: a result must be correct before it is timed."""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from itertools import product
from typing import Final

import torch

from nsysflow.base.errors import ExitCode
from nsysflow.catalog.catalog import Kernel
from nsysflow.kernels.bench.correctness import check
from nsysflow.kernels.bench.measurement import measured
from nsysflow.kernels.bench.problem import (
    BACKENDS,
    DTYPES,
    Benchmark,
    Direction,
    Outputs,
    Problem,
    Random,
    Shape,
    Variant,
    call_of,
    forget_compiled,
    function_of,
    shapes_of,
    variants_of,
)
from nsysflow.kernels.bench.problems import BENCHMARKS
from nsysflow.kernels.bench.rows import Machine, Row, flat
from nsysflow.kernels.bench.stopwatch import Stopwatch

COPY_PCT: Final = (85, 100)
"""The allowed speed of the copy kernel, in per cent of the copy bandwidth of the same run. Above
100, work is missing from the record or L2 was not flushed. Below 85, it contains other work."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one row of the results is about."""

    kernel: Kernel
    shape: Shape
    dtype: str
    direction: Direction
    variant: Variant

    @property
    def benchmark(self) -> Benchmark:
        """How the kernel is benchmarked."""
        return BENCHMARKS[self.kernel.name]

    @property
    def ours(self) -> bool:
        """Whether the variant is one of our kernels."""
        return self.variant in BACKENDS


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where cases run. Without a stopwatch they are only checked."""

    device: torch.device
    machine: Machine
    watch: Stopwatch | None


def cases_of(
    kernel: Kernel, *, dtypes: tuple[str, ...], variants: tuple[str, ...], sweep: bool, on_gpu: bool
) -> Iterator[Case]:
    """The cases of a kernel; on a CPU only those of the toy shape."""
    benchmark = BENCHMARKS[kernel.name]
    shapes = shapes_of(benchmark, sweep=sweep) if on_gpu else [benchmark.toy]
    offered = variants_of(kernel, on_gpu=on_gpu)
    for shape, dtype, direction, variant in product(
        shapes, kernel.dtypes, benchmark.directions, offered
    ):
        if dtype in dtypes and variant in variants:
            yield Case(
                kernel=kernel, shape=shape, dtype=dtype, direction=direction, variant=variant
            )


def blank_row(bench: Bench, case: Case) -> Row:
    """The row of a case that has not run yet."""
    return Row(
        date=date.today().isoformat(),
        kernel=case.kernel.name,
        shape=case.shape,
        dtype=case.dtype,
        direction=case.direction,
        variant=case.variant,
        outcome="failed",
        error=None,
        note=None,
        cost=None,
        unit="float32",
        measured=None,
        machine=bench.machine,
    )


def row_of(bench: Bench, case: Case, *, corrupt: bool = False) -> Row:
    """Check a case and, if it is correct and there is a GPU, time it.

    An error does not end the benchmark: its traceback goes to stderr and the row says `failed`.
    """
    row = blank_row(bench, case)
    try:
        with bench.watch.using() if bench.watch else nullcontext():
            return _checked_and_timed(bench, case, row, corrupt=corrupt)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return replace(row, note=f"{type(error).__name__}: {error}".splitlines()[0])


def _checked_and_timed(bench: Bench, case: Case, row: Row, *, corrupt: bool) -> Row:
    forget_compiled(case.variant)
    problem, call = _problem_and_call(bench, case)
    checked = check(
        problem,
        case.direction,
        call,
        ours=case.ours,
        interpreted=bench.watch is None,
        corrupt=corrupt,
    )
    row = replace(
        row,
        outcome="wrong" if checked.problem else "right",
        error=checked.error,
        note=checked.problem,
        cost=problem.cost[case.direction],
        unit=problem.unit,
    )
    if checked.problem or bench.watch is None:
        return row
    timed = measured(bench.watch, call, lambda: _problem_and_call(bench, case)[1])
    return checked_copy(replace(row, measured=timed, note=timed.why_no_graph))


def checked_copy(row: Row) -> Row:
    """The row, made `wrong` if it is the copy kernel at an impossible speed.

    Then the benchmark itself measures wrongly.
    """
    pct = flat(row, None)["copy_pct"]
    if (row.kernel, row.variant) != ("copy", "triton") or pct is None:
        return row
    least, most = COPY_PCT
    if least < pct <= most:
        return row
    note = (
        f"the copy is at {pct} % of the copy bandwidth; it must be above {least} and up to {most}"
    )
    return replace(row, outcome="wrong", note=note)


def _problem_and_call(bench: Bench, case: Case) -> tuple[Problem, Callable[[], Outputs]]:
    """The problem on new memory, always with the same numbers, and its call."""
    random = Random(device=bench.device, dtype=DTYPES[case.dtype])
    problem = case.benchmark.make(case.shape, random)
    return problem, call_of(problem, function_of(problem, case.variant), case.direction)


def exit_code(rows: list[Row]) -> int:
    """How the benchmark ends: a wrong result counts more than a case that failed."""
    outcomes = {row.outcome for row in rows}
    if "wrong" in outcomes:
        return ExitCode.WRONG_RESULT
    return ExitCode.FAILED if "failed" in outcomes else 0
