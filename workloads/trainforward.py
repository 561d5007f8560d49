"""The policy forward, its loss, and backward: no weight is changed."""

import torch
from torch import Tensor

from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.policy import Sizes
from nsysflow.workloads.policy_comparing import PolicyStep
from nsysflow.workloads.policy_steps import forward_phases, policy_work

Options = Sizes


def trainforward(config: Config[Sizes]) -> Work:
    """Loss and gradients of one minibatch, again and again."""
    return policy_work(config, forward_phases, _loss_and_norms)


def _loss_and_norms(step: PolicyStep) -> Tensor:
    """The loss, and the norm of each gradient."""
    norms = [gradient.float().norm() for gradient in step.gradients]
    return torch.stack([step.loss_value.float(), *norms])
