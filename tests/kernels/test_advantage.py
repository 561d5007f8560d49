"""advantage agrees with its equation in both backends. Without a GPU both run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, Unpack, cast

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import advantage as module
from nsysflow.kernels.advantage import advantage, advantage_bytes, advantage_ref
from nsysflow.kernels.arguments import Backend
from tests.kernels.host_cuda import runner

DRIVER = """
extern "C" void run(int blocks, int threads, const VALUES* values, const REWARDS* rewards,
                    const DONE* done, const RATIO* ratio, float* out, int rows, int steps) {
    on_warps(blocks, threads, [=] { advantage(values, rewards, done, ratio, out, rows, steps); });
}
"""
Run = Callable[..., Tensor]


class Factors(TypedDict, total=False):
    gamma: float
    lam: float
    rho_clip: float
    c_clip: float


TOLERANCE = 2e-5
"""64 steps with about four float32 roundings of 6e-8 each."""

DEFAULTS = Factors(gamma=0.99, lam=0.95, rho_clip=1.0, c_clip=1.0)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advantage")


@pytest.fixture(params=["triton", "cuda"])
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    built: Path,
    device: torch.device,
) -> Run:
    """`advantage` on one backend; its output is NaN before the launch."""

    def on_backend(*inputs: Tensor, **settings: Unpack[Factors]) -> Tensor:
        longer = torch.full((inputs[0].numel() + 4096,), float("nan"), device=device)
        out = longer[: inputs[0].numel()].view(inputs[0].shape)
        if request.param == "triton" or device.type == "cuda":
            advantage(*inputs, out=out, backend=request.param, **settings)
        else:
            monkeypatch.setattr("nsysflow.kernels.nvrtc.launch", runner(built, DRIVER))
            factors: Factors = {**DEFAULTS, **settings}
            module._launch_cuda(inputs, out, module._factors(**factors))
        assert longer[inputs[0].numel() :].isnan().all(), "it wrote past the end"
        return out

    return on_backend


def rollout(
    rows: int,
    steps: int,
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    done: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs with ratios on both sides of 1; an episode begins at a sixth of the steps."""
    values, rewards = torch.randn(2, rows, steps, device=device).to(dtype)
    ends = (torch.rand(rows, steps, device=device) < 1 / 6).to(done)
    ratio = torch.exp(torch.randn(rows, steps, device=device)).to(dtype)
    return values, rewards, ends, ratio


def expected(inputs: tuple[Tensor, ...], **settings: Unpack[Factors]) -> Tensor:
    return advantage_ref(*(each.double() for each in inputs), **settings)


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "steps"), [(5, 64), (1, 8), (3, 1), (2, 2), (4, 33), (3, 20), (2, 24), (1, 6)]
)
def test_results_match_the_equation_at_any_size(
    run: Run, device: torch.device, rows: int, steps: int
) -> None:
    inputs = rollout(rows, steps, device)
    close(run(*inputs), expected(inputs))


def test_long_rows_carry_their_state_from_round_to_round(
    run: Run, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAUNCH", module._Launch(lanes=4))
    inputs = rollout(3, 60, device)
    close(run(*inputs), expected(inputs))


@pytest.mark.parametrize(
    ("dtype", "done"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.uint8),
        (torch.float16, torch.float16),
        (torch.float32, torch.uint8),
        (torch.bfloat16, torch.float32),
    ],
)
def test_16_bit_inputs_are_computed_in_float32(
    run: Run, device: torch.device, dtype: torch.dtype, done: torch.dtype
) -> None:
    inputs = rollout(7, 64, device, dtype=dtype, done=done)
    close(run(*inputs), expected(inputs))


def test_both_clips_have_an_effect(run: Run, device: torch.device) -> None:
    inputs = rollout(3, 16, device)
    settings = Factors(gamma=0.9, lam=0.8, rho_clip=1.7, c_clip=0.6)
    close(run(*inputs, **settings), expected(inputs, **settings))
    assert not torch.allclose(expected(inputs, **settings), expected(inputs, gamma=0.9, lam=0.8))


def test_unaligned_rows_are_read_correctly(run: Run, device: torch.device) -> None:
    inputs = tuple(
        torch.empty(3 * 8 + 1, device=device)[1:].view(3, 8).copy_(each)
        for each in rollout(3, 8, device)
    )
    close(run(*inputs), expected(inputs))


@pytest.mark.parametrize("which", range(4))
def test_a_nan_stays_in_its_row(run: Run, device: torch.device, which: int) -> None:
    inputs = rollout(6, 32, device)
    clean = run(*inputs)
    inputs[which][2, 9] = float("nan")
    found = run(*inputs)
    assert torch.equal(found[[0, 1, 3, 4, 5]], clean[[0, 1, 3, 4, 5]])
    close(found[2], expected(inputs)[2])
    assert found[2, :9].isnan().all()


def test_two_runs_agree_bit_for_bit(run: Run, device: torch.device) -> None:
    inputs = rollout(5, 40, device)
    assert torch.equal(run(*inputs), run(*inputs))


def test_done_can_be_bool(device: torch.device) -> None:
    values, rewards, done, ratio = rollout(3, 8, device)
    got = advantage(values, rewards, done.bool(), ratio)
    assert torch.equal(got, advantage(values, rewards, done, ratio))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_empty_input_gives_empty_output(device: torch.device, shape: tuple[int, int]) -> None:
    assert advantage(*(torch.empty(shape, device=device),) * 4).shape == shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v, r, d, q: (v, r[:, :4], d, q), r"rewards must be \(2, 8\), but is \(2, 4\)"),
        (lambda v, r, d, q: (v, r, d.double(), q), "done must be .* but is torch.float64"),
        (lambda v, r, d, q: (v, r, d, q.T.contiguous().T), "ratio must be contiguous"),
        (lambda v, r, d, q: (v[0], r, d, q), r"values must be \(any, any\)"),
    ],
)
def test_arguments_that_it_would_misread_are_refused(
    device: torch.device, change: Callable[..., tuple[Tensor, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        advantage(*change(*rollout(2, 8, device)))


def test_an_unknown_backend_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="backend must be auto, triton or cuda"):
        advantage(*rollout(2, 8, device), backend=cast(Backend, "opencl"))


def test_bytes_are_four_reads_and_one_float32_write() -> None:
    inputs = rollout(2, 8, torch.device("cpu"), dtype=torch.bfloat16, done=torch.uint8)
    assert advantage_bytes(*inputs) == 2 * 8 * (2 + 2 + 1 + 2 + 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_a_captured_graph_replays_on_new_inputs(device: torch.device, backend: Backend) -> None:
    inputs = rollout(64, 64, device)
    out = torch.empty(64, 64, device=device)
    advantage(*inputs, out=out, backend=backend)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advantage(*inputs, out=out, backend=backend)
    for old, new in zip(inputs, rollout(64, 64, device), strict=True):
        old.copy_(new)
    graph.replay()
    close(out, expected(inputs))
