"""The one-line verdict: what holds these GPUs back, and what to do next."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.report.costs import where_host_was
from nsysflow.report.layout import printable, shorten
from nsysflow.report.losses import COMM, HOST, LOSSES, Loss
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
    evidence = _Evidence(results, devices, loss)
    because = f"{evidence.because} ({whole_percent(evidence.lost_ns, total['window_ns'])})"
    window = _window(len(names), total["window_ns"])
    computing = whole_percent(total["compute_ns"], total["window_ns"])
    idle = whole_percent(total["idle_ns"], total["window_ns"])
    if kind == "GPU-bound":
        finding = f"{window[0]} computing {computing} of {window[1]}"
        advice = "the kernels themselves are what is left to speed up: --table kernels"
    elif kind == "mostly GPU-bound":
        finding = f"{window[0]} computing {computing} of {window[1]}; next comes {because}"
        advice = f"the kernels first (--table kernels); then {evidence.advice}"
    else:
        link = "the rest goes into" if loss is COMM else "mostly"
        finding = f"{window[0]} idle {idle} of {window[1]}, {link} {because}"
        advice = evidence.advice
    return Verdict(
        gpus="" if alone else ", ".join(names), kind=kind, finding=finding, advice=advice
    )


def _window(count: int, window_ns: int) -> tuple[str, str]:
    """Subject and time: `the GPU is`, `307 ms`."""
    if count == 1:
        return "the GPU is", duration(window_ns)
    return f"the {count} GPUs are", f"their {duration(window_ns)} together"


class _Evidence:
    """Where a loss lies and which call it has to do with."""

    def __init__(self, results: Results, devices: pl.DataFrame, loss: Loss) -> None:
        parts = (
            results.table("gap_summary")
            .with_columns(where_host_was(), pl.col("cause").cast(pl.String))
            .filter(pl.col("cause").is_in(loss.causes))
            .join(devices.select("report", "device"), on=["report", "device"], how="semi")
        )
        lost_ns = sum(int(devices[column].sum()) for column in loss.columns)
        place = _top(parts, "where")
        one_place = place is not None and place[1] >= _ONE_PLACE * lost_ns
        self.lost_ns = place[1] if place and one_place else lost_ns
        where = place[0] if place and one_place else None
        outside = _outside(results, devices) if where == OUTSIDE else ""
        call = _top(parts.filter(pl.col("culprit").fill_null("") != ""), "culprit")
        self.because = loss.because.format(
            call=call[0] if call else "a CUDA call", place=_place(where, outside)
        )
        self.advice = _advice(loss, where, outside)


def _top(parts: pl.DataFrame, key: str) -> tuple[str, int] | None:
    """The key with the most idle, and that idle."""
    sums = parts.group_by(key).agg(pl.col("total_ns").sum())
    rows = sums.sort("total_ns", key, descending=[True, False]).rows()
    return rows[0] if rows else None


def _outside(results: Results, devices: pl.DataFrame) -> str:
    """Whether host code outside all ranges ran between the steps: a clause, or nothing."""
    if results.step_name is None:
        return ""
    in_step = pl.col("step").is_not_null()
    by_step = (
        results.table("gaps")
        .lazy()
        .filter(pl.col("host_ns") > 0, pl.col("host_range").fill_null("") == "")
        .join(devices.lazy().select("report", "device"), on=["report", "device"], how="semi")
        .select(
            pl.col("host_ns").filter(in_step).sum().alias("in_step_ns"), pl.col("host_ns").sum()
        )
        .collect()
    )
    in_step_ns, all_ns = by_step.row(0)
    return "between the steps" if 2 * in_step_ns >= all_ns else ""


def _place(where: str | None, outside: str) -> str:
    if where is None:
        return ""
    if where == OUTSIDE:
        return " outside any range" + (f", {outside}" if outside else "")
    return f" in {shorten(printable(where), 60)}"


def _advice(loss: Loss, where: str | None, outside: str) -> str:
    if loss is HOST and where == OUTSIDE:
        spot = outside or "there"
        return f"put NVTX ranges around what runs {spot} (data loading, logging, …) to name it"
    there = "there" if where is None or where == OUTSIDE else _place(where, outside).strip()
    return loss.advice.format(there=there)
