"""The peak of each GPU, as its maker states it; the benchmark and the reports divide by it."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

Unit = Literal["float32", "tf32", "bf16", "fp16", "fp8"]
"""Arithmetic of matrix products. float32 tensors are multiplied in `tf32` where that is allowed, at
seven times the rate of `float32` on an H200."""

UNITS: Final[tuple[Unit, ...]] = get_args(Unit)

_GH100_SXM: Final[Mapping[Unit, float]] = {
    "float32": 66.9e12,
    "tf32": 494.7e12,
    "bf16": 989.4e12,
    "fp16": 989.4e12,
    "fp8": 1978.9e12,
}
"""H100 SXM and H200, which has the same chip with other memory: NVIDIA H100 Tensor Core GPU
Architecture (2022), table 1, dense; the H200 datasheet's 989 and 1979 with sparsity agree."""

_A100: Final[Mapping[Unit, float]] = {
    "float32": 19.5e12,
    "tf32": 156e12,
    "bf16": 312e12,
    "fp16": 312e12,
}
"""NVIDIA A100 Tensor Core GPU Architecture (2020), table 1, dense."""

PEAKS: Final[Mapping[str, Mapping[Unit, float]]] = {
    "NVIDIA H200": _GH100_SXM,
    "NVIDIA H100 80GB HBM3": _GH100_SXM,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-SXM4-40GB": _A100,
}
"""Operations per second, by the GPU's name as the driver gives it."""


def peak_flops(gpu: str, unit: Unit) -> float | None:
    """The peak of a GPU in operations per second; None if it is not in the table."""
    return PEAKS.get(gpu, {}).get(unit)


NVLINK: Final[Mapping[str, float]] = {
    "NVIDIA H200": 450e9,
    "NVIDIA H100 80GB HBM3": 450e9,
    "NVIDIA A100-SXM4-80GB": 300e9,
    "NVIDIA A100-SXM4-40GB": 300e9,
}
"""Bytes per second that a GPU sends over NVLink, one way: half of what the datasheets state (900
and 600 GB/s), by the GPU's name as the driver gives it. Switches that reduce by themselves (NVLS)
let an all-reduce come out above it."""
