"""Plain and fused steps draw the same rows and copy them, and a wrong step is noticed."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from nsysflow.catalog.catalog import find
from nsysflow.kernels import prio as kernel
from nsysflow.kernels.prio import prio
from nsysflow.workloads.common.training import Config
from nsysflow.workloads.policy.minibatch import (
    Copy,
    FusedCopy,
    PlainCopy,
    RecordedRollout,
    compare,
    draw_rows,
    random_rollout,
    uniforms,
)
from nsysflow.workloads.policy.model import Sizes
from nsysflow.workloads.rolloutcopy import phases_of
from tests.workloads.toys import toy

STEPS = 3
SEED = 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Both = tuple[PlainCopy, FusedCopy, RecordedRollout]


@pytest.fixture
def both() -> Both:
    """Each with its own rollout of the same numbers, and the plain one's rollout."""
    config: Config[Sizes] = toy(find("rolloutcopy"), options={"layers": 2})
    sizes = config.options
    rollouts = []
    for _ in range(2):
        torch.manual_seed(0)
        rollouts.append(random_rollout(sizes, DEVICE, torch.float32))
    state = torch.full((sizes.layers, sizes.minibatch, 1, sizes.hidden), torch.nan, device=DEVICE)
    numbers = [uniforms(SEED, sizes.minibatch, step + 1).to(DEVICE) for step in range(STEPS)]
    return PlainCopy(rollouts[0], state, numbers), FusedCopy(rollouts[1], state, SEED), rollouts[0]


def run(copy: Copy) -> list[Tensor]:
    for phase in phases_of(copy):
        phase()
    return [getattr(copy.minibatch, field.name).clone() for field in fields(copy.minibatch)]


def test_plain_and_fused_make_the_same_minibatch_in_every_step(both: Both) -> None:
    plain, fused, _ = both
    seen = []
    for _ in range(STEPS):
        for theirs, ours in zip(run(plain), run(fused), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        seen.append(plain.draws.rows)
    assert not torch.equal(seen[0], seen[1])


class WithoutCopy(FusedCopy):
    """Copies nothing: its observations are zero."""

    def select_and_copy(self) -> None:
        self.minibatch.obs.zero_()


def test_only_a_wrong_minibatch_or_draws_of_another_seed_fail_the_comparison(both: Both) -> None:
    plain, fused, rollout = both
    state = fused.minibatch.state
    for copy, wrong in (
        (fused, []),
        (WithoutCopy(rollout, state, SEED), ["minibatch"]),
        (FusedCopy(rollout, state, SEED + 1), ["rows drawn differently"]),
    ):
        plain.restart()
        assert [row.what for row in compare(plain, copy, rollout) if not row.passed] == wrong


@pytest.fixture(autouse=True)
def many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make more draws per program: the interpreter's time depends on the number of programs."""
    monkeypatch.setattr(kernel, "_LAUNCH", kernel._Launch(draws=256))


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
