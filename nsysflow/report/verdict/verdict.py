"""The verdict in one line: what holds these GPUs back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.waited.bound import bound_of
from nsysflow.report.fields import Row
from nsysflow.report.results import Results, gpu_name
from nsysflow.units import duration, number, whole_percent

HARDLY_USED: Final = 0.01
"""A GPU that works for less than this share of the busiest one's time was not meant to work: it
holds a context, or the few operations of a library that looks at all GPUs."""

WORTH_PCT: Final = 1
"""A loss below this share is no remark worth."""

BOTH: Final = 0.2
"""Host code and launch overhead are named together where the smaller one has this share of the
larger: between two launches they are one thing, Python."""

WORDS: Final = {
    "compute": "compute-bound",
    "communication": "communication-bound",
    "copies": "copy-bound",
    "host": "host-bound",
    "launch": "launch-bound",
    "sync": "sync-bound",
    "blocking_copy": "copy-bound",
    "alloc": "allocation-bound",
    "module_load": "bound by loading code",
    "api": "bound by other CUDA calls",
    "dependency": "dependency-bound",
    "queue_delay": "bound by queue delay",
    "profiler": "profiler-bound",
    "unknown": "unexplained",
}
"""The verdict's word for each part of the time."""

LOSSES: Final = {
    "communication": "waiting for communication",
    "copies": "waiting for copies",
    **{name: cause.label for name, cause in CAUSES.items()},
}
"""What each part is called as a loss."""


Parts = Mapping[str, int]
"""The ns of each part of a GPU's time."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What holds one or more GPUs back.

    Attributes:
        gpus: which ones, e.g. `GPU 0`; empty where it is all of them.
        what: `compute-bound (72 %)`, or that a GPU has next to nothing to do.
        loss: the largest avoidable part of the time; empty where none is worth a remark.
        advice: what to do next; empty where findings say it.
        bound: the names of the largest parts, joined by `+`; None where nothing was judged.
        bound_pct: the share of the first.
    """

    gpus: str = ""
    what: str
    loss: str = ""
    advice: str = ""
    bound: str | None = None
    bound_pct: float | None = None

    @property
    def sentence(self) -> str:
        """Which GPUs, what and why in one line."""
        gpus = f"{self.gpus}: " if self.gpus else ""
        loss = f"; largest loss: {self.loss}" if self.loss else ""
        return f"{gpus}{self.what}{loss}"


def verdicts(results: Results) -> tuple[Verdict, ...]:
    """One verdict for all GPUs with the same bound, those with the largest loss first, and GPUs
    that are hardly used last; never empty.

    Args:
        results: the judged part of a run.
    """
    accounting = results.table("accounting").filter(pl.col("window_ns") > 0)
    if accounting.is_empty():
        return (_no_work(results),)
    busy_ns = pl.col("window_ns") - pl.col("idle_ns")
    used = accounting.filter(busy_ns >= HARDLY_USED * busy_ns.max())
    unused = accounting.join(used, on=["report", "device"], how="anti", maintain_order="left")
    groups: dict[str, list[Row]] = {}
    parts = _parts(results)
    lost_ns = pl.col("window_ns") - pl.col("compute_ns")
    for row in used.sort(lost_ns, descending=True, maintain_order=True).iter_rows(named=True):
        bound = bound_of(parts(row))
        groups.setdefault(_word(bound.names), []).append(row)
    alone = len(groups) == 1 and unused.is_empty()
    found = [_verdict(results, rows, parts, alone=alone) for rows in groups.values()]
    return (*found, *([] if unused.is_empty() else [_hardly_used(results, used, unused)]))


def _parts(results: Results) -> Callable[[Row], Parts]:
    """A function from a row of accounting to its parts: compute, what compute waited for, idle."""
    waited = (
        results.table("waited").group_by("report", "device", "kind").agg(pl.col("total_ns").sum())
    )
    sums = {row[:3]: row[3] for row in waited.rows()}

    def parts(row: Row) -> Parts:
        key = (row["report"], row["device"])
        return {
            "compute": row["compute_ns"],
            "communication": sums.get((*key, "communication"), 0),
            "copies": sums.get((*key, "copy"), 0),
            **{cause: row[f"{cause}_ns"] for cause in CAUSES},
        }

    return parts


def _verdict(
    results: Results,
    rows: Sequence[Row],
    parts_of: Callable[[Row], Parts],
    *,
    alone: bool,
) -> Verdict:
    """The verdict on GPUs of one kind."""
    sums: dict[str, int] = {}
    for row in rows:
        for name, ns in parts_of(row).items():
            sums[name] = sums.get(name, 0) + ns
    bound = bound_of(sums)
    loss, lost_ns = _largest_loss(sums)
    total_ns = sum(sums.values())
    worth = 100 * lost_ns >= WORTH_PCT * total_ns and bound.names[:1] == ("compute",)
    count = f"{len(rows)} GPUs, " if len(rows) > 1 else ""
    computing = (
        ""
        if bound.names[:1] == ("compute",)
        else f", {whole_percent(sums['compute'], total_ns)} computing"
    )
    share = (
        f"{bound.pct:.0f} %{computing}"
        if bound.names
        else f"{whole_percent(sums['compute'], total_ns)} computing"
    )
    return Verdict(
        gpus="" if alone else _names(results, rows),
        what=f"{_word(bound.names)} ({count}{share})",
        loss=f"{loss}, {whole_percent(lost_ns, total_ns)}" if worth else "",
        bound="+".join(bound.names) or None,
        bound_pct=bound.pct if bound.names else None,
    )


def _word(names: Sequence[str]) -> str:
    """`host- and launch-bound`; `nothing stands out` where no part is large."""
    words = list(dict.fromkeys(WORDS[name] for name in names))
    if not words:
        return "no part stands out"
    stems = [word.removesuffix("bound") for word in words[:-1]]
    return " and ".join([*stems, words[-1]])


def _largest_loss(parts: Parts) -> tuple[str, int]:
    """What takes most of the time that is not compute, and how much."""
    losses = {
        LOSSES[name]: ns
        for name, ns in parts.items()
        if name not in ("compute", "copies", "blocking_copy", "host", "launch")
    }
    losses["waiting for copies"] = parts["copies"] + parts["blocking_copy"]
    host, launch = parts["host"], parts["launch"]
    if min(host, launch) >= BOTH * max(host, launch):
        losses["host and launch"] = host + launch
    else:
        losses |= {LOSSES["host"]: host, LOSSES["launch"]: launch}
    return max(losses.items(), key=lambda item: item[1])


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
    return Verdict(what="no GPU work (no kernel, copy or memset in this report)", advice=advice)


def _hardly_used(results: Results, used: pl.DataFrame, unused: pl.DataFrame) -> Verdict:
    busy_ns = int((unused["window_ns"] - unused["idle_ns"]).sum())
    ops = int(unused["ops"].sum())
    others = used["device"].unique().to_list()
    advice = "if it should work, check that the program uses it"
    if len(others) == 1:
        advice += f"; if not, look at the other GPU alone with --device {others[0]}"
    return Verdict(
        gpus=_names(results, unused.iter_rows(named=True)),
        what=(
            f"hardly used ({number(ops)} operation{'' if ops == 1 else 's'},"
            f" {duration(busy_ns)} of work)"
        ),
        advice=advice,
    )


def _names(results: Results, rows: Iterable[Row]) -> str:
    several = len(results.reports) > 1
    return ", ".join(gpu_name(row["report"], row["device"], several=several) for row in rows)
