"""Draws in plain PyTorch are the same as those of the kernel."""

import pytest
import torch

from nsysflow.kernels import prio as kernel
from nsysflow.kernels.prio import group_of, prio
from nsysflow.workloads.policy.draws import draw_rows, philox, uniforms

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make more draws per program: the interpreter's time depends on the number of programs."""
    monkeypatch.setattr(kernel, "_LAUNCH", kernel._Launch(draws=256))


def test_philox_gives_the_values_published_by_its_authors() -> None:
    # Random123, kat_vectors: philox4x32-10 with counter and key 0
    assert [f"{word:08x}" for word in philox(0, torch.tensor([0]), 0).flatten().tolist()] == [
        "6627e8d5",
        "e169c58d",
    ]


@pytest.mark.parametrize("seed", [0, 2**40 + 5])
@pytest.mark.parametrize("segments", [1, 17, 300])
def test_draws_equal_those_of_the_kernel(segments: int, seed: int) -> None:
    advantages = torch.randn(segments, 7, device=DEVICE)
    offset = torch.tensor([2**33], device=DEVICE)
    ours = prio(advantages, 300, seed=seed, offset=offset)
    numbers = uniforms(seed, 300, 2**33 + 1).to(DEVICE)
    plain = draw_rows(advantages, numbers, alpha=0.6, beta=0.4)
    assert torch.equal(ours.rows, plain.rows)
    torch.testing.assert_close(ours.weight, plain.weight)


def test_draws_are_the_same_with_larger_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LAUNCH", kernel._Launch(groups=32))
    segments = 16 * 32 + 1
    assert group_of(segments) > group_of(segments - 1)
    advantages = torch.randn(segments, 1, device=DEVICE)
    rows = prio(advantages, 8, seed=0, offset=torch.zeros(1, dtype=torch.int64, device=DEVICE)).rows
    numbers = uniforms(0, 8, 1).to(DEVICE)
    assert torch.equal(rows, draw_rows(advantages, numbers, alpha=0.6, beta=0.4).rows)
