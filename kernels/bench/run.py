"""From cases to rows: right first, and only then how fast."""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from itertools import product
from typing import Final

import torch

from nsysflow.kernels.bench.calls import (
    Variant,
    call_of,
    forget_compiled,
    function_of,
    variants_of,
)
from nsysflow.kernels.bench.judging import judge
from nsysflow.kernels.bench.measuring import measured
from nsysflow.kernels.bench.problem import (
    DTYPES,
    Direction,
    Kernel,
    Outputs,
    Problem,
    Random,
    Shape,
    shapes_of,
)
from nsysflow.kernels.bench.problems import KERNELS
from nsysflow.kernels.bench.rows import Machine, Row, flat
from nsysflow.kernels.bench.stopwatch import Stopwatch

COPY_PCT: Final = (85, 100)
"""Between which a copy kernel must be, of the copy bandwidth of the same run: above 100 work is
missing from the record, or L2 was not flushed; below 85 something else is in it."""

EXIT_WRONG: Final = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row to be."""

    name: str
    shape: Shape
    dtype: str
    direction: Direction
    variant: Variant

    @property
    def kernel(self) -> Kernel:
        """What the benchmark knows of it."""
        return KERNELS[self.name]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where cases run; without a stopwatch they are only judged."""

    device: torch.device
    machine: Machine
    watch: Stopwatch | None


def cases_of(
    name: str, *, dtypes: tuple[str, ...], variants: tuple[str, ...], sweep: bool, on_gpu: bool
) -> Iterator[Case]:
    """The cases of a kernel; on a CPU the toy shape alone."""
    kernel = KERNELS[name]
    shapes = shapes_of(kernel, sweep=sweep) if on_gpu else [kernel.toy]
    offered = variants_of(kernel, on_gpu=on_gpu)
    for shape, dtype, direction, variant in product(
        shapes, kernel.dtypes, kernel.directions, offered
    ):
        if dtype in dtypes and variant in variants:
            yield Case(name=name, shape=shape, dtype=dtype, direction=direction, variant=variant)


def blank_row(bench: Bench, case: Case) -> Row:
    """A case of which nothing is known yet."""
    return Row(
        date=date.today().isoformat(),
        kernel=case.name,
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
    """Judge a case and, if it is right and there is a GPU, time it.

    An error does not end the benchmark: its traceback goes to stderr, the row says that it failed.
    """
    row = blank_row(bench, case)
    try:
        with bench.watch.using() if bench.watch else nullcontext():
            return _judged_and_timed(bench, case, row, corrupt=corrupt)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return replace(row, note=f"{type(error).__name__}: {error}".splitlines()[0])


def _judged_and_timed(bench: Bench, case: Case, row: Row, *, corrupt: bool) -> Row:
    forget_compiled(case.variant)
    problem, call = _problem_and_call(bench, case)
    judged = judge(
        problem,
        case.direction,
        call,
        ours=case.variant in case.kernel.backends,
        interpreted=bench.watch is None,
        corrupt=corrupt,
    )
    row = replace(
        row,
        outcome="wrong" if judged.problem else "right",
        error=judged.error,
        note=judged.problem,
        cost=problem.cost[case.direction],
        unit=problem.unit,
    )
    if judged.problem or bench.watch is None:
        return row
    timed = measured(bench.watch, call, lambda: _problem_and_call(bench, case)[1])
    return checked_copy(replace(row, measured=timed, note=timed.why_no_graph))


def checked_copy(row: Row) -> Row:
    """A row of the copy kernel whose speed cannot be is wrong: the benchmark measures wrong."""
    pct = flat(row, None)["copy_pct"]
    if (row.kernel, row.variant) != ("copy", "triton") or pct is None:
        return row
    least, most = COPY_PCT
    if least < pct <= most:
        return row
    note = f"a copy at {pct} % of the copy bandwidth; above {least} and at most {most} is possible"
    return replace(row, outcome="wrong", note=note)


def _problem_and_call(bench: Bench, case: Case) -> tuple[Problem, Callable[[], Outputs]]:
    """On new memory each time, with the same numbers in it."""
    random = Random(device=bench.device, dtype=DTYPES[case.dtype])
    problem = case.kernel.make(case.shape, random)
    return problem, call_of(problem, function_of(problem, case.variant), case.direction)


def exit_code(rows: list[Row]) -> int:
    """3 if a result is wrong, else 1 if a case failed, else 0."""
    outcomes = {row.outcome for row in rows}
    return EXIT_WRONG if "wrong" in outcomes else 1 if "failed" in outcomes else 0
