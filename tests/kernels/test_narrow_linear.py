"""narrow_linear matches its definition, and its gradients match autograd in float64."""

import re

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import narrow_linear as module
from nsysflow.kernels.narrow_linear import narrow_linear, narrow_linear_backward, narrow_linear_ref
from tests.kernels.comparing import exact, same, with_gradients
from tests.kernels.hopper import SHARED_BYTES_MAX, Compiled, compiled_for_hopper, shaped

SHAPES = [(70, 12, 4), (1, 128, 5), (129, 16, 1), (65, 100, 17), (40, 1, 64)]
"""Rows, width, outputs."""
ROUNDING = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}
"""Allowed rounding of a result. The interpreter truncates the last place."""

each_type = pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)


def layer(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """x, weight and the gradient of the output: the interpreter truncates where a GPU rounds, but
    bf16 numbers stay the same in both."""
    rows, width, outputs = shape
    x = torch.randn(rows, width, device=device).to(dtype)
    weight = torch.randn(outputs, width, device=device).to(dtype)
    return x, weight, torch.randn(rows, outputs, device=device).bfloat16().float()


def nan_like(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan)


def gradients(x: Tensor, weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """dx and a float32 dweight, written to memory that was NaN."""
    dx, dweight = nan_like(x), nan_like(weight.float())
    narrow_linear_backward(gradient, x, weight, dx=dx, dweight=dweight)
    return dx, dweight


def close(found: Tensor, exact: Tensor, rounding: float) -> None:
    """Check equality up to the rounding of each element, and of the terms where they cancel."""
    scale = exact.square().mean().sqrt().item()
    torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=4 * rounding * scale)


# torch warns once per process, if backward does the first product
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@each_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product_and_gradients_match_the_definition_rounded_once(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if device.type == "cpu":  # the interpreter's time depends on the number of programs
        monkeypatch.setattr(module, "SUMMED", 512)
    x, weight, gradient = layer(shape, dtype, device)
    out = torch.full((shape[0], shape[2]), torch.nan, dtype=dtype, device=device)
    assert narrow_linear(x, weight, out=out) is out
    y, dx, dweight = exact(narrow_linear_ref, (x, weight), gradient)
    close(out, y, ROUNDING[dtype])
    close(narrow_linear_ref(x, weight), y, ROUNDING[dtype])
    found = gradients(x, weight, gradient)
    close(found[0], dx, ROUNDING[dtype])
    close(found[1], dweight, 1e-6)


@each_type
def test_autograd_agrees_in_the_weight_s_dtype(dtype: torch.dtype, device: torch.device) -> None:
    x, weight, gradient = layer((70, 12, 4), dtype, device)
    gradient = gradient.to(dtype)
    dx, dweight = nan_like(x), nan_like(weight)
    narrow_linear_backward(gradient, x, weight, dx=dx, dweight=dweight)
    found = with_gradients(narrow_linear, (x, weight), gradient.T.clone().T)
    assert same(found, (narrow_linear(x, weight), dx, dweight))


@each_type
def test_more_tiles_than_programs_are_all_added_and_repeat_bit_for_bit(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTS", dict.fromkeys(module.PARTS, 3))
    rows_of_a_tile = module.BACKWARD[dtype.itemsize].bytes // (128 * dtype.itemsize)
    x, weight, gradient = layer((7 * rows_of_a_tile + 1, 128, 2), dtype, device)
    first, again = gradients(x, weight, gradient), gradients(x, weight, gradient)
    close(first[1], gradient.double().T @ x.double(), 1e-6)
    assert same(first, again)


def test_a_nan_stays_in_its_row_in_forward_and_backward(device: torch.device) -> None:
    x, weight, gradient = layer((70, 12, 4), torch.float32, device)
    x[3, 5] = torch.nan
    gradient[7, 1] = torch.nan
    assert narrow_linear(x, weight).isnan().any(1).nonzero().flatten().tolist() == [3]
    dx, dweight = gradients(x, weight, gradient)
    assert dx.isnan().any(1).nonzero().flatten().tolist() == [7]
    assert dweight[:, 5].isnan().all()


def on_hopper(outputs: int, width: int, dtype: torch.dtype) -> tuple[Compiled, Compiled]:
    """The kernels of both directions for 32 768 rows."""
    x, weight = shaped(32_768, width, dtype=dtype), shaped(outputs, width, dtype=dtype)
    kernels = compiled_for_hopper(
        lambda: with_gradients(narrow_linear, (x, weight), shaped(32_768, outputs, dtype=dtype))
    )
    return kernels["_narrow_linear_forward"], kernels["_narrow_linear_backward"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_on_hopper_it_loads_16_bytes_and_hardly_spills(dtype: torch.dtype) -> None:
    forward, backward = on_hopper(5, 128, dtype)
    # forward in float32: one warp with spills was faster than two without, 7.8 us against 8.2
    assert forward.local_bytes <= (256 if dtype == torch.float32 else 0)
    assert backward.local_bytes == 0
    assert {*forward.loads} == {"v4.b32"} <= {*backward.loads}
    for compiled in (forward, backward):
        assert re.search(r"wgmma\.mma_async|mma\.sync", compiled.ptx)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "width", "dtype"),
    [
        (64, 1, torch.bfloat16),  # with few columns a tile has many rows
        (64, 512, torch.bfloat16),
        (32, 512, torch.float32),  # 64 by 256 takes less
    ],
    ids=str,
)
def test_the_largest_sizes_fit_into_an_sm(outputs: int, width: int, dtype: torch.dtype) -> None:
    for compiled in on_hopper(outputs, width, dtype):
        assert compiled.shared_bytes <= SHARED_BYTES_MAX
