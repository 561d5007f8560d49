"""The verdict in one line: what holds these GPUs back, and what to do next."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.report.bottleneck.bottlenecks import BOTTLENECKS, Bottleneck
from nsysflow.report.bottleneck.evidence import evidence_of
from nsysflow.report.results import Results, gpu_name
from nsysflow.units import duration, number, whole_percent

GPU_BOUND: Final = "GPU-bound"

GPU_BOUND_PCT: Final = 75
"""A GPU that computes this much is GPU-bound; below it the largest loss names the verdict."""

BUSY_PCT: Final = 90
"""A GPU that computes this much has no loss worth a remark: only its kernels can get faster."""

_HARDLY_USED: Final = 0.01
"""A GPU that works for less than this share of the busiest one's time was not meant to work: it
holds a context, or the few operations of a library that looks at all GPUs."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What holds one or more GPUs back.

    Attributes:
        gpus: which ones, e.g. `GPU 0`; empty where it is all of them.
        kind: one or two words: `host-bound`, `GPU-bound`, …
        evidence: how much the GPU computes or idles, or another figure.
        loss: what takes the most of the rest; empty where nothing is worth a remark.
        advice: what to do next, a clause.
        judged: whether the kind is a bound; not where the GPU has next to nothing to do.
    """

    gpus: str = ""
    kind: str
    evidence: str
    loss: str = ""
    advice: str
    judged: bool = True

    @property
    def bound(self) -> str | None:
        """The kind, if it is a bound."""
        return self.kind if self.judged else None

    @property
    def sentence(self) -> str:
        """Which GPUs, what and why in one line."""
        gpus = f"{self.gpus}: " if self.gpus else ""
        loss = f"; largest loss: {self.loss}" if self.loss else ""
        return f"{gpus}{self.kind} ({self.evidence}){loss}"


def verdicts(results: Results) -> tuple[Verdict, ...]:
    """One verdict for all GPUs of a kind, those with the largest loss first, and GPUs that are
    hardly used last; never empty."""
    accounting = results.table("accounting").filter(pl.col("window_ns") > 0)
    if accounting.is_empty():
        return (_no_work(results),)
    busy_ns = pl.col("window_ns") - pl.col("idle_ns")
    used = accounting.filter(busy_ns >= _HARDLY_USED * busy_ns.max())
    unused = accounting.join(used, on=["report", "device"], how="anti", maintain_order="left")
    lost_ns = pl.col("window_ns") - pl.col("compute_ns")
    groups = (
        used.with_columns(
            pl.Series("kind", [_kind(row) for row in used.iter_rows(named=True)]),
            (100 * pl.col("compute_ns") >= BUSY_PCT * pl.col("window_ns")).alias("busy"),
        )
        .sort(lost_ns, descending=True, maintain_order=True)
        .partition_by("kind", "busy", maintain_order=True, include_key=False)
    )
    alone = len(groups) == 1 and unused.is_empty()
    found = [_verdict(results, group, alone=alone) for group in groups]
    return (*found, *([] if unused.is_empty() else [_hardly_used(results, used, unused)]))


def _no_work(results: Results) -> Verdict:
    by_kineto = all(each.trace.collector == "kineto" for each in results.analyses)
    if results.origin.on_cpu:
        advice = "profile on a machine with a GPU, without --on cpu"
    elif by_kineto:
        advice = (
            "check that ProfilerActivity.CUDA is among the profiler's activities, and that the GPU"
            " is used while it runs"
        )
    else:
        advice = "check that --trace includes cuda, and that the GPU is used during the capture"
    return Verdict(
        kind="no GPU work",
        evidence="no kernel, copy or memset in this report",
        advice=advice,
        judged=False,
    )


def _hardly_used(results: Results, used: pl.DataFrame, unused: pl.DataFrame) -> Verdict:
    busy_ns = int((unused["window_ns"] - unused["idle_ns"]).sum())
    ops = int(unused["ops"].sum())
    others = used["device"].unique().to_list()
    advice = "if it should work, check that the program uses it"
    if len(others) == 1:
        advice += f"; if not, look at the other GPU alone with --device {others[0]}"
    return Verdict(
        gpus=_names(results, unused),
        kind="hardly used",
        evidence=f"{number(ops)} operation{'' if ops == 1 else 's'}, {duration(busy_ns)} of work",
        advice=advice,
        judged=False,
    )


def _names(results: Results, devices: pl.DataFrame) -> str:
    several = len(results.reports) > 1
    rows = devices.select("report", "device").rows()
    return ", ".join(gpu_name(*row, several=several) for row in rows)


def _kind(device: dict[str, Any]) -> str:
    """The kind of a device, or of several summed into one row."""
    if 100 * device["compute_ns"] >= GPU_BOUND_PCT * device["window_ns"]:
        return GPU_BOUND
    return _largest(device).kind


def _largest(device: dict[str, Any]) -> Bottleneck:
    return max(BOTTLENECKS, key=lambda each: _lost_ns(device, each))


def _lost_ns(device: dict[str, Any], bottleneck: Bottleneck) -> int:
    return sum(device[column] for column in bottleneck.columns)


def _verdict(results: Results, devices: pl.DataFrame, *, alone: bool) -> Verdict:
    """The verdict on GPUs of one kind."""
    total = devices.select(pl.col(pl.Int64).sum()).row(0, named=True)
    kind, bottleneck = _kind(total), _largest(total)
    computes = kind == GPU_BOUND or _is_exposed(total, bottleneck)
    columns = bottleneck.columns
    if not computes:  # the evidence is about idle time
        columns = tuple(each for each in columns if "exposed" not in each)
    evidence = evidence_of(results, devices, bottleneck, columns)
    column, verb = ("compute_ns", "computing") if computes else ("idle_ns", "idle")
    share = f"{whole_percent(total[column], total['window_ns'])} {verb}"
    loss = f"{evidence.what}, {whole_percent(evidence.lost_ns, total['window_ns'])}"
    advice = evidence.advice
    busy = 100 * total["compute_ns"] >= BUSY_PCT * total["window_ns"]
    if busy:
        loss, advice = "", "make the kernels faster: --table kernels"
    elif kind == GPU_BOUND:
        advice = f"first make the kernels faster (--table kernels), then {advice}"
    return Verdict(
        gpus="" if alone else _names(results, devices),
        kind=kind,
        evidence=f"{devices.height} GPUs, {share}" if devices.height > 1 else share,
        loss=loss,
        advice=advice,
    )


def _is_exposed(total: dict[str, Any], bottleneck: Bottleneck) -> bool:
    """Whether most of it is work of the GPU, and not idle time."""
    exposed_ns: int = sum(total[column] for column in bottleneck.columns if "exposed" in column)
    return 2 * exposed_ns > _lost_ns(total, bottleneck)
