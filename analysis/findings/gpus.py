"""What is known of a GPU: by its name, and how much of it a kernel fills."""

from collections.abc import Mapping
from operator import mul
from typing import Final

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernels import capability
from nsysflow.analysis.schema import BLOCK, blocks_of_grid

PCIE_3, PCIE_4, PCIE_5 = 15.75e9, 31.5e9, 63.0e9
"""16 lanes in one direction: 8, 16 and 32 GT/s, of which the line code leaves 128 of 130 bits."""

UNKNOWN_BYTES_PER_S: Final = 25e9
"""What pinned copies reach at least on PCIe 4 and later; an H200 copies 50 GB/s (h2d-pinned)."""

LARGE_BYTES: Final = 4 << 20
"""Smaller copies say nothing of a rate: 8 bytes take 1.4 us, 5 MB/s (metrics-each_step)."""

_LINKS: Final[Mapping[str, float]] = {
    r"\b(?:B[123]00|H(?:100|200|800|20))\b|RTX (?:PRO|50\d\d)": PCIE_5,
    r"\b(?:A(?:100|800|30|10G?|16|2|40)|L(?:4|20|40S?))\b|RTX (?:[34]0\d\d|A\d+)|\bAda\b": PCIE_4,
    r"\b(?:T4|V100|P(?:100|40|4))\b|RTX 20\d\d|Quadro RTX|TITAN|\bGTX\b": PCIE_3,
}
"""By the driver's name, as in NVIDIA's data sheets. GH200 and GB200 have another link."""


def gpu_name(subject: JudgedReport, device: int) -> str:
    """The driver's name of a GPU; empty where it is not known."""
    names = subject.tables.accounting.filter(pl.col("device") == device)["name"]
    return next(iter(names.drop_nulls()), "")  # a GPU without usable times has no row


def link_bytes_per_s(subject: JudgedReport, device: int) -> float:
    """The most that a GPU's link to the host moves in one direction: by its name, or what its own
    copies show. (POWER servers have a faster link.)"""
    name = pl.Series([gpu_name(subject, device)])
    known = (rate for pattern, rate in _LINKS.items() if name.str.contains(pattern).any())
    took_ns = pl.col("end_ns") - pl.col("start_ns")
    copies = subject.view.copies.filter(
        pl.col("device") == device,
        pl.col("direction").is_in(["HtoD", "DtoH"]),
        pl.col("bytes") >= LARGE_BYTES,
        took_ns > 0,
    )
    fastest = copies.select(1e9 * pl.col("bytes") / took_ns).to_series().max()
    seen = fastest if isinstance(fastest, float) else 0.0
    return max(next(known, UNKNOWN_BYTES_PER_S), seen)


THREADS_OF_SM: Final[Mapping[int, int]] = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536}
MOST_THREADS: Final = 2048
"""The threads that an SM holds, by compute capability: CUDA's programming guide. All others hold
2,048."""

_NO_KERNELS: Final = pl.Series(dtype=pl.Int64)


def threads_held(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """The share of the threads that its GPU holds at once which each kernel has, 1 or more where
    they are all; null where its grid, its threads or the GPU's SMs are not known."""
    gpus = subject.tables.accounting[["device", "name"]].unique("device").rows()
    known = {device: capability(gpu or "", _NO_KERNELS) for device, gpu in gpus}
    most = {device: THREADS_OF_SM.get(own or 0, MOST_THREADS) for device, own in known.items()}
    of_sm = kernels["device"].replace_strict(most, default=MOST_THREADS, return_dtype=pl.Int64)
    threads = subject.grids.select(pl.all().gather(kernels["detail"]))
    count = pl.reduce(mul, [pl.col(axis).cast(pl.Int64) for axis in BLOCK])
    return (waves(subject, kernels) * threads.select(count).to_series() / of_sm).alias("held")


def waves(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """Blocks per SM of each kernel; null where its grid or the GPU's SMs are not known."""
    grid = subject.grids.select(pl.all().gather(kernels["detail"]))
    counts = subject.view.trace.devices[["device", "sm_count"]].drop_nulls().unique("device").rows()
    sms = kernels["device"].replace_strict(dict(counts), default=None, return_dtype=pl.Int64)
    return grid.select(blocks_of_grid() / sms).to_series()
