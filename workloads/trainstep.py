"""A whole training step of the policy: forward, loss, backward, clipping, Muon, working copies.

The weights are float32. With bf16, all matrix products use bf16 copies of the weights, and the
gradients are bf16 too. On a GPU the variant `graph` replays one CUDA graph of the step in a range
called `replay`.
"""

from torch import Tensor

from nsysflow.workloads.common.training import Config, Work
from nsysflow.workloads.policy.model import Sizes
from nsysflow.workloads.policy.variants import PolicyStep, policy_work, training_phases

Options = Sizes


def trainstep(config: Config[Sizes]) -> Work:
    """Train on the same minibatch in each step."""
    return policy_work(config, training_phases, _loss)


def _loss(step: PolicyStep) -> Tensor:
    return step.loss_value
