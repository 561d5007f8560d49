"""A whole step of training the policy: forward, loss, backward, clipping, Muon, working copies.

The weights are float32; with bf16 all products are of bf16 copies of them, and their gradients are
bf16 too. On a GPU the variant `graph` replays one CUDA graph of all that in a range `replay`.
"""

from torch import Tensor

from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.policy import Sizes
from nsysflow.workloads.policy_comparing import PolicyStep
from nsysflow.workloads.policy_steps import policy_work, training_phases

Options = Sizes


def trainstep(config: Config[Sizes]) -> Work:
    """Train on one minibatch, again and again."""
    return policy_work(config, training_phases, _loss)


def _loss(step: PolicyStep) -> Tensor:
    return step.loss_value
