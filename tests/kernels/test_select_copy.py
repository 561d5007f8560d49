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
    select_copy_bytes,
    select_copy_ref,
)
from tests.kernels.hopper import Kernel, compile_for_hopper

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

    return Rollout(
        obs=floats(width),
        actions=torch.randint(0, 200, (segments, steps, actions), device=device).to(action_dtype),
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
    for field in fields(out):
        tensor = getattr(out, field.name)
        longer = tensor.new_full((tensor.numel() + BEHIND,), poison(tensor.dtype))
        object.__setattr__(out, field.name, longer[: tensor.numel()].view(tensor.shape))
    return out


def wrote_past_the_end(tensor: Tensor) -> bool:
    """Whether the elements after a tensor from `poisoned` have changed."""
    behind = tensor.as_strided((BEHIND,), (1,), tensor.numel())
    return not same_bits(behind, torch.full_like(behind, poison(tensor.dtype)))


def same_bits(got: Tensor, wanted: Tensor) -> bool:
    return got.dtype == wanted.dtype and torch.equal(
        got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)
    )


def check(source: Rollout, rows: list[int], state_shape: tuple[int, ...]) -> None:
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
def test_every_field_is_copied_at_any_size(
    device: torch.device, steps: int, width: int, actions: int
) -> None:
    check(rollout(device, steps=steps, width=width, actions=actions), ROWS, (5, 1, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("action_dtype", [torch.float64, torch.int64, torch.int32, torch.uint8])
def test_every_dtype_is_copied_unchanged(
    device: torch.device, dtype: torch.dtype, action_dtype: torch.dtype
) -> None:
    check(rollout(device, dtype=dtype, action_dtype=action_dtype), ROWS, (2, 5, 6))


def test_actions_keep_float64_precision(device: torch.device) -> None:
    source = rollout(device)
    source = replace(source, actions=torch.randn_like(source.actions))
    check(source, ROWS, (5,))


def test_observations_can_be_bytes(device: torch.device) -> None:
    source = rollout(device)
    check(replace(source, obs=(source.obs * 40).to(torch.uint8)), ROWS, (5,))


def test_long_rows_are_copied_in_pieces(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAUNCH", module._Launch(tile_bytes=256))
    check(rollout(device, steps=13, width=11), ROWS, (5, 1, 40))


@pytest.mark.parametrize("state_shape", [(1,), (0,), (3, 5, 131)])
def test_the_whole_state_is_set_to_zero(device: torch.device, state_shape: tuple[int, ...]) -> None:
    check(rollout(device), [2, 2], state_shape)


def test_a_rollout_can_have_one_segment(device: torch.device) -> None:
    check(rollout(device, segments=1), [0], (1, 1, 8))


def test_nan_and_infinity_are_copied_like_other_values(device: torch.device) -> None:
    source = rollout(device)
    source.obs[3, 1, 0] = float("nan")
    source.values[3, 2] = float("inf")
    source.advantages[0, 0] = float("nan")
    draws = drawn(ROWS, device)
    got = select_copy(source, draws, out=poisoned(source, 5, (5,)))
    assert got.obs.isnan().sum() == 2
    assert got.returns.isinf().sum() == 2
    assert got.returns.isnan().sum() == 1


def test_returns_are_added_in_float32(device: torch.device) -> None:
    source = rollout(device, dtype=torch.bfloat16)
    source.values.fill_(256)
    source.advantages.fill_(0.5)
    got = select_copy(source, drawn(ROWS, device), out=poisoned(source, 5, (5,)))
    assert (got.returns == 256.5).all(), "bf16 has no number between 256 and 258"


def test_without_draws_the_state_is_still_set_to_zero(device: torch.device) -> None:
    source = rollout(device)
    out = select_copy(source, drawn([], device), out=poisoned(source, 0, (4,)))
    assert (out.state == 0).all()


def test_arguments_that_it_would_misread_are_refused(device: torch.device) -> None:
    source = rollout(device)
    empty = rollout(device, segments=0)
    draws = drawn(ROWS, device)
    out = poisoned(source, 5, (5,))

    def refused(
        message: str, *, rollout: Rollout = source, draws: Draws = draws, out: Minibatch = out
    ) -> None:
        with pytest.raises(ValueError, match=message):
            select_copy(rollout, draws, out=out)

    refused("rollout.obs must be contiguous", rollout=replace(source, obs=source.obs[:, :, ::2]))
    refused("rollout.values must be", rollout=replace(source, values=source.values[:4]))
    refused("rollout.actions must be", rollout=replace(source, actions=source.actions.half()))
    refused("draws.rows must be int64", draws=replace(draws, rows=draws.rows.int()))
    refused("out.obs must be float32", out=replace(out, obs=out.obs.half()))
    refused("out.returns must be", out=replace(out, returns=out.returns[:4]))
    refused("out.weight must be", out=replace(out, weight=out.weight[:4]))
    refused("cannot take 5 draws from 0 segments", rollout=empty)


def test_bytes_are_the_rows_read_and_written(device: torch.device) -> None:
    source = rollout(device, steps=64, width=96, dtype=torch.bfloat16)
    state = torch.empty(5, 1, 128, dtype=torch.bfloat16, device=device)
    a_row = 64 * (96 * 2 + 4 * 8 + 2 + 2 + 4)
    assert select_copy_bytes(source, drawn(ROWS, device), state) == (
        5 * (2 * a_row + 64 * 4 + 8 + 4 + 4) + 5 * 128 * 2
    )


@pytest.mark.slow
def test_on_hopper_observations_are_copied_16_bytes_at_a_time() -> None:
    copied = ("obs", "logprobs", "values")
    kernel = Kernel(
        module="select_copy",
        name="_select_copy",
        types={f"{way}{name}_ptr": "*bf16" for way in ("", "to_") for name in copied}
        | {f"{way}{name}_ptr": "*fp32" for way in ("", "to_") for name in ("advantages", "weight")}
        | {"actions_ptr": "*fp64", "to_actions_ptr": "*fp64", "to_returns_ptr": "*fp32"}
        | {"rows_ptr": "*i64", "state_ptr": "*bf16", "state_numel": "i32"},
        constants={"OBS": 6144, "OBS_TILE": 8192, "ACTIONS": 256, "ACTIONS_TILE": 256}
        | {"STEPS": 64, "STEPS_TILE": 64, "STATE_TILE": 128},
        warps=8,
    )
    compiled = compile_for_hopper(kernel)
    assert compiled.loads["v4.b32"] >= 3, "12 KiB are 3 times 16 bytes for each of 256 threads"
    assert compiled.local_bytes == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_replayed_graph_copies_the_current_rows(device: torch.device) -> None:
    source = rollout(device)
    draws = drawn(ROWS, device)
    out = poisoned(source, 5, (5, 1, 8))
    select_copy(source, draws, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        select_copy(source, draws, out=out)
    draws.rows.copy_(torch.tensor([1, 2, 4, 5, 6]))
    out.state.fill_(1)
    graph.replay()
    wanted = select_copy_ref(source, draws, out.state)
    for field in fields(out):
        assert same_bits(getattr(out, field.name), getattr(wanted, field.name)), field.name
