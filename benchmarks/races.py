"""Our kernels against the same work done by others, in one process and in turn.

    PYTHONPATH=. python -P -m benchmarks.races --race advantage --csv races.csv

A contender must be correct before it is timed: within the tolerance of `nsysflow bench` from the
definition in float64. Its calls are captured in a graph, and the graphs are replayed in turn. Per
call: median and quartiles of the rounds; L2 holds what fits into it. Shares are of the measured
copy bandwidth, by the bytes that a call must move, and of the peak of the arithmetic. Float32
products of all contenders' libraries are those of TF32 here, which cuDNN's GRU takes anyway. Their
11 bits set the tolerance of recurrent layers.

Without a GPU it checks small shapes and times nothing.
"""

import csv
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Final

import click
import torch
from torch import nn
from torch.nn import functional as F

from nsysflow.base.peaks import Unit, peak_flops
from nsysflow.kernels.bench.correctness import check
from nsysflow.kernels.bench.problem import (
    DTYPES,
    Cost,
    Direction,
    Outputs,
    Problem,
    Random,
    Shape,
    Tolerance,
    Variant,
    call_of,
    exact,
    forget_compiled,
    function_of,
)
from nsysflow.kernels.bench.problems import BENCHMARKS
from nsysflow.kernels.bench.rivals import BatchedMuon, advantage_by_scan, gru, scan_settings
from nsysflow.kernels.bench.rows import calls_a_sample
from nsysflow.kernels.bench.session import Bench, bench_here
from nsysflow.kernels.bench.stopwatch import Stopwatch, span_ns
from nsysflow.kernels.mingru_scan import mingru_scan, mingru_scan_ref

SUM_ERROR: Final = 1e-4
"""More than the error of 128 exact products of about 0.1, summed in float32: at most 3e-6."""

