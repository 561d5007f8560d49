"""How many workers a DataLoader needs, by the rates of its workers and of the loop (spec §27.4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import duration, number, percent

BUSY_PCT: Final = 80
"""Workers that are busy for so much of the time are the limit: between two requests each also
takes the next one from its queue."""

UNEVEN: Final = 3
"""Batches are uneven if 5 % take so many times the median: the loop takes them in order, and waits
for a slow one while others are ready."""

CHANGE_OF_BATCH: Final = (
    "make a batch cheaper: crop before all else, store what is decoded or tokenized, decode on the"
    " GPU",
)
CHANGE_OF_WAY: Final = (
    "send fewer, larger tensors: what a batch consists of is unpacked and pinned one by one",
    "let the main thread do less with a batch: its Python also holds up the thread that pins",
)


@dataclass(frozen=True, kw_only=True)
class LoaderAdvice:
    """What to change about a loader, and the numbers behind it.

    Attributes:
        change: what to do.
        evidence: the numbers.
        floor_ns: what a step takes at least then, where workers are too few for the loop; else 0.
        counted: whether a number of workers says what the loop then waits.
        in_loop: whether the loop's own process makes the batches.
    """

    change: tuple[str, ...]
    evidence: tuple[str, ...]
    floor_ns: int = 0
    counted: bool = False
    in_loop: bool = False


def loader_advice(subject: JudgedReport, process: int | None) -> LoaderAdvice | None:
    """About the loader for which the loop of a process (its pid, None for any) waits longest; None
    without a recorded loader."""
    loader = _waited_for(subject, process)
    if loader is None:
        return None
    steps = subject.tables.steps.filter(pl.col("process") == loader["process"])
    busy = steps.select((pl.col("duration_ns") - pl.col("idle_ns")).mean()).item()
    return _advice(loader, max(_own_ns(loader), busy or 0), _per_step(subject, loader))


def more_workers(subject: JudgedReport, step_ns: int) -> str:
    """How many workers a shorter step needs, as a sentence; empty where those recorded keep up, and
    where the loop makes its batches itself."""
    loader = _waited_for(subject, None)
    if loader is None or not loader["workers"]:
        return ""
    workers = loader["workers"]
    batches_ns = _per_step(subject, loader) * loader["busy_ns"] / loader["batches"]
    needed = ceil(batches_ns / max(step_ns, 1))
    if needed <= workers:
        return ""
    cores = loader["cores"]
    most = f", and this process may use {number(cores)} cores" if cores and needed > cores else ""
    return (
        f"as recorded, {number(workers)} worker{'s' * (workers > 1)} of the DataLoader keep"
        f"{'s' * (workers == 1)} up with steps of {duration(round(batches_ns / workers))}; this"
        f" plan ends with steps of {duration(step_ns)}, which need {number(needed)}{most}"
    )


def _waited_for(subject: JudgedReport, process: int | None) -> dict[str, Any] | None:
    """The loader for which the loop of a process (its pid, None for any) waits longest."""
    whole = subject.tables.loader_workers.filter(pl.col("worker").is_null())
    recorded = whole if process is None else whole.filter(pl.col("process") == process)
    waited = recorded.filter((pl.col("steps") > 0) & (pl.col("batches") > 0))
    longest = waited.sort("waited_ns", descending=True).head(1)
    return next(longest.iter_rows(named=True), None)


def _per_step(subject: JudgedReport, loader: Mapping[str, Any]) -> float:
    """How many batches a judged step takes; 0 where none is judged."""
    return float(loader["steps"] / subject.steps) if subject.of_steps else 0.0


def _own_ns(loader: Mapping[str, Any]) -> float:
    """The time of a step of the loop without its wait for the batch."""
    return float((loader["span_ns"] - loader["waited_ns"]) / loader["steps"])


def _advice(loader: Mapping[str, Any], step_ns: float, a_step: float) -> LoaderAdvice:
    """What to change, for a loop that takes a batch every `step_ns` where it need not wait, and so
    many `a_step`."""
    batch_ns = loader["busy_ns"] / loader["batches"]
    workers = loader["workers"] or 0
    needed = max(ceil(batch_ns / max(step_ns, 1)), 1)
    if workers and loader["busy_pct"] < BUSY_PCT:
        return _on_the_way(loader)
    most = loader["cores"] or needed
    if workers:
        rates = (
            f"{number(workers)} worker{'s' * (workers > 1)} give"
            f"{'s' * (workers == 1)} {_per_s(batch_ns / workers)} batches/s, the loop takes"
            f" {_per_s(step_ns)}"
        )
    else:
        rates = (
            f"a batch takes {duration(round(batch_ns))} in this process, the rest of a step"
            f" {duration(round(step_ns))}"
        )
    evidence = [f"{rates}: {number(needed)} worker{'s' * (needed > 1)} needed"]
    if needed > most:
        evidence.append(
            f"this process may use {number(most)} cores, so more workers than that are no help"
        )
    wanted = min(needed, most)
    if wanted <= workers:
        return LoaderAdvice(change=CHANGE_OF_BATCH, evidence=tuple(evidence))
    short = wanted < needed
    if short:
        evidence.append(
            f"{number(wanted)} workers make a batch every {duration(round(batch_ns / wanted))}:"
            " for shorter steps, batches have to become cheaper"
        )
    return LoaderAdvice(
        change=(_loader(wanted, loader), *CHANGE_OF_BATCH),
        evidence=tuple(evidence),
        floor_ns=round(a_step * batch_ns / wanted) if short else 0,
        counted=True,
        in_loop=not workers,
    )


def _on_the_way(loader: Mapping[str, Any]) -> LoaderAdvice:
    """The loop waits, and the workers do too."""
    idle = f"its workers are busy {percent(loader['busy_pct'])} of the time: more are no help"
    usual, slow = loader["fetch_median_ns"], loader["fetch_p95_ns"]
    if slow > UNEVEN * usual:
        prefetch = 2 * (loader["prefetch_factor"] or 2)
        ahead = f"DataLoader(…, prefetch_factor={prefetch}): more batches ahead bridge a slow one"
        uneven = f"5 % of the batches take {duration(slow)} or longer, the median {duration(usual)}"
        return LoaderAdvice(change=(ahead, *CHANGE_OF_BATCH), evidence=(uneven, idle))
    pins = () if loader["pin_memory"] else ("DataLoader(…, pin_memory=True)",)
    return LoaderAdvice(change=(*pins, *CHANGE_OF_WAY), evidence=(idle,))


def _loader(workers: int, loader: Mapping[str, Any]) -> str:
    """The call with so many workers."""
    prefetch = loader["prefetch_factor"]
    ahead = f", prefetch_factor={prefetch}" if prefetch not in (None, 2) else ""
    return f"DataLoader(…, num_workers={workers}, persistent_workers=True, pin_memory=True{ahead})"


def _per_s(ns: float) -> str:
    """Of what takes so long each, how many a second: `41`, `6.5`."""
    rate = 1e9 / max(ns, 1)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
