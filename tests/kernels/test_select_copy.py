"""select_copy copies rows bit for bit, of any size and dtype."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import select_copy as module
from nsysflow.kernels.prio import Draws
from nsysflow.kernels.select_copy import (
    Minibatch,
    Rollout,
    empty_minibatch,
    select_copy,
    select_copy_ref,
)
from tests.kernels.hopper import compiled_for_hopper, shaped

BEHIND = 8192
"""Elements after each output, which must not change."""


def rollout(
    device: torch.device,
    *,
    segments: int = 9,
    steps: int = 16,
    width: int = 12,
    actions: int = 4,
    dtype: torch.dtype = torch.float32,
    action_dtype: torch.dtype = torch.float64,
) -> Rollout:
    def floats(*shape: int) -> Tensor:
        return torch.randn(segments, steps, *shape, device=device).to(dtype)

    numbers = 200 * torch.rand(segments, steps, actions, dtype=torch.float64, device=device)
    return Rollout(
        obs=floats(width),
        actions=numbers.to(action_dtype),
        logprobs=floats(),
        values=floats(),
        advantages=floats().float(),
    )


def drawn(rows: list[int], device: torch.device) -> Draws:
    return Draws(
        rows=torch.tensor(rows, dtype=torch.int64, device=device),
        weight=torch.rand(len(rows), device=device),
    )


def poison(dtype: torch.dtype) -> float:
    return float("nan") if dtype.is_floating_point else 77


def poisoned(source: Rollout, draws: int, state_shape: tuple[int, ...]) -> Minibatch:
    """A minibatch of invalid values, each tensor at the start of a longer buffer."""
    out = empty_minibatch(source, draws, state_shape, state_dtype=source.values.dtype)
    tensors = {}
    for field in fields(out):
        tensor = getattr(out, field.name)
        longer = tensor.new_full((tensor.numel() + BEHIND,), poison(tensor.dtype))
        tensors[field.name] = longer[: tensor.numel()].view(tensor.shape)
    return replace(out, **tensors)


def wrote_past_the_end(tensor: Tensor) -> bool:
    """Whether the elements after a tensor from `poisoned` have changed."""
    behind = tensor.as_strided((BEHIND,), (1,), tensor.numel())
    return not same_bits(behind, torch.full_like(behind, poison(tensor.dtype)))


def same_bits(got: Tensor, wanted: Tensor) -> bool:
    return got.dtype == wanted.dtype and torch.equal(
        got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)
    )


def check(source: Rollout, rows: list[int], state_shape: tuple[int, ...]) -> None:
    """Compare the bits with the definition, of a NaN and an infinity too."""
    if source.obs.is_floating_point():
        source.obs[-1, 0] = torch.nan
    source.values[-1, 0] = torch.inf
    draws = drawn(rows, source.obs.device)
    out = poisoned(source, len(rows), state_shape)
    got = select_copy(source, draws, out=out)
    wanted = select_copy_ref(source, draws, out.state)
    assert got is out
    for field in fields(got):
        assert same_bits(getattr(got, field.name), getattr(wanted, field.name)), field.name
        assert not wrote_past_the_end(getattr(got, field.name)), field.name


ROWS = [3, 0, 8, 3, 7]


@pytest.mark.parametrize(
    ("steps", "width", "actions"), [(64, 96, 4), (1, 1, 1), (7, 5, 3), (33, 3, 2), (8, 1, 1)]
)
def test_every_field_is_copied(device: torch.device, steps: int, width: int, actions: int) -> None:
    check(rollout(device, steps=steps, width=width, actions=actions), ROWS, (5, 1, 8))


def test_one_step_of_one_segment_is_copied(device: torch.device) -> None:
    check(rollout(device, segments=1, steps=1, width=1, actions=1), [0], (1, 1, 1))
    check(rollout(device, segments=1, steps=5, width=3, actions=2), [0], (1, 1, 7))


@pytest.mark.parametrize(
    ("dtype", "action_dtype"),
    [
        *((torch.bfloat16, torch.float64), (torch.float16, torch.int64)),
        *((torch.float32, torch.int32), (torch.bfloat16, torch.uint8)),
    ],
)
def test_every_dtype_is_copied_unchanged(
    device: torch.device, dtype: torch.dtype, action_dtype: torch.dtype
) -> None:
    source = rollout(device, dtype=dtype, action_dtype=action_dtype)
    check(source, ROWS, (2, 5, 6))
    check(replace(source, obs=(source.obs * 40).to(torch.uint8)), ROWS, (5,))


def test_long_rows_go_in_pieces(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAUNCH", module._Launch(tile_bytes=256))
    check(rollout(device, steps=13, width=11), ROWS, (5, 1, 40))


@pytest.mark.slow
def test_on_hopper_observations_are_copied_16_bytes_at_a_time() -> None:
    column = shaped(8192, 64)
    source = Rollout(
        obs=shaped(8192, 64, 96),
        actions=shaped(8192, 64, 4, dtype=torch.float64),
        logprobs=column,
        values=column,
        advantages=column.float(),
    )
    draws = Draws(rows=shaped(512, dtype=torch.int64), weight=shaped(512, dtype=torch.float32))
    out = empty_minibatch(source, 512, (512, 1, 128), state_dtype=torch.bfloat16)
    (compiled,) = compiled_for_hopper(lambda: select_copy(source, draws, out=out)).values()
    assert compiled.loads["v4.b32"] >= 3, "12 KiB are 3 times 16 bytes for each of 256 threads"
    assert compiled.local_bytes == 0
