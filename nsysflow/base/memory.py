"""The bandwidth of each GPU's memory, as its maker states it, for traces that do not say it."""

from collections.abc import Mapping
from typing import Final

MEMORY: Final[Mapping[str, float]] = {
    "NVIDIA B300 SXM6 AC": 8e12,
    "NVIDIA GB200": 8e12,
    "NVIDIA B200": 8e12,
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
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
"""Bytes per second, read and written together, by the GPU's name as the driver gives it; from the
data sheets (B200: an eighth of the DGX B200's 64 TB/s; MI250X: one of its two dies)."""
