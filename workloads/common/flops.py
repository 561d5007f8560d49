"""Floating-point operations by formula: 2MNK for the product of (M, K) and (K, N).

Only matrix products count, as is usual when a rate is compared with the peak of tensor cores.
"""

from collections.abc import Sequence
from itertools import pairwise

from nsysflow.runtime.regions import Region


def product(m: int, n: int, k: int) -> int:
    """Operations of the product of (m, k) and (k, n)."""
    return 2 * m * n * k


def perceptron_flops(rows: int, widths: Sequence[int]) -> dict[str, int]:
    """Operations of a training step of linear layers, by phase.

    Backward computes a gradient for each weight and for each input except the first.

    Args:
        rows: rows of the batch.
        widths: widths of the input, between the layers, and of the output.
    """
    layers = [product(rows, fan_out, fan_in) for fan_in, fan_out in pairwise(widths)]
    return {Region.FORWARD: sum(layers), Region.BACKWARD: 2 * sum(layers) - layers[0]}
