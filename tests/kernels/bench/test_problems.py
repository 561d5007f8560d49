"""Every kernel of the benchmark is correct in the interpreter, and errors would be noticed."""

import pytest
import torch

from nsysflow.catalog.catalog import Kernel, kernels
from nsysflow.kernels.bench import session
from nsysflow.kernels.bench.correctness import ROUNDING, compared
from nsysflow.kernels.bench.problem import (
    BACKENDS,
    Outputs,
    Problem,
    Random,
    call_of,
    exact,
    forget_compiled,
    function_of,
    shapes_of,
)
from nsysflow.kernels.bench.problems import BENCHMARKS
from nsysflow.kernels.bench.problems.ppo_loss import CLIP, MARGIN
from nsysflow.kernels.bench.session import Bench, Case, bench_here, cases_of, row_of
from tests.kernels.comparing import same

CPU = torch.device("cpu")
KERNELS = {kernel.name: kernel for kernel in kernels()}
COMPILED = [name for name, kernel in KERNELS.items() if "compile" in kernel.variants]
DIFFERENTIABLE = [name for name, each in BENCHMARKS.items() if "fwd+bwd" in each.directions]


def problem_of(name: str, *, seed: int = 0, **sizes: int) -> Problem:
    """The toy problem, some of its sizes changed."""
    random = Random(device=CPU, dtype=torch.float32, seed=seed)
    shape = BENCHMARKS[name].toy
    return BENCHMARKS[name].make({key: sizes.get(key, shape[key]) for key in shape}, random)


def all_cases(kernel: Kernel, *, on_gpu: bool) -> list[Case]:
    every = {"dtypes": kernel.dtypes, "variants": kernel.variants}
    return [*cases_of(kernel, **every, sweep=False, on_gpu=on_gpu)]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="toy shapes are for the interpreter")
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_only_true_results_are_correct(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_here(on_gpu=False)
    for case in all_cases(kernel, on_gpu=False):
        with monkeypatch.context() as patch:
            compute_once(patch, bench, case)
            assert row_of(bench, case).outcome == "right", case
            if case.ours:
                assert row_of(bench, case, corrupt=True).outcome == "wrong", case


def compute_once(patch: pytest.MonkeyPatch, bench: Bench, case: Case) -> None:
    """Let the two rows of a case share the call: the interpreter takes long."""
    problem, call = session._problem_and_call(bench, case)
    results: list[Outputs] = []

    def remembered() -> Outputs:
        if not results:
            results.append(tuple(each.detach().clone() for each in call()))
        return results[0]

    patch.setattr(session, "_problem_and_call", lambda *_: (problem, remembered))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_problem_has_what_its_kernel_has_and_always_the_same_inputs(kernel: Kernel) -> None:
    benchmark, problem = BENCHMARKS[kernel.name], problem_of(kernel.name)
    assert set(problem.cost) == set(benchmark.directions)
    assert set(problem.kernels) == set(kernel.variants) & set(BACKENDS)
    assert all(cost.bytes > 0 for cost in problem.cost.values())
    if benchmark.directions != ("fwd",):
        assert problem.wanted
    assert same(problem.inputs, problem_of(kernel.name).inputs)
    if problem.inputs:
        assert not torch.equal(problem.inputs[0][:1], problem_of(kernel.name, seed=1).inputs[0][:1])


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_both_directions_give_forward_and_then_backward(name: str) -> None:
    both = exact(problem_of(name), "fwd+bwd")
    forward = exact(problem_of(name), "fwd")
    backward = both[len(forward) :]
    assert same(both[: len(forward)], forward)
    assert len(backward) == len(problem_of(name).wanted)
    if "bwd" in BENCHMARKS[name].directions:
        tolerance = problem_of(name).tolerance
        assert not compared(exact(problem_of(name), "bwd"), backward, tolerance, ROUNDING).problem


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_a_reference_is_compiled_whole_and_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.utils import counters  # takes 1.6 s of CPU time

    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, mode, **options: compile_(f, **options, backend="aot_eager")
    )
    direction = BENCHMARKS[name].directions[-1]  # with backward, where there is one
    forget_compiled("compile")
    counters.clear()
    for _ in range(2):
        problem = problem_of(name, T=3)  # a graph grows with the steps
        found = call_of(problem, function_of(problem, "compile"), direction)()
    assert counters["stats"]["unique_graphs"] == 1
    wanted = problem.expected(found) if problem.expected else exact(problem, direction)
    assert not compared(found, wanted, problem.tolerance, ROUNDING).problem


def test_a_sweep_goes_down_and_up_by_four_in_each_group() -> None:
    assert shapes_of(BENCHMARKS["prio"], sweep=False) == [{"S": 8192, "T": 64, "mb": 512}]
    assert shapes_of(BENCHMARKS["prio"], sweep=True)[1:] == [
        {"S": 2048, "T": 64, "mb": 128},
        {"S": 32768, "T": 64, "mb": 2048},
        {"S": 8192, "T": 16, "mb": 512},
        {"S": 8192, "T": 256, "mb": 512},
    ]


def test_ppo_loss_clips_but_not_close_to_a_jump_of_its_gradient() -> None:
    inputs = problem_of("ppo_loss", mb=64, T=64, A=4).inputs
    predictions, actions, logprobs, _, _, values, returns = (each.double() for each in inputs)
    logp = torch.log_softmax(predictions[:, :-1], 1).gather(1, actions[:, None].long())[:, 0]
    off = ((logp - logprobs).exp() - 1).abs()
    moved = (predictions[:, -1] - values).abs()
    for distance in (off, moved):
        assert 0.1 < (distance > CLIP).double().mean() < 0.9
        assert (distance - CLIP).abs().min() > MARGIN / 2
    assert returns.isfinite().all()


def test_an_error_is_a_failed_row_and_does_not_end_the_benchmark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Problem:
        raise ValueError("no such shape\nsecond line")

    case = all_cases(KERNELS["copy"], on_gpu=False)[0]
    monkeypatch.setattr("nsysflow.kernels.bench.session._problem_and_call", broken)
    row = row_of(bench_here(on_gpu=False), case)
    assert (row.outcome, row.note) == ("failed", "ValueError: no such shape")
    assert "Traceback" in capsys.readouterr().err
