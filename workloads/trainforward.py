"""The policy's forward pass, loss and backward pass, without changing any weight."""

import torch
from torch import Tensor

from nsysflow.workloads.common.training import Config, Work
from nsysflow.workloads.policy.model import Sizes
from nsysflow.workloads.policy.variants import PolicyStep, forward_phases, policy_work

Options = Sizes


def trainforward(config: Config[Sizes]) -> Work:
    """Compute loss and gradients of the same minibatch in each step."""
    return policy_work(config, forward_phases, _loss_and_norms)


def _loss_and_norms(step: PolicyStep) -> Tensor:
    """The loss and the norm of each gradient, as one tensor."""
    norms = [gradient.float().norm() for gradient in step.gradients]
    return torch.stack([step.loss_value.float(), *norms])
