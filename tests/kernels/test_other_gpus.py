"""Every Triton kernel compiles for an A100 and a B200, and fits into their shared memory."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import torch

from nsysflow import kernels
from nsysflow.kernels import arguments
from nsysflow.kernels.advantage import advantage
from nsysflow.kernels.bench.copy import copy
from nsysflow.kernels.layernorm_relu_add import layernorm_relu_add
from nsysflow.kernels.linear_pair import linear_pair, linear_pair_backward
from nsysflow.kernels.mingru_scan import mingru_scan
from nsysflow.kernels.muon import muon, muon_table
from nsysflow.kernels.narrow_linear import narrow_linear
from nsysflow.kernels.prio import Draws, prio
from nsysflow.kernels.select_copy import Rollout, empty_minibatch, select_copy
from nsysflow.kernels.sum_many import sum_many, sum_table
from tests.kernels.comparing import with_gradients
from tests.kernels.hopper import compiled_for, shaped
from tests.kernels.test_ppo_loss import loss_and_gradient

FP32, INT64 = torch.float32, torch.int64
ROWS: Final = 32_768
SHARED_BYTES_MAX: Final = {80: 163 * 1024, 100: 227 * 1024}
"""Shared memory per program; https://docs.nvidia.com/cuda/cuda-c-programming-guide, "Technical
Specifications per Compute Capability"."""


def calls() -> Iterator[Callable[[], object]]:
    """Calls at the usual sizes, most in bf16; with `muons_step` they launch every kernel."""
    short, long = shaped(8192, 64), shaped(8, 131_072)
    yield lambda: advantage(short, short, short, short)
    yield lambda: advantage(long, long, long, long, bootstrap=long)
    for cols in (4096, 16_384):
        rows = shaped(8192, cols)
        normed = rows, shaped(cols), shaped(cols), rows
        yield partial(with_gradients, layernorm_relu_add, normed, rows)
    x, first, second, dy = shaped(ROWS, 96), shaped(128, 96), shaped(384, 128), shaped(ROWS, 384)
    yield lambda: linear_pair(x, first, second)
    yield lambda: linear_pair_backward(dy, x, first, second, dfirst=first, dsecond=second)
    scanned, state, out = shaped(512, 64, 384), shaped(512, 1, 128), shaped(512, 64, 128)
    yield partial(with_gradients, mingru_scan, (scanned, state), (out, state))
    wide, narrow = shaped(ROWS, 128), shaped(ROWS, 5)
    yield partial(with_gradients, narrow_linear, (wide, shaped(5, 128)), narrow)
    floats, weights = shaped(ROWS, dtype=FP32), shaped(ROWS // 64, dtype=FP32)
    graded = [narrow, floats.long(), floats, floats, weights, floats, floats]
    yield lambda: loss_and_gradient(graded)
    advantages, offset = shaped(8192, 64, dtype=FP32), shaped(1, dtype=INT64)
    yield lambda: prio(advantages, 512, seed=2**40, offset=offset)
    actions = shaped(8192, 64, 4, dtype=torch.float64)
    source = Rollout(
        obs=shaped(8192, 64, 96), actions=actions, logprobs=short, values=short,
        advantages=advantages,
    )  # fmt: skip
    draws = Draws(rows=shaped(512, dtype=INT64), weight=shaped(512, dtype=FP32))
    minibatch = empty_minibatch(source, 512, (512, 1, 128), state_dtype=torch.bfloat16)
    yield lambda: select_copy(source, draws, out=minibatch)
    table = sum_table([shaped(2**20)])
    yield lambda: sum_many(table)
    yield lambda: copy(floats)


def muons_step() -> Callable[[], object]:
    """With small matrices: those of the policy take 20 s to compile (RESULTS.md)."""
    matrices = [shaped(16, 16, dtype=FP32)]
    table = muon_table(matrices, matrices, working=[matrix.bfloat16() for matrix in matrices])
    return lambda: muon(table, shaped(1, dtype=FP32))


def launched() -> set[str]:
    """The kernels that the sources launch, as in `kernel[grid](`."""
    folder = Path(str(kernels.__file__)).parent
    sources = [*folder.glob("*.py"), folder / "bench" / "copy.py"]
    launch = re.compile(r"(\w+)\[(?:\(.*\)|grid|_grid\(\w+\))\]\(")
    return {name for source in sources for name in launch.findall(source.read_text())}


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_BYTES_MAX)
def test_every_kernel_compiles_for_an_a100_and_a_b200(
    capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "_can_overlap", lambda _: capability >= 90)
    monkeypatch.setattr("nsysflow.kernels.advantage.sms", lambda _: 132)
    found = compiled_for(capability, muons_step(), OPERAND="bf16")  # not as on a CPU
    for call in calls():
        found |= compiled_for(capability, call)
    assert set(found) == launched()
    for name, kernel in found.items():
        assert kernel.shared_bytes <= SHARED_BYTES_MAX[capability], name
        assert ("griddepcontrol" in kernel.ptx) <= (capability >= 90), name
