"""What the GPUs of a report can do, as far as their names and their kernels tell."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from nsysflow.base.peaks import PEAKS, Unit

_CAPABILITIES: Final[Mapping[str, int]] = {
    r"\bG?B[123]00\b": 100,
    r"\bG?H(?:100|200|800|20)\b": 90,
    r"RTX (?:PRO|50\d\d)": 120,
    r"\bL(?:4|20|40S?)\b|RTX 40\d\d|\bAda\b": 89,
    r"\bA(?:10G?|16|2|40)\b|RTX 30\d\d|RTX A\d+": 86,
    r"\bA(?:100|800|30)\b": 80,
    r"\bT4\b|RTX 20\d\d|Quadro RTX|TITAN RTX": 75,
    r"\bV100|TITAN V": 70,
}
"""Compute capability by the driver's name of a GPU: developer.nvidia.com/cuda-gpus."""


def capability(gpu: str, generations: pl.Series) -> int | None:
    """The compute capability (90 for 9.0) of a GPU.

    Args:
        gpu: the driver's name; may be empty.
        generations: those that its kernels name, which tell where the name does not.
    """
    names = pl.Series([gpu])
    for pattern, known in _CAPABILITIES.items():
        if names.str.contains(pattern).any():
            return known
    newest = generations.max()
    return newest if isinstance(newest, int) else None


def peak_ratio(gpu: str, slow: Unit, fast: Unit) -> float | None:
    """How many times the peak of one arithmetic is another's; None for a GPU without peaks."""
    peaks = PEAKS.get(gpu, {})
    return peaks[fast] / peaks[slow] if slow in peaks and fast in peaks else None
