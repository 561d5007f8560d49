"""layernorm_relu_add matches its definition, forward in float32 and backward in float64."""

import re

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import layernorm_relu_add as module
from nsysflow.kernels.layernorm_relu_add import (
    layernorm_relu_add,
    layernorm_relu_add_ref,
)
from tests.kernels.hopper import Compiled, Kernel, compile_for_hopper, pointers

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 1), (1, 96), (5, 3), (7, 128), (67, 100), (3, 1030), (3, 5000), (9, 8200)]
"""Several rows per tile, one row per tile, and rows too wide for registers; whole and partial."""
CASES = [(shape, torch.float32) for shape in SHAPES]
CASES += [(shape, dtype) for shape in SHAPES[2:6] for dtype in DTYPES[1:]]
if torch.cuda.is_available():  # these take the interpreter long
    CASES += [(shape, dtype) for shape in ((9, 4096), (2, 5000), (33, 8200)) for dtype in DTYPES]
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
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    torch.testing.assert_close(
        given.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale
    )


@pytest.fixture
def few_sum_programs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum the columns in few programs: the interpreter's time depends on their number."""
    if device.type == "cpu":
        monkeypatch.setattr(module, "_SUM_COLS", 1024)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_forward_matches_the_definition(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    x, g, b, skip = inputs(*shape, dtype, device)
    y = layernorm_relu_add(x, g, b, skip)
    assert y.dtype == dtype
    agree(y, layernorm_relu_add_ref(x.float(), g.float(), b.float(), skip.float()), dtype)


@pytest.mark.usefixtures("poisoned", "few_sum_programs")
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_backward_matches_autograd_of_the_definition_in_float64(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check_gradients(shape, dtype, device)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wide_rows_match_when_both_passes_loop(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SUMMED_COLS", 64)
    monkeypatch.setattr(module, "_ALONG", module._ALONG | {"COLS": 64})
    monkeypatch.setattr(module, "_DOWN", module._DOWN | {"COLS": 128})
    monkeypatch.setattr(module, "_ROW_PARTS", 2)
    check_gradients((27, 200), dtype, device)


def test_sums_of_many_programs_match(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAMS_AT_ONCE", 1)  # of 2 in the interpreter
    check_gradients((70, 70), torch.float32, device)


def check_gradients(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    """Compare all four gradients with autograd's of the definition in float64."""
    ours = [tensor.requires_grad_() for tensor in inputs(*shape, dtype, device)]
    wide = [tensor.detach().double().requires_grad_() for tensor in ours]
    dy = torch.randn(shape, device=device).to(dtype)
    given = torch.autograd.grad(layernorm_relu_add(*ours), ours, dy)
    wanted = torch.autograd.grad(layernorm_relu_add_ref(*wide), wide, dy.double())
    for mine, exact, like in zip(given, wanted, ours, strict=True):
        assert mine.dtype == like.dtype
        agree(mine, exact, dtype)


def test_relu_passes_no_gradient_where_its_input_is_exactly_zero(device: torch.device) -> None:
    x, g, b = (torch.zeros(shape, device=device).requires_grad_() for shape in ((4, 6), (6,), (6,)))
    skip = torch.ones(4, 6, device=device).requires_grad_()
    y = layernorm_relu_add(x, g, b, skip)
    grads = torch.autograd.grad(y.sum(), (x, g, b, skip))
    assert torch.equal(y, skip)
    assert [grad.abs().sum().item() for grad in grads] == [0.0, 0.0, 0.0, 24.0]


def test_eps_has_an_effect(device: torch.device) -> None:
    x, g, b, skip = inputs(4, 33, torch.float32, device)
    y = layernorm_relu_add(x, g, b, skip, eps=4.0)
    agree(y, layernorm_relu_add_ref(x, g, b, skip, eps=4.0), torch.float32)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_nan_or_an_infinity_makes_only_its_own_row_nan(bad: float, device: torch.device) -> None:
    x, g, b, skip = inputs(9, 70, torch.float32, device)
    x[4, 69] = bad
    y = layernorm_relu_add(x, g, b, skip)
    assert y[4].isnan().all()
    assert y.isfinite().sum() == 8 * 70


def test_parameters_can_be_float32_with_bf16_rows(device: torch.device) -> None:
    x, _, _, skip = inputs(5, 40, torch.bfloat16, device)
    _, g, b, _ = inputs(1, 40, torch.float32, device)
    g.requires_grad_()
    y = layernorm_relu_add(x, g, b, skip)
    agree(y.detach(), layernorm_relu_add_ref(x, g.detach(), b, skip), torch.bfloat16)
    (dg,) = torch.autograd.grad(y.sum(), g)
    assert dg.dtype == torch.float32


def test_an_expanded_gradient_gives_the_same_as_a_full_one(device: torch.device) -> None:
    ours = [tensor.requires_grad_() for tensor in inputs(6, 50, torch.float32, device)]
    one = torch.ones((), device=device)
    expanded = torch.autograd.grad(layernorm_relu_add(*ours), ours, one.expand(6, 50))
    full = torch.autograd.grad(layernorm_relu_add(*ours), ours, torch.ones(6, 50, device=device))
    assert all(torch.equal(a, b) for a, b in zip(expanded, full, strict=True))


@pytest.mark.parametrize("shape", [(0, 8), (8, 0)], ids=str)
def test_empty_input_gives_empty_output_and_zero_gradients(
    shape: tuple[int, int], device: torch.device
) -> None:
    x, g, b, skip = (tensor.requires_grad_() for tensor in inputs(*shape, torch.float32, device))
    y = layernorm_relu_add(x, g, b, skip)
    grads = torch.autograd.grad(y.sum(), (x, g, b, skip))
    assert y.shape == shape
    assert torch.equal(grads[1], torch.zeros_like(g))
    assert torch.equal(grads[2], torch.zeros_like(b))


ROWS_OF_4096 = torch.empty(8192, 4096, dtype=torch.bfloat16, device="meta")


def compiled(
    name: str, options: dict[str, int], tensors: str, types: dict[str, str], **constants: int
) -> Compiled:
    """A kernel compiled as it is launched; `tensors` names the bf16 ones."""
    constants |= {key: options[key] for key in ("ROWS", "COLS", "STAGES") if key in options}
    types |= pointers(bf16=tensors, fp32="mean rstd") | {"rows": "i32:16", "cols": "i32:16"}
    return compile_for_hopper(
        Kernel(
            module="layernorm_relu_add",
            name=name,
            types=types,
            constants=constants,
            warps=options["num_warps"],
            options={"maxnreg": options["maxnreg"]} if "maxnreg" in options else {},
        )
    )


@pytest.mark.slow
def test_an_h200_runs_32_warps_of_forward_per_sm_and_loads_16_bytes_at_a_time() -> None:
    launch = module._forward_launch(ROWS_OF_4096)
    forward = compiled(
        "_layernorm_relu_add_forward", launch.options, "x skip g b y", {"eps": "fp32"}
    )
    assert forward.local_bytes == 0
    assert forward.registers <= 64
    per_thread = 4096 // 128 // 8  # 16-byte loads of one row
    assert forward.loads == {"v4.b32": 2 * per_thread}
    assert len(re.findall(r"ld\.global.*evict_last.*v4\.b32", forward.ptx)) == 2 * per_thread


@pytest.mark.slow
def test_an_h200_holds_a_row_of_backward_in_registers_and_copies_16_bytes_at_a_time() -> None:
    launch = module._backward_launch(ROWS_OF_4096)
    stages = module._stages(launch, ROWS_OF_4096)
    backward = compiled(
        "_layernorm_relu_add_backward",
        launch.options,
        "x dy g b dx",
        {"partial_ptr": "*fp32"},
        STAGES=stages,
    )
    assert backward.local_bytes == 0
    assert backward.registers <= 128  # two programs of 256 threads an SM
    per_thread = 4096 // 256 // 8
    copies = 2 * per_thread * stages  # x and dy, ahead of the loop and in it
    assert len(re.findall(r"cp\.async\.cg.*0x10", backward.ptx)) == copies
    # g and b, once
    assert backward.loads["v4.b32"] == 2 * per_thread
    assert backward.loads["b16"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "tensors", "sums", "ahead"),
    [
        ("_layernorm_relu_add_along_rows", module._ALONG, "x dy g b", "means_ptr", 4),
        (
            "_layernorm_relu_add_down_columns",
            module._DOWN,
            "x dy g b dx",
            "means_ptr partial_ptr",
            2,
        ),  # g, b stay
    ],
)
def test_an_h200_streams_rows_too_wide_for_registers(
    name: str, options: dict[str, int], tensors: str, sums: str, ahead: int
) -> None:
    kernel = compiled(name, options, tensors, dict.fromkeys(sums.split(), "*fp32"))
    assert kernel.local_bytes == 0
    per_thread = options["ROWS"] * options["COLS"] // (32 * options["num_warps"]) // 8
    copies = ahead * per_thread * options["STAGES"]  # before the loop and in it
    assert len(re.findall(r"cp\.async\.cg.*0x10", kernel.ptx)) == copies
