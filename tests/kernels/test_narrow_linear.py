"""narrow_linear matches its definition, and its gradients match autograd in float64."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import narrow_linear as module
from nsysflow.kernels.narrow_linear import (
    narrow_linear,
    narrow_linear_backward,
    narrow_linear_ref,
)
from tests.kernels.hopper import SHARED_BYTES_MAX, Compiled, Kernel, compile_for_hopper, pointers

SHAPES = [(70, 12, 4), (1, 128, 5), (129, 16, 1), (65, 100, 17), (200, 1, 64)]
"""Rows, width, outputs."""
ROUNDING = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}
"""Allowed rounding of a result. The interpreter truncates the last place."""

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_type = pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)


def layer(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """x, weight and the gradient of the output."""
    rows, width, outputs = shape
    x = torch.randn(rows, width, device=device).to(dtype)
    weight = torch.randn(outputs, width, device=device).to(dtype)
    return x, weight, torch.randn(rows, outputs, device=device)


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


@each_type
@each_shape
def test_forward_is_the_product_rounded_once(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    x, weight, _ = layer(shape, dtype, device)
    out = torch.full((shape[0], shape[2]), torch.nan, dtype=dtype, device=device)
    assert narrow_linear(x, weight, out=out) is out
    exact = x.double() @ weight.double().T
    close(out, exact, ROUNDING[dtype])
    close(narrow_linear_ref(x, weight), exact, ROUNDING[dtype])
    assert torch.equal(narrow_linear(x, weight), out)


# torch warns once per process, if backward does the first product
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@each_type
@each_shape
def test_gradients_match_autograd_with_the_rounded_gradient(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    x, weight, gradient = layer(shape, dtype, device)
    wide = [x.double().requires_grad_(), weight.double().requires_grad_()]
    # the interpreter truncates where a GPU rounds, but bf16 numbers stay the same in both
    gradient = gradient.bfloat16().float()
    exact = torch.autograd.grad(wide[0] @ wide[1].T, wide, gradient.double())
    dx, dweight = gradients(x, weight, gradient)
    close(dx, exact[0], ROUNDING[dtype])
    close(dweight, exact[1], 1e-6)


@each_type
def test_autograd_gives_the_same_gradients(dtype: torch.dtype, device: torch.device) -> None:
    x, weight, gradient = layer((70, 12, 4), dtype, device)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    found = torch.autograd.grad(narrow_linear(x, weight), leaves, gradient.to(dtype).T.clone().T)
    dx, dweight = nan_like(x), nan_like(weight)
    narrow_linear_backward(gradient.to(dtype), x, weight, dx=dx, dweight=dweight)
    assert all(torch.equal(a, b) for a, b in zip(found, (dx, dweight), strict=True))


def test_the_gradient_of_the_weight_has_the_dtype_of_its_buffer(device: torch.device) -> None:
    x, weight, gradient = layer((70, 12, 4), torch.float32, device)
    dweight = nan_like(weight.bfloat16())
    narrow_linear_backward(gradient, x, weight, dx=nan_like(x), dweight=dweight)
    close(dweight, gradient.double().T @ x.double(), 2**-7)


@each_type
def test_more_tiles_than_programs_are_all_added_and_repeat_bit_for_bit(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTS", dict.fromkeys(module.PARTS, 3))
    rows_of_a_tile = module.BACKWARD[dtype.itemsize].bytes // (128 * dtype.itemsize)
    x, weight, gradient = layer((7 * rows_of_a_tile + 1, 128, 2), dtype, device)
    gradient = gradient.bfloat16().float()  # as above
    first, again = gradients(x, weight, gradient), gradients(x, weight, gradient)
    close(first[1], gradient.double().T @ x.double(), 1e-6)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_no_rows_give_no_output_and_a_zero_gradient(device: torch.device) -> None:
    x, weight, gradient = layer((0, 12, 4), torch.float32, device)
    assert narrow_linear(x, weight).shape == (0, 4)
    assert gradients(x, weight, gradient)[1].eq(0).all()


def test_a_nan_stays_in_its_row_in_forward_and_backward(device: torch.device) -> None:
    x, weight, gradient = layer((70, 12, 4), torch.float32, device)
    x[3, 5] = torch.nan
    gradient[7, 1] = torch.nan
    assert narrow_linear(x, weight).isnan().any(1).nonzero().flatten().tolist() == [3]
    dx, dweight = gradients(x, weight, gradient)
    assert dx.isnan().any(1).nonzero().flatten().tolist() == [7]
    assert dweight[:, 5].isnan().all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["_narrow_linear_forward", "_narrow_linear_backward"])
def test_on_hopper_it_loads_16_bytes_uses_tensor_cores_and_hardly_spills(
    name: str, dtype: torch.dtype
) -> None:
    tile = (module.FORWARD if name == "_narrow_linear_forward" else module.BACKWARD)[dtype.itemsize]
    constants = module._cut(torch.empty(32_768, 128, dtype=dtype), 5, tile)
    compiled = on_hopper(name, dtype, constants)
    # forward in float32: one warp with spills was faster than two without, 7.8 us against 8.2
    assert compiled.local_bytes <= (
        256 if (name, dtype) == ("_narrow_linear_forward", torch.float32) else 0
    )
    assert "v4.b32" in compiled.loads
    assert name == "_narrow_linear_backward" or set(compiled.loads) == {"v4.b32"}
    assert re.search(r"wgmma\.mma_async|mma\.sync", compiled.ptx)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "width", "dtype"),
    [
        (64, 1, torch.bfloat16),  # with few columns a tile has many rows
        (64, 512, torch.bfloat16),
        (32, 512, torch.float32),
        (64, 256, torch.float32),
    ],
    ids=str,
)
def test_the_largest_allowed_sizes_fit_into_an_sm(
    outputs: int, width: int, dtype: torch.dtype
) -> None:
    x = torch.empty(32_768, width, dtype=dtype)
    module._check(x, torch.empty(outputs, width, dtype=dtype))
    for name, tiles in (
        ("_narrow_linear_forward", module.FORWARD),
        ("_narrow_linear_backward", module.BACKWARD),
    ):
        compiled = on_hopper(name, dtype, module._cut(x, outputs, tiles[dtype.itemsize]))
        assert compiled.shared_bytes <= SHARED_BYTES_MAX


def on_hopper(name: str, dtype: torch.dtype, constants: dict[str, Any]) -> Compiled:
    """A kernel compiled as `_cut` would launch it on a GPU."""
    operand = str(dtype).removeprefix("torch.")
    short = {"bfloat16": "bf16", "float32": "fp32"}[operand]
    types = pointers(**{short: "x weight y dx"}) | pointers(fp32="gradient parts")
    warps, stages = constants.pop("num_warps"), constants.pop("num_stages")
    kernel = Kernel(
        module="narrow_linear",
        name=name,
        types=types | {"rows": "i32:16", "tiles": "i32:16"},
        constants={**constants, "OPERAND": operand},
        warps=warps,
        options={"num_stages": stages},
    )
    return compile_for_hopper(kernel)
