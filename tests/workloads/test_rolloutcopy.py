"""Plain and fused draw the same rows, and copy them."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from nsysflow.catalog import find
from nsysflow.kernels.prio import group_of, prio
from nsysflow.workloads.config import Config
from nsysflow.workloads.copying import Copy, FusedCopy, PlainCopy, compared
from nsysflow.workloads.drawing import drawn, philox, uniforms
from nsysflow.workloads.policy import Sizes
from nsysflow.workloads.rolloutcopy import phases_of, rolloutcopy
from nsysflow.workloads.rollouts import Recorded, recorded
from tests.workloads.running import toy, without_gpu

ROLLOUTCOPY = find("rolloutcopy")
STEPS = 3
SEED = 5


def both(device: torch.device) -> tuple[PlainCopy, FusedCopy, Recorded]:
    """Each with a rollout of its own, of the same numbers."""
    config: Config[Sizes] = toy(ROLLOUTCOPY, options={"layers": 2})
    sizes, kind = config.options, device.type
    rollouts = []
    for _ in range(2):
        torch.manual_seed(0)
        rollouts.append(recorded(sizes, kind, torch.float32))
    state = torch.full((sizes.layers, sizes.minibatch, 1, sizes.hidden), torch.nan, device=device)
    numbers = [uniforms(SEED, sizes.minibatch, step + 1).to(kind) for step in range(STEPS)]
    return PlainCopy(rollouts[0], state, numbers), FusedCopy(rollouts[1], state, SEED), rollouts[0]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run(copy: Copy) -> list[Tensor]:
    for phase in phases_of(copy):
        phase()
    return [getattr(copy.minibatch, field.name).clone() for field in fields(copy.minibatch)]


def test_every_step_s_minibatch_is_the_same_plain_and_fused(device: torch.device) -> None:
    plain, fused, _ = both(device)
    seen = []
    for _ in range(STEPS):
        for theirs, ours in zip(run(plain), run(fused), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        seen.append(plain.draws.rows)
    assert not torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("number", [0, 1])
def test_restarted_it_draws_what_it_drew_first(number: int, device: torch.device) -> None:
    copy = both(device)[:2][number]
    first = run(copy)
    assert not all(torch.equal(a, b) for a, b in zip(run(copy), first, strict=True))
    copy.restart()
    assert all(torch.equal(a, b) for a, b in zip(run(copy), first, strict=True))


def test_the_comparison_passes_what_is_right(device: torch.device) -> None:
    assert all(row.passed for row in compared(*both(device)))


class Lazy(FusedCopy):
    """Copies nothing: its observations are zero."""

    def select_and_copy(self) -> None:
        self.minibatch.obs.zero_()


def test_the_comparison_fails_a_wrong_minibatch(device: torch.device) -> None:
    plain, fused, of = both(device)
    state = fused.minibatch.state
    failed = [row.what for row in compared(plain, Lazy(of, state, SEED), of) if not row.passed]
    assert failed == ["minibatch"]


def test_the_comparison_fails_draws_of_another_seed(device: torch.device) -> None:
    plain, fused, of = both(device)
    other = FusedCopy(of, fused.minibatch.state, SEED + 1)
    failed = [row.what for row in compared(plain, other, of) if not row.passed]
    assert failed == ["rows drawn differently"]


def test_philox_gives_what_its_authors_publish() -> None:
    # Random123, kat_vectors: philox4x32-10 with counter and key 0
    assert [f"{word:08x}" for word in philox(0, torch.tensor([0]), 0).flatten().tolist()] == [
        "6627e8d5",
        "e169c58d",
    ]


@pytest.mark.parametrize("seed", [0, 2**40 + 5])
@pytest.mark.parametrize("segments", [1, 17, 300])
def test_draws_are_the_kernel_s(segments: int, seed: int, device: torch.device) -> None:
    advantages = torch.randn(segments, 7, device=device)
    offset = torch.tensor([2**33], device=device)
    ours = prio(advantages, 300, seed=seed, offset=offset)
    numbers = uniforms(seed, 300, 2**33 + 1).to(device)
    theirs = drawn(advantages, numbers, alpha=0.6, beta=0.4)
    assert torch.equal(ours.rows, theirs.rows)
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_many_segments_are_drawn_from_in_larger_groups(device: torch.device) -> None:
    segments = 16 * 1024 + 1
    assert group_of(segments) > group_of(segments - 1)
    advantages = torch.randn(segments, 1, device=device)
    rows = prio(advantages, 8, seed=0, offset=torch.zeros(1, dtype=torch.int64, device=device)).rows
    numbers = uniforms(0, 8, 1).to(device)
    assert torch.equal(rows, drawn(advantages, numbers, alpha=0.6, beta=0.4).rows)


@pytest.mark.gpu
@without_gpu
def test_a_graph_s_minibatches_are_the_fused_ones() -> None:
    results = []
    for variant in ("fused", "graph"):
        torch.manual_seed(0)
        work = rolloutcopy(toy(ROLLOUTCOPY, variant, on="cuda"))
        for index in range(STEPS):
            work.step(index)
        results.append(work.result().clone())
    assert torch.equal(*results)
