"""The peaks of each GPU, its memory and links, as its maker states them. The benchmark and the
reports divide by them.

On 2026-11-27 they were compared with what others quote of these sheets; the sheets themselves could
not be opened then. *Quoted* is what such a quotation states too, *not verified* is the rest.
"""

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
Architecture (2022), table 1, dense; the H200 datasheet's 989 and 1979 with sparsity agree. All
quoted."""

_H100_PCIE: Final[Mapping[Unit, float]] = {
    "float32": 51.2e12,
    "tf32": 378e12,
    "bf16": 756e12,
    "fp16": 756e12,
    "fp8": 1_513e12,
}
"""The same table, H100 PCIe. Quoted, float32 as 51."""

_H100_NVL: Final[Mapping[Unit, float]] = {
    "float32": 60e12,
    "tf32": 417.5e12,
    "bf16": 835.5e12,
    "fp16": 835.5e12,
    "fp8": 1_670.5e12,
}
"""NVIDIA H100 datasheet (2024), the NVL column: half of its rates with sparsity. All quoted."""

_A100: Final[Mapping[Unit, float]] = {
    "float32": 19.5e12,
    "tf32": 156e12,
    "bf16": 312e12,
    "fp16": 312e12,
}
"""NVIDIA A100 Tensor Core GPU Architecture (2020), table 1, dense; SXM and PCIe have the same.
bf16 is quoted, the others are not verified."""

_B200: Final[Mapping[Unit, float]] = {
    "float32": 75e12,
    "tf32": 1_125e12,
    "bf16": 2_250e12,
    "fp16": 2_250e12,
    "fp8": 4_500e12,
}
"""B200 and B300: NVIDIA HGX platform page (2025), an eighth of 600 teraFLOPS (FP32), a sixteenth
of 18 (TF32), 36 (FP16) and 72 petaFLOPS (FP8), as sparsity doubles them. Quoted by a copy of that
page. The technical brief of 2024 has 80 for FP32 and 2,200 for TF32 with sparsity."""

_GB200: Final[Mapping[Unit, float]] = {
    "tf32": 1_250e12,
    "bf16": 2_500e12,
    "fp16": 2_500e12,
    "fp8": 5_000e12,
}
"""NVIDIA Blackwell Architecture Technical Brief (2024), one of the two GPUs of a GB200 superchip,
dense. bf16 and fp8 are quoted, tf32 is not verified."""

_L40S: Final[Mapping[Unit, float]] = {
    "float32": 91.6e12,
    "tf32": 183e12,
    "bf16": 362.05e12,
    "fp16": 362.05e12,
    "fp8": 733e12,
}
"""NVIDIA L40S datasheet (2023), dense. Not verified."""

_A10: Final[Mapping[Unit, float]] = {
    "float32": 31.2e12,
    "tf32": 62.5e12,
    "bf16": 125e12,
    "fp16": 125e12,
}
"""NVIDIA A10 datasheet (2021), dense. All quoted."""

_RTX_4090: Final[Mapping[Unit, float]] = {
    "float32": 82.6e12,
    "tf32": 82.6e12,
    "bf16": 165.2e12,
    "fp16": 165.2e12,
    "fp8": 330.3e12,
}
"""NVIDIA Ada GPU Architecture (2022), appendix A, dense, sums in float32 as PyTorch takes them.
float32 is quoted, and 165.6 was measured for bf16; the others are not verified."""

_RTX_5090: Final[Mapping[Unit, float]] = {
    "float32": 104.8e12,
    "tf32": 104.8e12,
    "bf16": 209.5e12,
    "fp16": 209.5e12,
    "fp8": 419e12,
}
"""NVIDIA RTX Blackwell GPU Architecture (2025), appendix A, dense, sums in float32. bf16 and fp8
are quoted, the others are not verified."""

_RTX_PRO_6000: Final[Mapping[Unit, float]] = {
    "float32": 125e12,
    "tf32": 251.9e12,
    "bf16": 503.8e12,
    "fp16": 503.8e12,
    "fp8": 1_007.6e12,
}
"""NVIDIA RTX Blackwell PRO GPU Architecture (2025), the Workstation Edition, dense. float32 is
quoted, the others are not verified."""

_CDNA3: Final[Mapping[Unit, float]] = {
    "float32": 163.4e12,
    "tf32": 653.7e12,
    "bf16": 1_307.4e12,
    "fp16": 1_307.4e12,
    "fp8": 2_614.9e12,
}
"""AMD Instinct MI300X data sheet (2023), dense; the MI325X has the same chip with other memory, and
its data sheet (2024) the same numbers. float32, bf16 and fp8 are quoted, tf32 is not verified.
"""

_MI355X: Final[Mapping[Unit, float]] = {
    "float32": 157.3e12,
    "bf16": 2_516.6e12,
    "fp16": 2_516.6e12,
    "fp8": 5_033.2e12,
}
"""AMD Instinct MI355X data sheet (2025), dense; CDNA 4 has no TF32. bf16 is quoted, the others are
not verified."""

_MI250X_DIE: Final[Mapping[Unit, float]] = {
    "float32": 47.85e12,
    "bf16": 191.5e12,
    "fp16": 191.5e12,
}
"""AMD Instinct MI250X data sheet (2021): half of 95.7 and 383, as each of its two dies is a GPU.
Not verified."""

PEAKS: Final[Mapping[str, Mapping[Unit, float]]] = {
    "NVIDIA H200": _GH100_SXM,
    "NVIDIA H100 80GB HBM3": _GH100_SXM,
    "NVIDIA H100 PCIe": _H100_PCIE,
    "NVIDIA H100 NVL": _H100_NVL,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-SXM4-40GB": _A100,
    "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA A100-PCIE-40GB": _A100,
    "NVIDIA B200": _B200,
    "NVIDIA GB200": _GB200,
    "NVIDIA B300 SXM6 AC": _B200,
    "NVIDIA L40S": _L40S,
    "NVIDIA A10": _A10,
    "NVIDIA GeForce RTX 4090": _RTX_4090,
    "NVIDIA GeForce RTX 5090": _RTX_5090,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": _RTX_PRO_6000,
    "AMD Instinct MI300X": _CDNA3,
    "AMD Instinct MI300X VF": _CDNA3,
    "AMD Instinct MI325X": _CDNA3,
    "AMD Instinct MI355X": _MI355X,
    "AMD Instinct MI250X": _MI250X_DIE,
}
"""Operations per second, by the GPU's name as the driver gives it."""


