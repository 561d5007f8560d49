"""layernorm_relu_add and its gradients match its definition in float64."""

import re

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import layernorm_relu_add as module
from nsysflow.kernels.arguments import FLOATS
from nsysflow.kernels.layernorm_relu_add import layernorm_relu_add, layernorm_relu_add_ref
from tests.kernels.comparing import exact, with_gradients
from tests.kernels.hopper import Compiled, compiled_for_hopper, shaped

pytestmark = pytest.mark.usefixtures("poisoned")

SHAPES = [(1, 1), (5, 3), (7, 128), (67, 100), (3, 1030), (3, 5000), (9, 8200), (1, 8201)]
"""Several rows per tile, one row per tile, and rows too wide for registers; whole and partial."""
CASES = [(shape, torch.float32) for shape in SHAPES]
CASES += [(shape, dtype) for shape in SHAPES[2:4] for dtype in FLOATS[:2]]
if torch.cuda.is_available():  # these take the interpreter long
    CASES += [(shape, dtype) for shape in ((9, 4096), (2, 5000), (33, 8200)) for dtype in FLOATS]
# The interpreter truncates float32 to bf16 where a GPU rounds: one unit in the last place.
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def inputs(
    rows: int, cols: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, g, b and skip. The mean of x is far from 0, where one-pass variances lose digits."""
    x = torch.randn(rows, cols, device=device) * 3 + 20
    g, b = torch.randn(cols, device=device) + 1, torch.randn(cols, device=device)
    skip = torch.randn(rows, cols, device=device)
    return x.to(dtype), g.to(dtype), b.to(dtype), skip.to(dtype)


def agree(given: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    """Check equality up to the precision of `dtype` for the largest value."""
    scale = max(1.0, wanted.abs().max().item())
    torch.testing.assert_close(
        given.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale
    )


def near_the_kink(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """Where rounding decides on which side of the relu an element lies: its row's gradient, too."""
    normed = torch.nn.functional.layer_norm(x.double(), x.shape[1:], g.double(), b.double())
    return normed.abs() < 1e-4


@pytest.fixture
def few_sum_programs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum the columns in few programs: the interpreter's time depends on their number."""
    if device.type == "cpu":
        monkeypatch.setattr(module, "_SUM_COLS", 1024)


def check(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    """Compare the result and all four gradients with those of the definition in float64."""
    tensors, dy = inputs(*shape, dtype, device), torch.randn(shape, device=device).to(dtype)
    dy[near_the_kink(*tensors[:3])] = 0
    given = with_gradients(layernorm_relu_add, tensors, dy)
    for mine, wanted in zip(given, exact(layernorm_relu_add_ref, tensors, dy), strict=True):
        assert mine.dtype == dtype
        agree(mine, wanted, dtype)


@pytest.mark.usefixtures("few_sum_programs")
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_result_and_gradients_match_the_definition(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)


@pytest.mark.usefixtures("few_sum_programs")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_wide_rows_match_when_both_passes_loop(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SUMMED_COLS", 64)
    monkeypatch.setattr(module, "_ALONG", module._ALONG | {"COLS": 64})
    monkeypatch.setattr(module, "_DOWN", module._DOWN | {"COLS": 128})
    monkeypatch.setattr(module, "_ROW_PARTS", 2)
    check((19, 130), dtype, device)


def test_relu_passes_no_gradient_where_its_input_is_exactly_zero(device: torch.device) -> None:
    zeros, ones = torch.zeros(4, 6, device=device), torch.ones(4, 6, device=device)
    tensors = zeros, zeros[0], zeros[0], ones
    y, *grads = with_gradients(layernorm_relu_add, tensors, ones)
    assert torch.equal(y, ones)
    assert [grad.abs().sum().item() for grad in grads] == [0.0, 0.0, 0.0, 24.0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_nan_or_an_infinity_makes_only_its_own_row_nan(bad: float, device: torch.device) -> None:
    x, g, b, skip = inputs(9, 70, torch.float32, device)
    x[4, 69] = bad
    y = layernorm_relu_add(x, g, b, skip)
    assert y[4].isnan().all()
    assert y.isfinite().sum() == 8 * 70


@pytest.mark.parametrize("shape", [(0, 8), (8, 0)], ids=str)
def test_empty_input_gives_empty_output(shape: tuple[int, int], device: torch.device) -> None:
    tensors = inputs(*shape, torch.float32, device)
    y, _, dg, db, _ = with_gradients(layernorm_relu_add, tensors, torch.ones_like(tensors[0]))
    assert y.shape == shape
    assert torch.equal(torch.stack([dg, db]), torch.zeros(2, shape[1], device=device))


def on_hopper(cols: int) -> dict[str, Compiled]:
    """The kernels of both directions for 8192 rows."""
    tensors = shaped(8192, cols), shaped(cols), shaped(cols), shaped(8192, cols)
    launched = compiled_for_hopper(
        lambda: with_gradients(layernorm_relu_add, tensors, shaped(8192, cols))
    )
    return {name.removeprefix("_layernorm_relu_add_"): each for name, each in launched.items()}


@pytest.mark.slow
def test_an_h200_holds_a_row_in_registers_and_moves_16_bytes_at_a_time() -> None:
    kernels = on_hopper(4096)
    forward, backward = kernels["forward"], kernels["backward"]
    assert forward.local_bytes == backward.local_bytes == 0
    assert forward.registers <= 64  # 32 warps an SM
    assert backward.registers <= 128  # two programs of 256 threads an SM
    per_thread = 4096 // 128 // 8  # 16-byte loads of one row
    assert forward.loads == {"v4.b32": 4 * per_thread}  # x and skip; g and b, which stay in L2
    assert len(re.findall(r"ld\.global.*evict_last.*v4\.b32", forward.ptx)) == 2 * per_thread
    per_thread = 4096 // 256 // 8
    stages = module._stages(module._backward_launch(shaped(8192, 4096)), shaped(8192, 4096))
    copies = 2 * per_thread * stages  # x and dy, ahead of the loop and in it
    assert len(re.findall(r"cp\.async\.cg.*0x10", backward.ptx)) == copies
    # g and b, once
    assert backward.loads["v4.b32"] == 2 * per_thread
    assert backward.loads["b16"] == 0


@pytest.mark.slow
def test_an_h200_streams_rows_too_wide_for_registers() -> None:
    kernels = on_hopper(16_384)
    for name, options, ahead in (
        ("along_rows", module._ALONG, 4),
        ("down_columns", module._DOWN, 2),  # g, b stay
    ):
        assert kernels[name].local_bytes == 0
        per_thread = options["ROWS"] * options["COLS"] // (32 * options["num_warps"]) // 8
        copies = ahead * per_thread * options["STAGES"]  # before the loop and in it
        assert len(re.findall(r"cp\.async\.cg.*0x10", kernels[name].ptx)) == copies