Function = Callable[..., Outputs]
Call = Callable[[], Outputs]
COLUMNS = [
    *("race", "shape", "dtype", "direction", "contender", "error"),
    *("median_us", "q1_us", "q3_us", "copy_pct", "peak_pct", "note"),
]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A function of a problem's inputs, and how it is shown.

    Attributes:
        problem: what it is checked against, and what it costs.
        ours: whether new memory may be filled with NaN before its check.
    """

    name: str
    problem: Problem
    function: Function
    ours: bool = False


@dataclass(frozen=True, kw_only=True)
class Race:
    """Contenders for the same work."""

    name: str
    shape: Shape
    dtype: str
    direction: Direction
    contenders: list[Contender]


def problem_of(kernel: str, bench: Bench, dtype: str, shape: Shape | None = None) -> Problem:
    """A problem of `nsysflow bench`, of its usual shape or another; a small one without a GPU."""
    benchmark = BENCHMARKS[kernel]
    small = shape if shape is not None else benchmark.toy
    wanted = small if bench.watch is None else shape or benchmark.shape
    return benchmark.make(wanted, Random(device=bench.device, dtype=DTYPES[dtype]))


def ours(problem: Problem) -> list[Contender]:
    return [
        Contender(name=name, problem=problem, function=function, ours=True)
        for name, function in problem.kernels.items()
        if name == "triton" or problem.inputs[0].is_cuda
    ]


def compiled(problem: Problem, *modes: Variant) -> list[Contender]:
    if not problem.inputs[0].is_cuda:
        return []
    forget_compiled("compile")  # of races that are over
    return [
        Contender(name=mode, problem=problem, function=function_of(problem, mode)) for mode in modes
    ]


def advantage_races(bench: Bench, dtype: str) -> Iterator[Race]:
    """Shapes from many short rows to few long ones, against a scan in a Triton kernel."""
    shapes = [(8192, 64), (8192, 4096), (64, 16_384), (8, 131_072)]
    for rows, steps in shapes if bench.watch else [(5, 70), (2, 600)]:
        shape = {"S": rows, "T": steps}
        problem = problem_of("advantage", bench, dtype, shape)
        right = exact(problem, "fwd")  # 131 072 steps one by one take seconds
        problem = replace(problem, expected=partial(known, right))
        rivals = [
            Contender(
                name=f"associative_scan {settings}",
                problem=problem,
                function=advantage_by_scan(settings),
            )
            for settings in scan_settings(rows, steps)
        ]
        best = fastest(bench.watch, rivals)
        yield Race(
            name="advantage", shape=shape, dtype=dtype, direction="fwd",
            contenders=[*ours(problem), best],
        )  # fmt: skip


def known(right: Outputs, _: Outputs) -> Outputs:
    return right


def fastest(watch: Stopwatch | None, contenders: list[Contender]) -> Contender:
    """The contender with the shortest graph replay; the first one without a GPU."""
    if watch is None:
        return contenders[0]
    times = []
    for contender in contenders:
        call = call_of(contender.problem, contender.function, "fwd")
        call()
        graph = watch.captured(call)
        graph.replay()
        times.append(min(span_ns(graph.replay, before=graph.replay) for _ in range(5)))
    return contenders[times.index(min(times))]


def layernorm_races(bench: Bench, dtype: str) -> Iterator[Race]:
    for direction in ("fwd", "bwd", "fwd+bwd"):
        problem = problem_of("layernorm_relu_add", bench, dtype)
        contenders = [*ours(problem), *compiled(problem, "compile", "compile-max")]
        yield race_of(bench, "layernorm_relu_add", dtype, direction, contenders)


def ppo_races(bench: Bench, dtype: str) -> Iterator[Race]:
    for direction in ("fwd", "fwd+bwd"):
        problem = problem_of("ppo_loss", bench, dtype)
        contenders = [*ours(problem), *compiled(problem, "compile", "compile-max")]
        yield race_of(bench, "ppo_loss", dtype, direction, contenders)


def race_of(
    bench: Bench, kernel: str, dtype: str, direction: Direction, contenders: list[Contender]
) -> Race:
    benchmark = BENCHMARKS[kernel]
    return Race(
        name=kernel, shape=benchmark.shape if bench.watch else benchmark.toy,
        dtype=dtype, direction=direction, contenders=contenders,
    )  # fmt: skip


def muon_races(bench: Bench, dtype: str) -> Iterator[Race]:
    """A step, against batched products of stacked matrices. Each contender has weights of its own:
    when it is checked, it steps from zero.
    """
    problem = problem_of("muon", bench, dtype)
    lr = torch.tensor([0.0025], device=bench.device)

    def batched(mode: str | None) -> Function:
        state = BatchedMuon(problem.inputs, lr, copies=dtype == "bf16")
        if mode is None:
            return state.step
        step: Function = torch.compile(state.step, fullgraph=True, dynamic=False, mode=mode)
        return step

    tables = [problem_of("muon", bench, dtype) for _ in problem.kernels]
    contenders = [made for at, table in enumerate(tables) for made in ours(table)[at : at + 1]]
    contenders.append(Contender(name="bmm", problem=problem, function=batched(None)))
    if bench.watch is not None:
        function = batched("default")
        contenders.append(Contender(name="bmm, compile", problem=problem, function=function))
        contenders += compiled(problem, "compile")
    yield race_of(bench, "muon", dtype, "fwd", contenders)


def scan_races(bench: Bench, dtype: str) -> Iterator[Race]:
    """A layer of MinGRU, its product and its scan, against torch's GRU of the same width.

    They compute different recurrences, so each has its own definition.
    """
    usual = {"B": 512, "T": 64, "H": 128}
    shape = usual if bench.watch is not None else {"B": 2, "T": 5, "H": 12}
    for direction in ("fwd", "fwd+bwd"):
        random = Random(device=bench.device, dtype=DTYPES[dtype])
        scan = problem_of("mingru_scan", bench, dtype)
        alone = Contender(
            name="mingru_scan alone", problem=scan, function=scan.kernels["triton"], ours=True
        )
        contenders = [
            Contender(name="linear, mingru_scan", problem=mingru(shape, random), function=layer),
            alone,
            torch_gru(shape, random),
        ]
        yield Race(
            name="mingru_scan", shape=shape, dtype=dtype, direction=direction,
            contenders=contenders,
        )  # fmt: skip


def layer(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor) -> Outputs:
    """A layer of MinGRU."""
    return mingru_scan(F.linear(x, weight), state)


def mingru(shape: Shape, random: Random) -> Problem:
    """A layer of MinGRU. Where hidden passes zero, the slope of the candidate jumps from 1/4 to 1.
    TF32 changed 400 of 4 million signs, so that 350 rows of the gradient of x were wrong by up to
    its own size. So x and weight hold bf16 numbers, which TF32 keeps; and sequences and channels
    that still come close to zero, one in 200, have no gradient."""
    batch, steps, width = shape["B"], shape["T"], shape["H"]
    x, state = random.normal(batch, steps, width), random.normal(batch, 1, width)
    weight = random.normal(3 * width, width, scale=width**-0.5)
    x, weight = (tensor.bfloat16().to(random.dtype) for tensor in (x, weight))
    hidden = F.linear(x.double(), weight[:width].double())
    at_jump = (hidden.abs() < SUM_ERROR).any(1, keepdim=True)

    def reference(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor) -> Outputs:
        return mingru_scan_ref(F.linear(x, weight), state)

    flops = 2 * 3 * width * width * batch * steps
    problem = layer_problem((x, state, weight), reference, random, flops)
    return replace(problem, slopes=tuple(slope.masked_fill(at_jump, 0) for slope in problem.slopes))


def torch_gru(shape: Shape, random: Random) -> Contender:
    batch, steps, width = shape["B"], shape["T"], shape["H"]
    cells = nn.GRU(width, width, batch_first=True, bias=False).to(random.device, random.dtype)
    x, state = random.normal(batch, steps, width), random.normal(1, batch, width)
    function = gru(cells)
    flops = 2 * 2 * 3 * width * width * batch * steps
    problem = layer_problem((x, state, *cells.parameters()), function, random, flops)
    return Contender(name="nn.GRU", problem=problem, function=function)


def layer_problem(inputs: Outputs, reference: Function, random: Random, flops: int) -> Problem:
    """A recurrent layer: bytes of its input, state, weights and outputs; backward has twice as
    many operations as forward.

    Rounded products are compared by their size. In TF32, with 11 bits, MinGRU used 0.13 of the
    tolerance (operands cut on a CPU), and nn.GRU 0.20 (H200). In bf16, with 8 bits, it is ten times
    as large; nn.GRU used 0.31.
    """
    x, state, *weights = inputs
    forward = Cost(
        bytes=2 * (x.nbytes + state.nbytes) + sum(w.nbytes for w in weights), flops=flops
    )
    both = Cost(bytes=3 * forward.bytes, flops=3 * flops)
    return Problem(
        inputs=inputs,
        reference=reference,
        kernels={},
        wanted=tuple(range(len(inputs))),
        slopes=(random.normal(*x.shape), random.normal(*state.shape)),
        tolerance=Tolerance(relative=1e-2, absolute=0.1 if x.dtype == torch.bfloat16 else 1e-2),
        cost={"fwd": forward, "fwd+bwd": both},
        unit="bf16" if x.dtype == torch.bfloat16 else "float32",
    )


RACES: dict[str, Callable[[Bench, str], Iterator[Race]]] = {
    "advantage": advantage_races,
    "mingru_scan": scan_races,
    "layernorm_relu_add": layernorm_races,
    "muon": muon_races,
    "ppo_loss": ppo_races,
}


def rows_of(race: Race, bench: Bench, rounds: int) -> list[dict[str, object]]:
    """A row per contender, timed if it is correct."""
    shape = " ".join(f"{symbol}={size}" for symbol, size in race.shape.items())
    common = {"race": race.name, "shape": shape, "dtype": race.dtype, "direction": race.direction}
    rows: list[dict[str, object]] = []
    graphs: list[tuple[dict[str, object], Contender, torch.cuda.CUDAGraph, int]] = []
    for contender in race.contenders:
        row = {**dict.fromkeys(COLUMNS), **common, "contender": contender.name}
        rows.append(row)
        try:
            call = call_of(contender.problem, contender.function, race.direction)
            found = check(
                contender.problem, race.direction, call, ours=contender.ours,
                interpreted=bench.watch is None,
            )  # fmt: skip
            row |= {"error": round(found.error, 3), "note": found.problem}
            if found.problem is None and bench.watch is not None:
                call()
                each = calls_a_sample(min(span_ns(call) for _ in range(3)))
                graphs.append(
                    (row, contender, bench.watch.captured(partial(again, call, each)), each)
                )
        except Exception as error:  # a rival that cannot run is a row, too
            row["note"] = f"{type(error).__name__}: {error}".splitlines()[0]
    samples: list[list[float]] = [[] for _ in graphs]
    for _, _, graph, _ in graphs:
        graph.replay()
    for _ in range(rounds):
        for taken, (_, _, graph, each) in zip(samples, graphs, strict=True):
            taken.append(span_ns(graph.replay, before=graph.replay) / each)
    for taken, (row, contender, _, _) in zip(samples, graphs, strict=True):
        row |= shown(taken, contender.problem.cost[race.direction], contender.problem.unit, bench)
    return rows


def again(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def shown(taken_ns: list[float], cost: Cost, unit: Unit, bench: Bench) -> dict[str, object]:
    """The columns of the times."""
    low, middle, high = quantiles(taken_ns, n=4)
    peak, copy = peak_flops(bench.machine.gpu, unit), bench.machine.copy_bytes_per_s
    return {
        "median_us": round(middle / 1e3, 3),
        "q1_us": round(low / 1e3, 3),
        "q3_us": round(high / 1e3, 3),
        "copy_pct": copy and round(100 * cost.bytes / (middle / 1e9) / copy, 1),
        "peak_pct": peak and round(100 * cost.flops / (middle / 1e9) / peak, 2),
    }


@click.command()
@click.option(
    "--race", "names", multiple=True, type=click.Choice(list(RACES)), help="Default: all."
)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(DTYPES)))
@click.option("--rounds", default=31, show_default=True, help="Replays of each contender.")
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), help="Append rows to this file."
)
def main(
    names: tuple[str, ...], dtypes: tuple[str, ...], rounds: int, csv_file: Path | None
) -> None:
    """Race our kernels against others and print a table in Markdown."""
    torch.set_float32_matmul_precision("high")
    bench = bench_here(on_gpu=torch.cuda.is_available())
    speed = bench.machine.copy_bytes_per_s
    click.echo(f"{bench.machine.gpu or 'no GPU'}, copy {speed and round(speed / 1e9)} GB/s")
    click.echo(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name in names or RACES:
        for dtype in dtypes or DTYPES:
            with bench.watch.using() if bench.watch else nullcontext():
                for race in RACES[name](bench, dtype):
                    rows = rows_of(race, bench, rounds)
                    for row in rows:
                        cells = ["" if row[key] is None else str(row[key]) for key in COLUMNS]
                        click.echo(f"| {' | '.join(cells)} |")
                    if csv_file is not None:
                        append(csv_file, rows)


def append(csv_file: Path, rows: list[dict[str, object]]) -> None:
    new = not csv_file.exists()
    with csv_file.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
