"""A session of the benchmark: run the cases on this machine, print tables, keep the rows. A result
must be correct before it is timed.
"""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Final

import click
import pynvml
import torch

import nsysflow
from nsysflow.base.errors import BenchError, ExitCode
from nsysflow.base.peaks import peak_flops
from nsysflow.base.screen import console, line_width
from nsysflow.catalog.catalog import Kernel, kernels
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
from nsysflow.kernels.bench.rows import (
    Machine,
    Row,
    add_to_csv,
    add_to_json,
    check_file,
    flat,
    notes_of,
    spread_of,
    table_of,
)
from nsysflow.kernels.bench.stopwatch import Stopwatch, copy_bytes_per_s, stopwatch

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


def bench_here(*, on_gpu: bool) -> Bench:
    """This machine: its GPU and its copy bandwidth, or its CPU."""
    if not on_gpu:
        machine = Machine(gpu="", versions=_versions(driver=""), copy_bytes_per_s=None)
        return Bench(device=torch.device("cpu"), machine=machine, watch=None)
    device = torch.device("cuda", torch.cuda.current_device())
    watch = stopwatch(device)
    machine = Machine(
        gpu=torch.cuda.get_device_name(device),
        versions=_versions(driver=_driver()),
        copy_bytes_per_s=copy_bytes_per_s(watch),
    )
    return Bench(device=device, machine=machine, watch=watch)


def _versions(driver: str) -> dict[str, str]:
    return {
        "driver": driver,
        "cuda": torch.version.cuda or "",
        "torch": torch.__version__,
        "triton": version("triton"),
        "nsysflow": nsysflow.__version__,
    }


def _driver() -> str:
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


WIDTH: Final = 200
"""Columns of the output if it is not a terminal; a timed table takes about 180."""

COPY: Final = "copy"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a session; see `nsysflow.catalog.options`."""

    kernels: tuple[str, ...]
    variants: tuple[str, ...]
    dtypes: tuple[str, ...]
    sweep: bool
    csv_file: Path | None
    json_file: Path | None
    inject_error: bool


def run(request: Request, *, on_gpu: bool) -> int:
    """Run the cases and print them, kernel by kernel.

    Returns:
        The exit code: 3 if a result is wrong, else 1 if a case failed, else 0.

    Raises:
        BenchError: there is nothing to run.
        OutputError: rows cannot be appended to the files.
    """
    by_kernel = _cases(request, on_gpu=on_gpu)
    bench = bench_here(on_gpu=on_gpu)
    columns = flat(blank_row(bench, by_kernel[0][0]), None)
    for file, header in ((request.csv_file, columns), (request.json_file, None)):
        if file is not None:
            check_file(file, header)
    corrupted = _case_to_corrupt(by_kernel) if request.inject_error else None
    rows: list[Row] = []
    for cases in by_kernel:
        made = []
        for case in cases:
            made.append(row_of(bench, case, corrupt=case is corrupted))
            _keep(made[-1], request)  # immediately: a kernel can take minutes and be interrupted
        _print(made)
        rows += made
    _close(rows, on_gpu=on_gpu)
    return exit_code(rows)


def _cases(request: Request, *, on_gpu: bool) -> list[list[Case]]:
    """The cases of each kernel. With a GPU the copy always comes first."""
    catalog = {kernel.name: kernel for kernel in kernels()}
    names = tuple(dict.fromkeys((COPY, *request.kernels) if on_gpu else request.kernels))
    by_kernel = []
    asked = 0
    for name in names:
        checks = on_gpu and name == COPY
        cases = cases_of(
            catalog[name],
            dtypes=tuple(DTYPES) if checks else request.dtypes,
            variants=(*request.variants, "triton") if checks else request.variants,
            sweep=request.sweep,
            on_gpu=on_gpu,
        )
        by_kernel.append(list(cases))
        asked += len(by_kernel[-1]) if name in request.kernels else 0
    if not asked:
        named = ", ".join(request.kernels)
        where = "with a GPU" if on_gpu else "without a GPU"
        wanted = f"{', '.join(request.variants)} in {', '.join(request.dtypes)}"
        seen = f"there is nothing to run: {named} {where} has no variant {wanted}"
        command = f"nsysflow bench {' '.join(request.kernels)}"
        raise BenchError(seen, "Run every variant", command)
    return [cases for cases in by_kernel if cases]


def _case_to_corrupt(by_kernel: Sequence[Sequence[Case]]) -> Case:
    """The first case of one of our kernels, or else the first case."""
    cases = [case for cases_of_kernel in by_kernel for case in cases_of_kernel]
    return next((case for case in cases if case.ours), cases[0])


def _print(rows: Sequence[Row]) -> None:
    screen = console(line_width(piped=WIDTH), markup=True, soft_wrap=False)
    screen.print(table_of(rows))
    screen.print()
    for note in notes_of(rows):
        click.echo(f"note: {note}", err=True)


def _keep(row: Row, request: Request) -> None:
    kept = flat(row, peak_flops(row.machine.gpu, row.unit))
    if request.csv_file:
        add_to_csv(request.csv_file, kept)
    if request.json_file:
        add_to_json(request.json_file, kept)


def _close(rows: Sequence[Row], *, on_gpu: bool) -> None:
    spread = spread_of(rows)
    if spread is not None:
        click.echo(spread)
    copied = rows[0].machine.copy_bytes_per_s
    if copied is not None:
        click.echo(f"copy bandwidth, bytes read plus written: {copied / 1e9:,.0f} GB/s")
    right = sum(row.outcome == "right" for row in rows)
    click.echo(f"{right} of {len(rows)} results are correct")
    if not on_gpu:
        click.echo(
            "Nothing was timed: without an NVIDIA GPU, Triton kernels run in its interpreter."
        )
