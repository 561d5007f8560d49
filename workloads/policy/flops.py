"""Floating-point operations of a training step of the policy, by formula."""

from nsysflow.kernels.muon import muon_flops
from nsysflow.runtime.regions import Region
from nsysflow.workloads.common.phases import WorkloadRegion
from nsysflow.workloads.common.training import product
from nsysflow.workloads.policy.model import Sizes


def policy_flops(sizes: Sizes) -> dict[str, int]:
    """Operations of each phase that has matrix products."""
    rows, hidden = sizes.rows, sizes.hidden
    encoder = product(rows, hidden, sizes.obs)
    rnn = sizes.layers * product(rows, 3 * hidden, hidden)
    decoder = product(rows, sizes.actions + 1, hidden)
    return {
        WorkloadRegion.ENCODER: encoder,
        WorkloadRegion.RNN: rnn,
        WorkloadRegion.DECODER: decoder,
        # one gradient per weight, and one per input except the observations
        Region.BACKWARD: 2 * (encoder + rnn + decoder) - encoder,
        Region.OPTIMIZER: sum(muon_flops(*sides) for sides in sizes.weights),
    }
