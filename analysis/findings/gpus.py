"""What the name of a GPU tells."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport

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
