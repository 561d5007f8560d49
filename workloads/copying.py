"""A step of `rolloutcopy`, plain and fused."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.advantage import advantage, advantage_ref
from nsysflow.kernels.prio import Draws, prio, probabilities_ref
from nsysflow.kernels.select_copy import Minibatch, empty_minibatch, select_copy, select_copy_ref
from nsysflow.workloads.comparing import Compared, distance
from nsysflow.workloads.drawing import drawn
from nsysflow.workloads.rollouts import Recorded

ALPHA: Final = 0.6
BETA: Final = 0.4


class PlainCopy:
    """In PyTorch, with random numbers made beforehand.

    Attributes:
        rollout: its advantages, once they are computed.
        draws: of the last step.
        minibatch: likewise.
    """

    def __init__(self, of: Recorded, state: Tensor, numbers: Sequence[Tensor]) -> None:
        """Nothing is computed yet.

        Args:
            of: what was recorded.
            state: like what to zero, (layers, mb, 1, H).
            numbers: (2, mb) for each step, from `uniforms`; taken in turns.
        """
        self.rollout = of.rollout
        self._inputs = of.steps
        self._state = state
        self._numbers = numbers
        self._step = 0

    def compute_advantage(self) -> None:
        """Of every step of every segment."""
        self.rollout.advantages.copy_(advantage_ref(*self._inputs))

    def compute_prio(self) -> None:
        """Weigh the segments and draw."""
        numbers = self._numbers[self._step % len(self._numbers)]
        self._step += 1
        self.draws = drawn(self.rollout.advantages, numbers, alpha=ALPHA, beta=BETA)

    def select_and_copy(self) -> None:
        """What was drawn, into a new minibatch."""
        self.minibatch = select_copy_ref(self.rollout, self.draws, self._state)

    def restart(self) -> None:
        """Draw next what was drawn first."""
        self._step = 0


class FusedCopy:
    """The same by four launches, into the same memory each time."""

    def __init__(self, of: Recorded, state: Tensor, seed: int) -> None:
        """Nothing is computed yet; the draws are those of that seed."""
        self.rollout = of.rollout
        self._inputs = of.steps
        self._seed = seed
        self._offset = torch.zeros(1, dtype=torch.int64, device=state.device)
        rows = torch.empty(state.shape[1], dtype=torch.int64, device=state.device)
        self.draws = Draws(rows=rows, weight=torch.empty_like(rows, dtype=torch.float32))
        self.minibatch = empty_minibatch(
            of.rollout, len(rows), state.shape, state_dtype=state.dtype
        )

    def compute_advantage(self) -> None:
        """One launch."""
        advantage(*self._inputs, out=self.rollout.advantages)

    def compute_prio(self) -> None:
        """Two launches; the next draws are others."""
        prio(
            self.rollout.advantages, len(self.draws.rows), seed=self._seed, offset=self._offset,
            alpha=ALPHA, beta=BETA, out=self.draws,
        )  # fmt: skip

    def select_and_copy(self) -> None:
        """One launch."""
        select_copy(self.rollout, self.draws, out=self.minibatch)

    def restart(self) -> None:
        """Draw next what was drawn first."""
        self._offset.zero_()


Copy = PlainCopy | FusedCopy


def compared(plain: PlainCopy, fused: FusedCopy, of: Recorded) -> list[Compared]:
    """A first step of each. Both write the same advantages, so one after the other."""
    exact = advantage_ref(*(each.double() for each in of.steps))
    plain_far, fused_far = (_distances(copy, exact) for copy in (plain, fused))
    other = (plain.draws.rows != fused.draws.rows).double().mean().item()
    return [
        *(
            Compared(what=what, torch_error=theirs, error=ours)
            for (what, theirs), (_, ours) in zip(plain_far, fused_far, strict=True)
        ),
        # a draw on the border of two rows goes to either
        Compared(what="rows drawn differently", torch_error=0.0, error=other, band=0.01),
    ]


def _distances(copy: Copy, exact: Tensor) -> list[tuple[str, float]]:
    copy.compute_advantage()
    advantages = distance(copy.rollout.advantages, exact)
    copy.compute_prio()
    p = probabilities_ref(copy.rollout.advantages.double(), alpha=ALPHA)
    weight = (len(p) * p[copy.draws.rows]) ** -BETA
    copy.select_and_copy()
    wanted = select_copy_ref(copy.rollout, copy.draws, copy.minibatch.state)
    copied = zip(_tensors(copy.minibatch), _tensors(wanted), strict=True)
    return [
        ("advantages", advantages),
        ("weights of the draws", distance(copy.draws.weight, weight)),
        ("minibatch", max(0.0 if torch.equal(a, b) else torch.inf for a, b in copied)),
    ]


def _tensors(minibatch: Minibatch) -> Iterator[Tensor]:
    return (getattr(minibatch, field.name) for field in fields(minibatch))
