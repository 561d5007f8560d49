"""advantage agrees with its equation in both backends. Without a GPU both run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import advantage as module
from nsysflow.kernels import nvrtc
from nsysflow.kernels.advantage import advantage, advantage_ref, cuda_constants
from nsysflow.kernels.arguments import cdiv
from tests.kernels.comparing import same
from tests.kernels.hopper import compiled_for_hopper, shaped
from tests.kernels.host_cuda import launch_on_host

DRIVER = """
extern "C" void run(int blocks, int threads, const VALUES* values, const REWARDS* rewards,
                    const DONE* done, const RATIO* ratio,
#ifdef BOOTSTRAP
                    const BOOTSTRAP* bootstrap,
#define GIVEN values, rewards, done, ratio, bootstrap
#else
#define GIVEN values, rewards, done, ratio
#endif
                    float* out, int rows, int steps) {
    on_blocks(blocks, threads, [=] { advantage(GIVEN, out, rows, steps); });
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

BF16, FP16, FP32, UINT8 = torch.bfloat16, torch.float16, torch.float32, torch.uint8
DEFAULTS = Factors(gamma=0.99, lam=0.95, rho_clip=1.0, c_clip=1.0)


def call(*inputs: Tensor, **options: Any) -> Tensor:
    """`advantage` of four inputs, or of five with `bootstrap`."""
    return advantage(*inputs[:4], bootstrap=inputs[4] if len(inputs) == 5 else None, **options)


@pytest.fixture(params=["triton", "cuda"])
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> Run:
    """`advantage` on one backend; its output is NaN before the launch."""

    def on_backend(*inputs: Tensor, **settings: Unpack[Factors]) -> Tensor:
        longer = torch.full((inputs[0].numel() + 4096,), float("nan"), device=device)
        out = longer[: inputs[0].numel()].view(inputs[0].shape)
        if request.param == "triton" or device.type == "cuda":
            call(*inputs, out=out, backend=request.param, **settings)
        else:
            launch_on_host(monkeypatch, DRIVER)
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
    wide = [each.double() for each in inputs]
    return advantage_ref(*wide[:4], bootstrap=wide[4] if len(wide) == 5 else None, **settings)


def truncated(inputs: tuple[Tensor, ...], dtype: torch.dtype = FP32) -> tuple[Tensor, ...]:
    """The inputs with `bootstrap`: half of the ends are truncations."""
    values, done = inputs[0], inputs[2]
    ends = (torch.rand(done.shape, device=done.device) < 1 / 2) & (done != 0)
    return (*inputs, torch.where(ends, torch.randn_like(values), 0).to(dtype))


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


SIZES = [(5, 64), (3, 1), (1, 2), (4, 33), (3, 20), (1, 6)]
"""Whole and partial lanes, with loads of 4, 2 and 1 numbers."""
DTYPES = [(BF16, UINT8), (BF16, FP32), (FP16, FP16), (FP32, UINT8)]


@pytest.mark.parametrize(
    ("rows", "steps", "dtype", "done"),
    [*((*size, FP32, FP32) for size in SIZES), *((7, 24, *dtypes) for dtypes in DTYPES)],
)
def test_results_match_the_equation_in_float32_at_any_size_and_dtype(
    run: Run, device: torch.device, rows: int, steps: int, dtype: torch.dtype, done: torch.dtype
) -> None:
    inputs = rollout(rows, steps, device, dtype=dtype, done=done)
    close(run(*inputs), expected(inputs))


def test_long_rows_carry_their_state_from_round_to_round(
    run: Run, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAUNCH", module._Launch(lanes=4))
    inputs = rollout(3, 60, device)
    close(run(*inputs), expected(inputs))


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pieces of each row that was cut, with tiles of 8 or 16 steps; maps in several rounds."""
    monkeypatch.setattr(module, "_LAUNCH", module._Launch(lanes=2, maps=2))
    pieces: list[int] = []
    tiles_per_piece = module._tiles_per_piece

    def counted(rows: int, tiles: int, device: torch.device) -> int:
        piece = tiles_per_piece(rows, tiles, device)
        pieces.append(cdiv(tiles, piece))
        return piece

    monkeypatch.setattr(module, "_tiles_per_piece", counted)
    return pieces


LONG = [(1, 131, FP32, UINT8), (3, 161, FP32, FP32), (1, 700, BF16, FP16), (5, 64, FP16, UINT8)]
"""Steps that do and do not fill the last tile and the last piece; one tile per piece and more."""


@pytest.mark.parametrize(("rows", "steps", "dtype", "done"), LONG)
def test_few_long_rows_are_solved_in_pieces(
    cut: list[int], device: torch.device, rows: int, steps: int, dtype: torch.dtype,
    done: torch.dtype,
) -> None:  # fmt: skip
    inputs = rollout(rows, steps, device, dtype=dtype, done=done)
    found = advantage(*inputs, out=torch.full((rows, steps), torch.nan, device=device))
    close(found, expected(inputs))
    assert same([found], [advantage(*inputs)])
    assert cut == [cut[0]] * 2
    assert cut[0] >= 4


def test_a_nan_in_a_piece_stays_in_its_row(cut: list[int], device: torch.device) -> None:
    inputs = rollout(5, 97, device)
    clean = advantage(*inputs)
    for row, tensor in enumerate(inputs):
        tensor[row, 48] = float("nan")
    found = advantage(*inputs)
    assert torch.equal(found[4], clean[4])
    assert torch.equal(found[:4, 49:], clean[:4, 49:])
    assert found[:4, :48].isnan().all()
    assert cut[0] >= 4


@pytest.mark.parametrize(
    ("rows", "tiles", "each"),
    [
        *((8192, 1, 1), (8192, 16, 16), (1056, 16, 16), (529, 512, 512), (528, 512, 64)),
        *((64, 128, 2), (16, 512, 2), (8, 512, 2), (1, 4096, 2), (264, 4, 1), (1, 3, 3)),
    ],
)
def test_rows_are_cut_only_where_they_leave_a_gpu_idle(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, rows: int, tiles: int, each: int
) -> None:
    monkeypatch.setattr(module, "sms", lambda _: 132)
    assert module._tiles_per_piece(rows, tiles, device) == each


@pytest.mark.parametrize(
    ("rows", "steps", "dtype", "given"),
    [(5, 64, FP32, FP32), (3, 33, BF16, BF16), (3, 1, FP32, FP32), (7, 24, FP16, FP32)],
)
def test_a_truncated_episode_ends_with_the_value_of_its_last_observation(
    run: Run, device: torch.device, rows: int, steps: int, dtype: torch.dtype, given: torch.dtype
) -> None:
    inputs = truncated(rollout(rows, steps, device, dtype=dtype, done=UINT8), given)
    close(run(*inputs), expected(inputs))


def test_long_rows_carry_their_bootstrap(run: Run, cut: list[int], device: torch.device) -> None:
    inputs = truncated(rollout(3, 161, device))
    close(run(*inputs), expected(inputs))


def test_a_truncation_before_the_last_step_by_hand(run: Run, device: torch.device) -> None:
    def row(*numbers: float) -> Tensor:
        return torch.tensor([numbers], dtype=FP32, device=device)

    # observations 0 and 1 of one episode; it is truncated after 1, and step 2 begins another
    values, rewards, ratio = row(1, 2, 7, 9), row(0, 10, 20, 30), row(1, 1, 1, 1)
    ends, bootstrap = row(0, 0, 1, 0), row(0, 0, 4, 0)
    found = run(values, rewards, ends, ratio, bootstrap, gamma=0.5, lam=0.5)
    second = 20 + 0.5 * 4 - 2  # neither 7, a value of the next episode, nor its advantage
    third = 30 + 0.5 * 9 - 7
    close(found, row(10 + 0.5 * 2 - 1 + 0.25 * second, second, third, 0).double())
    terminated = run(values, rewards, ends, ratio, gamma=0.5, lam=0.5)
    assert terminated[0, 1] == 20 - 2


def test_episodes_without_truncations_need_no_bootstrap(run: Run, device: torch.device) -> None:
    inputs = rollout(3, 20, device)
    close(run(*inputs, torch.zeros_like(inputs[0])), run(*inputs).double())


def test_both_clips_have_an_effect(run: Run, device: torch.device) -> None:
    inputs = rollout(3, 20, device)
    settings = Factors(gamma=0.9, lam=0.8, rho_clip=1.7, c_clip=0.6)
    close(run(*inputs, **settings), expected(inputs, **settings))
    assert not torch.allclose(expected(inputs, **settings), expected(inputs, gamma=0.9, lam=0.8))


def test_a_nan_in_any_input_stays_in_its_row(run: Run, device: torch.device) -> None:
    inputs = rollout(6, 20, device)
    clean = run(*inputs)
    for row, tensor in enumerate(inputs):
        tensor[row, 9] = float("nan")
    found = run(*inputs)
    assert torch.equal(found[4:], clean[4:])
    close(found[:4], expected(inputs)[:4])
    assert found[:4, :9].isnan().all()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_empty_input_gives_empty_output(device: torch.device, shape: tuple[int, int]) -> None:
    assert advantage(*(torch.empty(shape, device=device),) * 4).shape == shape


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "dtype"), [(64, BF16), (64, FP32), (256, FP32)], ids=["bf16", "float32", "two rounds"]
)
def test_an_h200_reads_each_input_of_a_thread_in_one_load(steps: int, dtype: torch.dtype) -> None:
    inputs = (shaped(8192, steps, dtype=dtype),) * 4
    (compiled,) = compiled_for_hopper(lambda: advantage(*inputs)).values()
    assert compiled.loads == {"v4.b32": 4}
    assert compiled.local_bytes == 0
    assert compiled.registers <= 64


@pytest.mark.slow
def test_an_h200_reads_each_input_of_a_piece_in_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sms", lambda _: 132)
    inputs = (shaped(8, 131_072),) * 4
    compiled = compiled_for_hopper(lambda: advantage(*inputs), OVERLAP=True)
    assert list(compiled) == ["compose_pieces", "solve_pieces"]
    for kernel in compiled.values():
        assert kernel.loads["v4.b32"] >= 4
        assert kernel.local_bytes == 0
        assert kernel.registers <= 64


def test_constants_become_c_literals() -> None:
    constants: dict[str, str | int | float] = {"T": "bf16", "N": 8, "X": 0.1, "TINY": 1e-20}
    assert nvrtc.flags(constants) == ("-DT=bf16", "-DN=8", "-DX=0.1f", "-DTINY=1e-20f")
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="X must be finite"):
            nvrtc.flags({"X": value})


def test_nvrtc_is_found_in_the_wheels(tmp_path: Path) -> None:
    nvidia = tmp_path / "nvidia"
    of_13 = ("cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc.so")
    for place in ("cuda_nvrtc/lib/libnvrtc.so.12", *of_13):
        (nvidia / place).parent.mkdir(parents=True, exist_ok=True)
        (nvidia / place).touch()
    assert nvrtc.wheel_nvrtc(tmp_path, "13.0") == nvidia / "cu13/lib/libnvrtc.so.13"
    assert nvrtc.wheel_nvrtc(tmp_path, "12.8") == nvidia / "cuda_nvrtc/lib/libnvrtc.so.12"
    assert nvrtc.wheel_nvrtc(tmp_path, "11.8") is None


@pytest.mark.parametrize(
    ("steps", "dtype", "shifted", "cut"),
    [
        *((64, BF16, 0, (8, 8, 8)), (64, FP32, 0, (4, 4, 16)), (60, BF16, 0, (8, 4, 8))),
        *((33, BF16, 0, (8, 1, 8)), (4096, BF16, 0, (8, 8, 32)), (64, BF16, 1, (8, 1, 8))),
    ],
)
def test_rows_are_divided_for_the_widest_possible_loads(
    steps: int, dtype: torch.dtype, shifted: int, cut: tuple[int, int, int]
) -> None:
    rows = torch.zeros(2 * steps + 1, dtype=dtype)[shifted:][: 2 * steps].view(2, steps)
    constants = cuda_constants((rows,) * 4, torch.zeros(2, steps))
    assert (constants["CHUNK"], constants["WIDTH"], constants["LANES"]) == cut
