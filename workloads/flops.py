"""Floating-point operations of the workloads, by formula: 2MNK for a product of (M, K) and (K, N).

Only matrix products count, as is usual where a rate is held against what tensor cores can do.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from nsysflow.regions import Region
from nsysflow.workloads.phases import Own

NEWTON_SCHULZ_STEPS: Final = 5


def product(m: int, n: int, k: int) -> int:
    """Of (m, k) and (k, n)."""
    return 2 * m * n * k


def perceptron_flops(rows: int, widths: Sequence[int]) -> dict[str, int]:
    """Of a training step of linear layers, by phase: forward, and in backward a gradient for each
    weight and one for each input but the first.

    Args:
        rows: of the batch.
        widths: of the input, between the layers, and of the output.
    """
    layers = [product(rows, fan_out, fan_in) for fan_in, fan_out in pairwise(widths)]
    return {Region.FORWARD: sum(layers), Region.BACKWARD: 2 * sum(layers) - layers[0]}


def policy_flops(*, rows: int, obs: int, hidden: int, actions: int, layers: int) -> dict[str, int]:
    """Of a training step of the policy, by phase; phases without products are left out.

    Args:
        rows: steps of all segments in the minibatch, N.
        obs: width of an observation, D.
        hidden: width of the layers, H.
        actions: to choose from, A.
        layers: of MinGRU.
    """
    encoder = product(rows, hidden, obs)
    rnn = layers * product(rows, 3 * hidden, hidden)
    decoder = product(rows, actions + 1, hidden)
    matrices = [(hidden, obs), *[(3 * hidden, hidden)] * layers, (actions + 1, hidden)]
    return {
        Own.ENCODER: encoder,
        Own.RNN: rnn,
        Own.DECODER: decoder,
        # a gradient for each weight, and one for each input but the observations
        Region.BACKWARD: 2 * (encoder + rnn + decoder) - encoder,
        Region.OPTIMIZER: sum(muon_flops(*sides) for sides in matrices),
    }


def muon_flops(rows: int, cols: int) -> int:
    """Of Muon on one matrix: X Xᵀ, G G and G X, five times."""
    short, long = min(rows, cols), max(rows, cols)
    step = 2 * product(short, short, long) + product(short, short, short)
    return NEWTON_SCHULZ_STEPS * step
