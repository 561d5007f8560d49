"""Floating-point operations of a training step of the policy: see `flops` for what counts."""

from nsysflow.kernels.muon import muon_flops
from nsysflow.regions import Region
from nsysflow.workloads.flops import product
from nsysflow.workloads.phases import Own
from nsysflow.workloads.policy import Sizes


def policy_flops(sizes: Sizes) -> dict[str, int]:
    """Of each phase that has products."""
    rows, hidden = sizes.rows, sizes.hidden
    encoder = product(rows, hidden, sizes.obs)
    rnn = sizes.layers * product(rows, 3 * hidden, hidden)
    decoder = product(rows, sizes.actions + 1, hidden)
    return {
        Own.ENCODER: encoder,
        Own.RNN: rnn,
        Own.DECODER: decoder,
        # a gradient for each weight, and one for each input but the observations
        Region.BACKWARD: 2 * (encoder + rnn + decoder) - encoder,
        Region.OPTIMIZER: sum(muon_flops(*sides) for sides in sizes.weights),
    }