def peak_flops(gpu: str, unit: Unit) -> float | None:
    """The peak of a GPU in operations per second; None if it is not in the table."""
    return PEAKS.get(gpu, {}).get(unit)


_AMPERE: Final[Mapping[Unit, int]] = {"float32": 128, "tf32": 1_024, "bf16": 2_048, "fp16": 2_048}
_HOPPER: Final[Mapping[Unit, int]] = {
    "float32": 256,
    "tf32": 2_048,
    "bf16": 4_096,
    "fp16": 4_096,
    "fp8": 8_192,
}
_BLACKWELL: Final[Mapping[Unit, int]] = {
    "float32": 256,
    "tf32": 4_096,
    "bf16": 8_192,
    "fp16": 8_192,
    "fp8": 16_384,
}
_WORKSTATION: Final[Mapping[Unit, int]] = {
    "float32": 256,
    "tf32": 512,
    "bf16": 1_024,
    "fp16": 1_024,
    "fp8": 2_048,
}
_GEFORCE: Final[Mapping[Unit, int]] = {
    "float32": 256,
    "tf32": 256,
    "bf16": 512,
    "fp16": 512,
    "fp8": 1_024,
}

PER_CYCLE: Final[Mapping[str, Mapping[Unit, int]]] = {
    "NVIDIA H200": _HOPPER,
    "NVIDIA H100 80GB HBM3": _HOPPER,
    "NVIDIA H100 PCIe": _HOPPER,
    "NVIDIA H100 NVL": _HOPPER,
    "NVIDIA A100-SXM4-80GB": _AMPERE,
    "NVIDIA A100-SXM4-40GB": _AMPERE,
    "NVIDIA A100 80GB PCIe": _AMPERE,
    "NVIDIA A100-PCIE-40GB": _AMPERE,
    "NVIDIA B200": _BLACKWELL,
    "NVIDIA GB200": _BLACKWELL,
    "NVIDIA B300 SXM6 AC": _BLACKWELL,
    "NVIDIA L40S": _WORKSTATION,
    "NVIDIA A10": _WORKSTATION,
    "NVIDIA GeForce RTX 4090": _GEFORCE,
    "NVIDIA GeForce RTX 5090": _GEFORCE,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": _WORKSTATION,
}
"""The FLOPs of a multiprocessor in a cycle, dense, of the GPUs whose clock is sampled. With the
number of multiprocessors they give the peaks above at the clocks that the makers take: an H100
SXM's 132 at 1,830 MHz, and 1,980 MHz for float32."""

NVLINK: Final[Mapping[str, float]] = {
    "NVIDIA H200": 450e9,
    "NVIDIA H100 80GB HBM3": 450e9,
    "NVIDIA H100 NVL": 300e9,
    "NVIDIA A100-SXM4-80GB": 300e9,
    "NVIDIA A100-SXM4-40GB": 300e9,
    "NVIDIA B200": 900e9,
    "NVIDIA GB200": 900e9,
    "NVIDIA B300 SXM6 AC": 900e9,
}
"""Bytes per second that a GPU sends over NVLink, one way: half of what the datasheets state (900,
600 and 1800 GB/s), by the GPU's name as the driver gives it. Switches that reduce by themselves
(NVLS) let an all-reduce come out above it."""

MEMORY: Final[Mapping[str, float]] = {
    "NVIDIA B300 SXM6 AC": 8e12,
    "NVIDIA GB200": 8e12,
    "NVIDIA B200": 8e12,
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA H100 PCIe": 2e12,
    "NVIDIA H100 NVL": 3.938e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
    "NVIDIA A100 80GB PCIe": 1.935e12,
    "NVIDIA A100-PCIE-40GB": 1.555e12,
    "Tesla V100-SXM2-32GB": 900e9,
    "Tesla V100-SXM2-16GB": 900e9,
    "NVIDIA L40S": 864e9,
    "NVIDIA A10": 600e9,
    "NVIDIA GeForce RTX 4090": 1.008e12,
    "NVIDIA GeForce RTX 5090": 1.792e12,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": 1.792e12,
    "AMD Instinct MI210": 1.638e12,
    "AMD Instinct MI250X": 1.638e12,
    "AMD Instinct MI300X": 5.3e12,
    "AMD Instinct MI300X VF": 5.3e12,
    "AMD Instinct MI325X": 6e12,
    "AMD Instinct MI355X": 8e12,
}
"""Bytes per second of each GPU's memory, read and written together, for traces that do not say it:
from the data sheets (B200: an eighth of the DGX B200's 64 TB/s; MI250X: one of its two dies). Those
of V100, MI210 and MI250X are not verified, the others are quoted."""
