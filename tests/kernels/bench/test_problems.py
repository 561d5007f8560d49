"""Every kernel of the benchmark is right in the interpreter, and would be caught if it were not."""

from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from nsysflow import bench_options
from nsysflow.kernels.bench.calls import (
    VARIANTS,
    call_of,
    exact,
    forget_compiled,
    function_of,
    variants_of,
)
from nsysflow.kernels.bench.judging import ROUNDING, compared
from nsysflow.kernels.bench.machine import bench_here
from nsysflow.kernels.bench.problem import DTYPES, Problem, Random, shapes_of
from nsysflow.kernels.bench.problems import KERNELS
from nsysflow.kernels.bench.problems.ppo_loss import CLIP, MARGIN
from nsysflow.kernels.bench.run import cases_of, row_of

CPU = torch.device("cpu")
ALL = {"dtypes": tuple(DTYPES), "variants": tuple(VARIANTS), "sweep": False}
DIFFERENTIABLE = [name for name, kernel in KERNELS.items() if "fwd+bwd" in kernel.directions]


def problem_of(name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Problem:
    return KERNELS[name].make(KERNELS[name].toy, Random(device=CPU, dtype=dtype, seed=seed))


def test_the_command_line_knows_what_there_is() -> None:
    assert tuple(KERNELS) == tuple(bench_options.KERNELS)
    assert tuple(VARIANTS) == bench_options.VARIANTS
    assert tuple(DTYPES) == bench_options.DTYPES


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="toy shapes are for the interpreter")
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_right_and_a_spoiled_result_is_not(name: str) -> None:
    bench = bench_here(on_gpu=False)
    for case in cases_of(name, **ALL, on_gpu=False):  # type: ignore[arg-type]
        assert row_of(bench, case).outcome == "right", case
        if case.variant == "triton":
            assert row_of(bench, case, corrupt=True).outcome == "wrong", case


@pytest.mark.parametrize("name", KERNELS)
def test_every_direction_and_backend_has_what_it_takes(name: str) -> None:
    kernel, problem = KERNELS[name], problem_of(name)
    assert set(problem.cost) == set(kernel.directions)
    assert set(problem.kernels) == set(kernel.backends)
    assert all(cost.bytes > 0 for cost in problem.cost.values())
    if kernel.directions != ("fwd",):
        assert problem.wanted


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_inputs_come_each_time(name: str) -> None:
    first, again, other = problem_of(name), problem_of(name), problem_of(name, seed=1)
    for one, two in zip(first.inputs, again.inputs, strict=True):
        assert torch.equal(one, two)
    if first.inputs:
        assert not torch.equal(first.inputs[0][:1], other.inputs[0][:1])


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_both_ways_give_forward_and_then_backward(name: str) -> None:
    both = exact(problem_of(name), "fwd+bwd")
    forward = exact(problem_of(name), "fwd")
    assert all(torch.equal(one, two) for one, two in zip(both, forward, strict=False))
    backward = both[len(forward) :]
    assert len(backward) == len(problem_of(name).wanted)
    if "bwd" in KERNELS[name].directions:
        tolerance = problem_of(name).tolerance
        assert not compared(exact(problem_of(name), "bwd"), backward, tolerance, ROUNDING).problem


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.compiles])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_the_compiler_takes_a_reference_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, mode, **options: compile_(f, **options, backend="aot_eager")
    )
    problem = problem_of(name)
    direction = KERNELS[name].directions[-1]
    function = function_of(problem, "compile")
    found = call_of(problem, function, direction)()
    wanted = problem.expected(found) if problem.expected else exact(problem, direction)
    assert not compared(found, wanted, problem.tolerance, ROUNDING).problem


def test_a_sweep_goes_down_and_up_by_four_in_each_group() -> None:
    assert shapes_of(KERNELS["prio"], sweep=False) == [{"S": 8192, "T": 64, "mb": 512}]
    assert shapes_of(KERNELS["prio"], sweep=True)[1:] == [
        {"S": 2048, "T": 64, "mb": 128},
        {"S": 32768, "T": 64, "mb": 2048},
        {"S": 8192, "T": 16, "mb": 512},
        {"S": 8192, "T": 256, "mb": 512},
    ]


def test_a_gpu_brings_every_variant_and_the_usual_shape() -> None:
    assert variants_of(KERNELS["advantage"], on_gpu=True) == VARIANTS
    assert variants_of(KERNELS["sum_many"], on_gpu=True) == ("ref", "triton", "cuda")
    assert variants_of(KERNELS["muon"], on_gpu=False) == ("ref", "triton")
    cases = list(cases_of("muon", **ALL, on_gpu=True))  # type: ignore[arg-type]
    assert {tuple(case.shape.values()) for case in cases} == {(96, 4, 128)}
    assert len(cases) == 2 * 4


def test_ratios_lie_on_both_sides_of_the_clips() -> None:
    ratio = problem_of("advantage").inputs[3]
    assert 0.2 < (ratio > 1).float().mean() < 0.8


def test_ppo_clips_and_stays_away_from_where_its_gradient_jumps() -> None:
    random = Random(device=CPU, dtype=torch.float32)
    inputs = KERNELS["ppo_loss"].make({"mb": 64, "T": 64, "A": 4}, random).inputs
    predictions, actions, logprobs, _, _, values, returns = (
        each.double() if each.is_floating_point() else each for each in inputs
    )
    logp = torch.log_softmax(predictions[:, :-1], 1).gather(1, actions[:, None])[:, 0]
    off = ((logp - logprobs).exp() - 1).abs()
    moved = (predictions[:, -1] - values).abs()
    for distance in (off, moved):
        assert 0.1 < (distance > CLIP).double().mean() < 0.9
        assert (distance - CLIP).abs().min() > MARGIN / 2
    assert returns.isfinite().all()


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.compiles])
def test_a_reference_is_compiled_once_for_all_placements(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for direction in KERNELS[name].directions:
        forget_compiled("compile")
        counters.clear()
        problems = [problem_of(name) for _ in range(3)]
        for problem in problems:
            call_of(problem, function_of(problem, "compile"), direction)()
        assert counters["stats"]["unique_graphs"] == 1


def test_an_error_is_a_failed_row_and_not_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Problem:
        raise ValueError("no such shape\nfor me")

    (case, *_) = cases_of("copy", **ALL, on_gpu=False)  # type: ignore[arg-type]
    monkeypatch.setattr("nsysflow.kernels.bench.run._problem_and_call", broken)
    row = row_of(bench_here(on_gpu=False), case)
    assert (row.outcome, row.note) == ("failed", "ValueError: no such shape")
    assert "Traceback" in capsys.readouterr().err
