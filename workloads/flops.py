"""Floating-point operations of the workloads, by formula: 2MNK for a product of (M, K) and (K, N).

Only matrix products count, as is usual where a rate is held against what tensor cores can do.
"""

from collections.abc import Sequence
from itertools import pairwise

from nsysflow.regions import Region


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
