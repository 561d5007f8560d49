"""The one-line verdict: what holds these GPUs back, and what to do next."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.report.evidence import Evidence, evidence_of
from nsysflow.report.losses import LOSSES, Loss
from nsysflow.report.results import Results, gpu_name
from nsysflow.report.units import duration, number, whole_percent

BUSY_PCT: Final = 90
"""A GPU that computes this much is well fed: only its kernels can get faster."""

MOSTLY_BUSY_PCT: Final = 75
"""Below this the largest loss names the verdict; between the two it is a remark."""

_HARDLY_USED: Final = 0.01
"""A GPU that works for less than this share of what the busiest one does was not meant to: it holds
a context, or the few operations of a library that looks at all of them."""


_KINETO: Final = "torch.profiler"
"""How the source of a report begins that nsys did not write."""


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


def verdicts(results: Results) -> list[Verdict]:
    """One verdict for all GPUs that share one, dearest first, and those hardly used last; never
    empty."""
    accounting = results.table("accounting").filter(pl.col("window_ns") > 0)
    if accounting.is_empty():
        return [_no_work(results)]
    busy_ns = pl.col("window_ns") - pl.col("idle_ns")
    used = accounting.filter(busy_ns >= _HARDLY_USED * busy_ns.max())
    unused = accounting.join(used, on=["report", "device"], how="anti", maintain_order="left")
    lost_ns = pl.col("window_ns") - pl.col("compute_ns")
    kinds = used.with_columns(
        pl.Series("kind", [_kind(row) for row in used.iter_rows(named=True)])
    ).sort(lost_ns, descending=True, maintain_order=True)
    groups = kinds.partition_by("kind", maintain_order=True, include_key=False)
    alone = len(groups) == 1 and unused.is_empty()
    found = [_verdict(results, group, alone=alone) for group in groups]
    return found if unused.is_empty() else [*found, _hardly_used(results, used, unused)]


def _no_work(results: Results) -> Verdict:
    by_kineto = all(each.trace.source.startswith(_KINETO) for each in results.analyses)
    if results.on_cpu:
        advice = "profile where a GPU is, without --on cpu"
    elif by_kineto:
        advice = (
            "was ProfilerActivity.CUDA among the profiler's activities, and was the GPU used while"
            " it ran?"
        )
    else:
        advice = "was it captured with --trace cuda, and was the GPU used while the capture was on?"
    return Verdict(
        kind="no GPU work",
        finding="no kernel, copy or memset in this report",
        advice=advice,
    )


def _hardly_used(results: Results, used: pl.DataFrame, unused: pl.DataFrame) -> Verdict:
    busy_ns = int((unused["window_ns"] - unused["idle_ns"]).sum())
    ops = int(unused["ops"].sum())
    left = used["device"].unique().to_list()
    advice = "if it was to work, see that it is given some"
    if len(left) == 1:
        advice += f"; if not, look at the other alone: --device {left[0]}"
    return Verdict(
        gpus=_names(results, unused),
        kind="hardly used",
        finding=f"{number(ops)} operation{'' if ops == 1 else 's'}, {duration(busy_ns)} of work",
        advice=advice,
    )


def _names(results: Results, devices: pl.DataFrame) -> str:
    several = len(results.reports) > 1
    rows = devices.select("report", "device").rows()
    return ", ".join(gpu_name(*row, several=several) for row in rows)


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
    kind, loss = _kind(total), _largest(total)
    columns = loss.columns
    if kind == loss.kind and not _is_exposed(total, loss):
        columns = tuple(each for each in columns if "exposed" not in each)  # it is about idle time
    evidence = evidence_of(results, devices, loss, columns)
    advice = evidence.advice
    if kind == "GPU-bound":
        advice = "the kernels themselves are what is left to speed up: --table kernels"
    elif kind == "mostly GPU-bound":
        advice = f"the kernels first (--table kernels); then {advice}"
    return Verdict(
        gpus="" if alone else _names(results, devices),
        kind=kind,
        finding=_finding(kind, loss, evidence, total, devices.height),
        advice=advice,
    )


def _finding(kind: str, loss: Loss, evidence: Evidence, total: dict[str, Any], gpus: int) -> str:
    window_ns = total["window_ns"]
    window = duration(window_ns) if gpus == 1 else f"their {duration(window_ns)} together"
    who = "the GPU is" if gpus == 1 else f"the {gpus} GPUs are"
    computing = f"{who} computing {whole_percent(total['compute_ns'], window_ns)} of {window}"
    because = f"{evidence.because} ({whole_percent(evidence.lost_ns, window_ns)})"
    if kind == "GPU-bound":
        return computing
    if kind == "mostly GPU-bound":
        return f"{computing}; next comes {because}"
    if _is_exposed(total, loss):
        return f"{computing}; the rest is above all {because}"
    idle = whole_percent(total["idle_ns"], window_ns)
    how_much = _how_much(evidence.lost_ns, total["idle_ns"])
    return f"{who} idle {idle} of {window}, {how_much} {because}"


def _is_exposed(total: dict[str, Any], loss: Loss) -> bool:
    """Whether a loss is above all work of the GPU, and not idle time."""
    exposed_ns: int = sum(total[column] for column in loss.columns if "exposed" in column)
    return 2 * exposed_ns > _lost_ns(total, loss)


def _how_much(part_ns: int, whole_ns: int) -> str:
    """`mostly`, where it is."""
    if 20 * part_ns >= 11 * whole_ns:
        return "mostly"
    return "half of it" if 20 * part_ns >= 9 * whole_ns else "above all"
