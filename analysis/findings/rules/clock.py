"""`clock-drop`: steps are slower as the GPU's clock fell, or something holds it down throughout."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import kernel_finding
from nsysflow.analysis.tables.clocks import LIMITS, clock_drops, clock_means
from nsysflow.base.units import duration, number, percent

HELD_PCT: Final = 50
"""A limit that holds the clock down for less of the time is passing."""

FAULTS: Final = ("thermal", "power_brake", "hardware")
"""Limits of a machine that is not as it should be. The power cap is none: large matrix products
take a GPU there, whatever one does."""

_WHILE_IT_RUNS: Final = "see what NVML says while it runs: nvidia-smi -q -d PERFORMANCE,POWER"
_COMPARE: Final = "to compare programs, lock one clock that holds: nvidia-smi --lock-gpu-clocks MHZ"

CHANGES: Final[Mapping[str | None, tuple[str, ...]]] = {
    "power_cap": (
        "see the power limit, and whether this GPU may have more: nvidia-smi -q -d POWER",
        "spend less energy on the same result: fewer bits, fused kernels, nothing computed twice",
    ),
    "thermal": (
        "cool it: airflow, fans, the air that other devices blow into it",
        "see its temperatures and limits: nvidia-smi -q -d TEMPERATURE",
    ),
    "power_brake": ("have the server's power supplies and its power cap checked",),
    "hardware": ("have its power cable, supply and cooling checked", _WHILE_IT_RUNS),
    "sync_boost": ("GPUs of one sync boost group follow the slowest: take it out of the group",),
    "setting": ("give its clocks free: nvidia-smi --reset-gpu-clocks",),
    None: (_WHILE_IT_RUNS,),
}
"""What helps, by what keeps the clock down."""


def clock_drop(subject: JudgedReport) -> Iterator[Finding]:
    """Steps that compute longer at a lower clock; else kernels of a GPU that a fault holds down."""
    clocks = subject.tables.clocks
    if clocks.is_empty():
        return
    drops = clock_drops(clocks).sort("lost_ns", descending=True, maintain_order=True)
    means = clock_means(clocks)
    if not drops.is_empty():
        drop = drops.row(0, named=True)
        mine = (pl.col("device") == drop["device"]) & (pl.col("process") == drop["process"])
        yield _fallen(drop, means.row(by_predicate=mine, named=True))
        return
    at_fault = pl.col("limited_by").cast(pl.String).is_in(FAULTS)
    runs = pl.col("clock_pct") > 0
    held = means.filter(at_fault & (pl.col("limited_pct") >= HELD_PCT) & runs)
    if not held.is_empty():
        yield _held(subject, held.sort("clock_pct").row(0, named=True))


def _fallen(drop: Mapping[str, Any], mean: Mapping[str, Any]) -> Finding:
    """Slow steps. They lost what they took longer than fast ones, so no replay is needed."""
    fast, slow = (f"{drop[name]:.0f}" for name in ("fast_mhz", "slow_mhz"))
    steps = f"{number(drop['slow_steps'])} of {number(drop['steps'])} steps"
    lost_ns = round(drop["lost_ns"])
    return Finding(
        rule="clock-drop",
        title=f"the GPU's clock falls from {fast} to {slow} MHz in {steps}{_why(drop)}",
        change=(*CHANGES[drop["limited_by"]], _COMPARE),
        evidence=(
            f"clock {fast} → {slow} MHz: {percent(drop['lost_pct'])} of these steps' compute time,"
            f" {duration(lost_ns)} a step in the mean over all",
            *_readings(mean),
        ),
        table="clocks",
        size_ns=lost_ns,
        at_most_ns=lost_ns,
        steps=drop["slow_steps"],
        process=drop["process"],
        device=drop["device"],
        fits=True,
    )


def _held(subject: JudgedReport, mean: Mapping[str, Any]) -> Finding:
    """Kernels of a GPU whose clock is down all the time, at the highest one that was seen."""
    here = (pl.col("device") == mean["device"]) & (pl.col("class") != "comm")
    gain_ns = (pl.col("ns") * (1 - mean["clock_pct"] / 100)).round().cast(pl.Int64)
    highest = mean["sm_clock_mhz"] / mean["clock_pct"] * 100
    clocks = f"{mean['sm_clock_mhz']:.0f} of {highest:.0f} MHz"
    return kernel_finding(
        subject,
        subject.kernels.filter(here).with_columns(gain_ns.alias("gain_ns")),
        rule="clock-drop",
        title=f"{LIMITS[mean['limited_by']]} holds the GPU's clock at {clocks}",
        change=CHANGES[mean["limited_by"]],
        evidence=tuple(_readings(mean)),
        table="clocks",
    )


def _why(drop: Mapping[str, Any]) -> str:
    return f" ({LIMITS[drop['limited_by']]})" if drop["limited_by"] is not None else ""


def _readings(mean: Mapping[str, Any]) -> Iterator[str]:
    """`power cap for 82 % of the time, 690 W, 64 °C, in the mean`."""
    known = []
    if mean["limited_by"] is not None:
        known.append(f"{LIMITS[mean['limited_by']]} for {percent(mean['limited_pct'])} of the time")
    if mean["power_w"] is not None:
        known.append(f"{mean['power_w']:.0f} W")
    if mean["temperature_c"] is not None:
        known.append(f"{mean['temperature_c']:.0f} °C")
    if known:
        yield f"in the mean: {', '.join(known)}"
