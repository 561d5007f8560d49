"""The one-line verdict: what holds these GPUs back, and what to do next."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import polars as pl

from nsysflow.report.costs import idle_parts, line_at
from nsysflow.report.layout import printable, shorten
from nsysflow.report.losses import (
    COMMUNICATION,
    GRAPHED_ADVICE,
    HOST,
    LAUNCH,
    LOSSES,
    SCATTERED_ADVICE,
    WAITING,
    Loss,
)
from nsysflow.report.results import OUTSIDE, Results
from nsysflow.report.units import duration, whole_percent

BUSY_PCT: Final = 90
"""A GPU that computes this much is well fed: only its kernels can get faster."""

MOSTLY_BUSY_PCT: Final = 75
"""Below this the largest loss names the verdict; between the two it is a remark."""

_ONE_PLACE: Final = 0.5
"""A place that holds this share of a loss is named."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What holds one or more GPUs back.

    Attributes:
        gpus: whom it speaks of, e.g. `GPU 0`; empty when that is all there are.
        kind: one or two words: `host-bound`, `GPU-bound`, …
        finding: the evidence, a clause.
        advice: what to do next, a clause.
    """

    gpus: str = ""
    kind: str
    finding: str
    advice: str

    @property
    def sentence(self) -> str:
        """Whom, what and why in one line."""
        gpus = f"{self.gpus}: " if self.gpus else ""
        return f"{gpus}{self.kind}: {self.finding}"


NO_WORK: Final = Verdict(
    kind="no GPU work",
    finding="no kernel, copy or memset in this report",
    advice="was it captured with --trace cuda, and was the GPU used while the capture was on?",
)


def verdicts(results: Results) -> list[Verdict]:
    """One verdict for all GPUs that share one, dearest first; never empty."""
    accounting = results.table("accounting").filter(pl.col("window_ns") > 0)
    if accounting.is_empty():
        return [NO_WORK]
    lost_ns = pl.col("window_ns") - pl.col("compute_ns")
    kinds = accounting.with_columns(
        pl.Series("kind", [_kind(row) for row in accounting.iter_rows(named=True)])
    ).sort(lost_ns, descending=True, maintain_order=True)
    groups = kinds.partition_by("kind", maintain_order=True, include_key=False)
    return [_verdict(results, group, alone=len(groups) == 1) for group in groups]


def gpu_name(report: str, device: int, *, several: bool) -> str:
    """How the reports call a GPU: by its index, and by its report where there are several."""
    return f"{report} GPU {device}" if several else f"GPU {device}"


def _kind(device: dict[str, Any]) -> str:
    """The class of a device, or of several summed into one row."""
    if 100 * device["compute_ns"] >= BUSY_PCT * device["window_ns"]:
        return "GPU-bound"
    if 100 * device["compute_ns"] >= MOSTLY_BUSY_PCT * device["window_ns"]:
        return "mostly GPU-bound"
    return _largest(device).kind


def _largest(device: dict[str, Any]) -> Loss:
    return max(LOSSES, key=lambda loss: _lost_ns(device, loss))


def _lost_ns(device: dict[str, Any], loss: Loss) -> int:
    return sum(device[column] for column in loss.columns)


def _verdict(results: Results, devices: pl.DataFrame, *, alone: bool) -> Verdict:
    total = devices.select(pl.col(pl.Int64).sum()).row(0, named=True)
    several = len(results.reports) > 1
    names = [gpu_name(*row, several=several) for row in devices.select("report", "device").rows()]
    kind, loss = _kind(total), _largest(total)
    evidence = _evidence(results, devices, loss)
    advice = evidence.advice
    if kind == "GPU-bound":
        advice = "the kernels themselves are what is left to speed up: --table kernels"
    elif kind == "mostly GPU-bound":
        advice = f"the kernels first (--table kernels); then {advice}"
    return Verdict(
        gpus="" if alone else ", ".join(names),
        kind=kind,
        finding=_finding(kind, loss, evidence, total, len(names)),
        advice=advice,
    )


def _finding(kind: str, loss: Loss, evidence: "_Evidence", total: dict[str, Any], gpus: int) -> str:
    window_ns = total["window_ns"]
    window = duration(window_ns) if gpus == 1 else f"their {duration(window_ns)} together"
    who = "the GPU is" if gpus == 1 else f"the {gpus} GPUs are"
    computing = f"{who} computing {whole_percent(total['compute_ns'], window_ns)} of {window}"
    because = f"{evidence.because} ({whole_percent(evidence.lost_ns, window_ns)})"
    if kind == "GPU-bound":
        return computing
    if kind == "mostly GPU-bound":
        return f"{computing}; next comes {because}"
    exposed_ns = sum(total[column] for column in loss.columns if "exposed" in column)
    if 2 * exposed_ns > _lost_ns(total, loss):
        return f"{computing}; the rest is above all {because}"
    idle = whole_percent(total["idle_ns"], window_ns)
    how_much = _how_much(evidence.lost_ns, total["idle_ns"])
    return f"{who} idle {idle} of {window}, {how_much} {because}"


def _how_much(part_ns: int, whole_ns: int) -> str:
    """`mostly`, where it is."""
    if 20 * part_ns >= 11 * whole_ns:
        return "mostly"
    return "half of it" if 20 * part_ns >= 9 * whole_ns else "above all"


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """Where a loss lies, how large it is there, and what to do about it."""

    lost_ns: int
    because: str
    advice: str


def _evidence(results: Results, devices: pl.DataFrame, loss: Loss) -> _Evidence:
    gpus = devices.select("report", "device")
    if loss is COMMUNICATION and (late := _waited_for(results, devices)):
        return _Evidence(
            lost_ns=int(devices["comm_exposed_ns"].sum()),
            because=WAITING.because.format(rank=late),
            advice=WAITING.advice.format(rank=late),
        )
    idle = idle_parts(results).filter(pl.col("cause").is_in(loss.causes))
    calls = idle.filter(pl.col("device").is_null()).join(gpus, on="report", how="semi")
    parts = pl.concat([idle.join(gpus, on=["report", "device"], how="semi"), calls])
    lost_ns = sum(int(devices[column].sum()) for column in loss.columns)
    where, there_ns = _dearest(parts, "where")
    call, _ = _dearest(parts.filter(pl.col("culprit").fill_null("") != ""), "culprit")
    if there_ns < _ONE_PLACE * lost_ns:
        where = ""
    outside = _outside(results, devices) if where == OUTSIDE and loss is HOST else _Outside.UNKNOWN
    place = _place(where, outside)
    there = place if where not in ("", OUTSIDE) else "there"
    if where and (line := _line(parts.filter(pl.col("where") == where), loss)):
        there = line if there == "there" else f"{there}, {line}"
    advice = loss.advice
    if loss is HOST and where == OUTSIDE:
        advice = _OUTSIDE_ADVICE[outside]
    elif loss is HOST and not where:
        advice = SCATTERED_ADVICE
    elif loss is LAUNCH and _is_graphed(results, where):
        advice = GRAPHED_ADVICE
    return _Evidence(
        lost_ns=there_ns if where else lost_ns,
        because=loss.because.format(call=call or "a CUDA call", place=f" {place}" if place else ""),
        advice=advice.format(there=there),
    )


def _waited_for(results: Results, devices: pl.DataFrame) -> str:
    """The rank that comes latest, where most of what the collectives take on these GPUs is waiting
    for others; empty otherwise."""
    ranks = results.table("ranks").drop_nulls("late_ns")
    here = ranks.join(devices.select("report", "device"), on=["report", "device"], how="semi")
    if 2 * int(here["waited_ns"].sum()) <= int(devices["comm_ns"].sum()):
        return ""
    latest = ranks.sort("late_ns", descending=True).select("report", "device").row(0)
    return gpu_name(*latest, several=True)


def _is_graphed(results: Results, where: str) -> bool:
    """Whether what is launched there brings several kernels each, as CUDA graphs do."""
    inside = pl.col("path") == where if where not in ("", OUTSIDE) else pl.col("depth") == 1
    phases = results.table("phases").filter(inside)
    return int(phases["kernels"].sum()) > 2 * int(phases["launches"].sum())


def _dearest(parts: pl.DataFrame, key: str) -> tuple[str, int]:
    """The key with the most idle, and that idle; empty and 0 where there is none."""
    sums = parts.group_by(key).agg(pl.col("total_ns").sum())
    rows = sums.sort("total_ns", key, descending=[True, False]).rows()
    return rows[0] if rows else ("", 0)


def _line(parts: pl.DataFrame, loss: Loss) -> str:
    """`at train.py:42 in step` where most of it happened at one line, `before train.py:42` of host
    code; empty otherwise."""
    line, ns = _dearest(parts.drop_nulls("source"), "source")
    if not line or ns < _ONE_PLACE * int(parts["total_ns"].sum()):
        return ""
    shown = printable(line)
    return line_at("host", "", shown) if loss is HOST else f"at {shown}"


class _Outside(Enum):
    """When host code outside all ranges ran."""

    BETWEEN_STEPS = "outside any range, between the steps"
    NOT_IN_STEPS = "outside any range, before or after the steps"
    UNKNOWN = "outside any range"


_OUTSIDE_ADVICE: Final = {
    _Outside.BETWEEN_STEPS: (
        "put NVTX ranges around what runs between the steps (data loading, logging, …) to name it"
    ),
    _Outside.NOT_IN_STEPS: (
        "look at the steps alone (--steps 0:), or put NVTX ranges around the rest to name it"
    ),
    _Outside.UNKNOWN: (
        "put NVTX ranges around the parts of the program (data, forward, logging, …) to name it"
    ),
}


def _outside(results: Results, devices: pl.DataFrame) -> _Outside:
    if results.step_name is None:
        return _Outside.UNKNOWN
    key = ["report", "device"]
    steps = results.table("steps").group_by(key).agg(pl.len().alias("steps"))
    in_step_ns, all_ns = (
        results.table("gap_summary")
        .filter(pl.col("cause") == "host", pl.col("host_range") == OUTSIDE)
        .join(devices.select(key), on=key, how="semi")
        .join(steps, on=key)
        .select((pl.col("per_step_ns") * pl.col("steps")).sum(), pl.col("total_ns").sum())
        .row(0)
    )
    return _Outside.BETWEEN_STEPS if 2 * in_step_ns >= all_ns else _Outside.NOT_IN_STEPS


def _place(where: str, outside: _Outside) -> str:
    if where == OUTSIDE:
        return outside.value
    return f"in {shorten(printable(where), 60)}" if where else ""
