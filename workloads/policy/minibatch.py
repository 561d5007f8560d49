"""A step of `rolloutcopy`, in PyTorch and with the fused kernels: from rollout to minibatch."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

import torch
from torch import Tensor

from nsysflow.kernels.advantage import advantage, advantage_ref
from nsysflow.kernels.prio import Draws, prio, probabilities_ref
from nsysflow.kernels.select_copy import Minibatch, empty_minibatch, select_copy, select_copy_ref
from nsysflow.workloads.common.accuracy import Comparison, distance
from nsysflow.workloads.policy.draws import draw_rows
from nsysflow.workloads.policy.rollout import RecordedRollout

ALPHA: Final = 0.6
BETA: Final = 0.4


class PlainCopy:
    """The step in PyTorch, with random numbers made beforehand.

    Attributes:
        rollout: the rollout; its advantages are computed in each step.
        draws: the rows drawn in the last step.
        minibatch: the minibatch of the last step.
    """

    def __init__(self, recorded: RecordedRollout, state: Tensor, numbers: Sequence[Tensor]) -> None:
        """Keep the inputs; nothing is computed yet.

        Args:
            recorded: the rollout and the inputs of its advantages.
            state: a tensor like the state to zero, (layers, mb, 1, H).
            numbers: (2, mb) for each step, from `uniforms`; used in turn.
        """
        self.rollout = recorded.rollout
        self._inputs = recorded.steps
        self._state = state
        self._numbers = numbers
        self._step = 0

    def compute_advantage(self) -> None:
        """Compute the advantage of every step of every segment."""
        self.rollout.advantages.copy_(advantage_ref(*self._inputs))

    def compute_prio(self) -> None:
        """Weight the segments and draw rows."""
        numbers = self._numbers[self._step % len(self._numbers)]
        self._step += 1
        self.draws = draw_rows(self.rollout.advantages, numbers, alpha=ALPHA, beta=BETA)

    def select_and_copy(self) -> None:
        """Copy the drawn rows into a new minibatch."""
        self.minibatch = select_copy_ref(self.rollout, self.draws, self._state)

    def restart(self) -> None:
        """Make the next step draw what the first one drew."""
        self._step = 0


class FusedCopy:
    """The same step with four launches, into the same memory each time."""

    def __init__(self, recorded: RecordedRollout, state: Tensor, seed: int) -> None:
        """Keep the inputs; nothing is computed yet. The seed decides the draws."""
        self.rollout = recorded.rollout
        self._inputs = recorded.steps
        self._seed = seed
        self._offset = torch.zeros(1, dtype=torch.int64, device=state.device)
        rows = torch.empty(state.shape[1], dtype=torch.int64, device=state.device)
        self.draws = Draws(rows=rows, weight=torch.empty_like(rows, dtype=torch.float32))
        self.minibatch = empty_minibatch(
            recorded.rollout, len(rows), state.shape, state_dtype=state.dtype
        )

    def compute_advantage(self) -> None:
        """Compute the advantages, in one launch."""
        advantage(*self._inputs, out=self.rollout.advantages)

    def compute_prio(self) -> None:
        """Weight the segments and draw rows, in two launches; each call draws others."""
        prio(
            self.rollout.advantages, len(self.draws.rows), seed=self._seed, offset=self._offset,
            alpha=ALPHA, beta=BETA, out=self.draws,
        )  # fmt: skip

    def select_and_copy(self) -> None:
        """Copy the drawn rows into the minibatch, in one launch."""
        select_copy(self.rollout, self.draws, out=self.minibatch)

    def restart(self) -> None:
        """Make the next step draw what the first one drew."""
        self._offset.zero_()


Copy = PlainCopy | FusedCopy


def compare(plain: PlainCopy, fused: FusedCopy, recorded: RecordedRollout) -> list[Comparison]:
    """Compare one step of each. They run one after the other: both write the same advantages."""
    exact = advantage_ref(*(tensor.double() for tensor in recorded.steps))
    plain_errors, fused_errors = (_distances(copy, exact) for copy in (plain, fused))
    other = (plain.draws.rows != fused.draws.rows).double().mean().item()
    return [
        *(
            Comparison(what=what, torch_error=theirs, error=ours)
            for (what, theirs), (_, ours) in zip(plain_errors, fused_errors, strict=True)
        ),
        # a draw at the border between two rows may go to either
        Comparison(what="rows drawn differently", torch_error=0.0, error=other, band=0.01),
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
