"""How many workers a DataLoader needs, by the rates of its workers and of the loop (spec §27.4)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.observed import WorkerCode
from nsysflow.analysis.replay.batches import batch_rates
from nsysflow.analysis.replay.disturbance import FASTEST_HOST, WAITS_FOR_DATA
from nsysflow.analysis.schema import os_pid
from nsysflow.base.units import duration, number, percent

BUSY_PCT: Final = 80
"""Workers that are busy for so much of the time are the limit: between two requests each also
takes the next one from its queue."""

MOSTLY_PCT: Final = 25
"""Code that takes a smaller part of the workers' time is not named."""

UNEVEN: Final = 3
"""Batches are uneven if 5 % take so many times the median: the loop takes them in order, and waits
for a slow one while others are ready."""

SHARE_OF_STREAM: Final = (
    "of an IterableDataset, take each worker's share of the records before decoding"
    " (get_worker_info): else each worker decodes all"
)
CHANGE_OF_BATCH: Final = (
    "make a batch cheaper: read no more than it needs (np.load(…, mmap_mode='r')), crop before all"
    " else, store what is decoded or tokenized, decode on the GPU",
    SHARE_OF_STREAM,
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
        limit: how often workers have a batch; empty without workers.
        limit_ns: how much they make a step longer then, if the rest of it is as fast as it can be.
    """

    change: tuple[str, ...]
    evidence: tuple[str, ...]
    floor_ns: int = 0
    counted: bool = False
    in_loop: bool = False
    limit: str = ""
    limit_ns: int = 0


def loader_advice(subject: JudgedReport, process: int | None) -> LoaderAdvice | None:
    """About the loader for which the loop of a process (its pid, None for any) waits longest; None
    without a recorded loader."""
    loader = _waited_for(subject, process)
    if loader is None:
        return None
    steps = subject.tables.steps.filter(pl.col("process") == loader["process"])
    busy_ns = steps.select((pl.col("duration_ns") - pl.col("idle_ns")).mean()).item() or 0
    workers, a_step, own_ns = loader["workers"], _per_step(subject, loader), _own_ns(loader)
    batch_ns = _batch_ns(subject, loader)
    if not (workers and a_step):
        return _advice(loader, batch_ns, max(own_ns, busy_ns), a_step)
    fastest_ns = max(FASTEST_HOST * own_ns, busy_ns / a_step)
    every_ns = batch_ns / workers
    plain_wait_ns = subject.timeline.options.unrecorded_wait_ns or 0
    hardly_waits = loader["waited_ns"] <= WAITS_FOR_DATA * loader["span_ns"]
    slowed = hardly_waits and fastest_ns < every_ns <= own_ns
    step_ns = fastest_ns if slowed else max(own_ns, busy_ns)
    advice = _advice(loader, batch_ns, step_ns, a_step, slowed=slowed)
    found = f"the recorded loop takes {duration(round(own_ns))} a batch, and finds it ready"
    waits = f", and waits {duration(plain_wait_ns)} a step" if plain_wait_ns else ""
    without = f"without the profiler it is faster{waits}"
    limit = (
        f"{number(workers)} worker{'s' * (workers > 1)} of the DataLoader"
        f" {'have' if workers > 1 else 'has'} a batch every {duration(round(every_ns))}"
    )
    advice = replace(
        advice,
        evidence=(found, without, *advice.evidence) if slowed else advice.evidence,
        limit=limit,
        limit_ns=max(plain_wait_ns, round(a_step * (every_ns - fastest_ns))),
    )
    code = _worker_code(subject, loader)
    return advice if code is None else _with_code(advice, code)


def _worker_code(subject: JudgedReport, loader: Mapping[str, Any]) -> WorkerCode | None:
    """What the workers of a loader run for a good part of the time; None where that is unknown."""
    ran = subject.timeline.trace.observations(WorkerCode)
    mine = (one for one in ran if one.loader == loader["loader"])
    return next((one for one in mine if one.share_pct >= MOSTLY_PCT), None)


def _with_code(advice: LoaderAdvice, code: WorkerCode) -> LoaderAdvice:
    """The advice with what the workers run for a good part of the time: behind more workers, else
    first. Of a stream each worker's share of the records comes before all else."""
    said = f"the workers run {code.name} {percent(code.share_pct)} of the time"
    share = (
        f"take each worker's share of the records before {code.name}, by get_worker_info:"
        " while each worker runs that for all records, more workers are no help"
    )
    changes = [one for one in advice.change if not (code.streams and one == SHARE_OF_STREAM)]
    at = 1 if changes[0].startswith(_LOADER) else 0
    changes.insert(at, f"make {code.name} cheaper: {said}")
    return replace(
        advice,
        change=(*([share] if code.streams else []), *changes),
        evidence=(*advice.evidence, said),
        limit=f"{advice.limit}, most of it in {code.name}",
    )


def _more_workers(subject: JudgedReport, step_ns: int) -> str:
    """How many workers a shorter step needs, as a sentence; empty where those recorded keep up, and
    where the loop makes its batches itself."""
    loader = _waited_for(subject, None)
    if loader is None or not loader["workers"]:
        return ""
    workers = loader["workers"]
    batches_ns = _per_step(subject, loader) * _batch_ns(subject, loader)
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


def without_same_loader(plan: Iterable[Valued], worth_ns: float) -> Iterator[Valued]:
    """The plan without findings that save nothing, as one above changes the loader in the same
    way."""
    above: set[str] = set()
    for one in plan:
        change = one.finding.change[0]
        if one.finding.rule != "data-loading" or one.high_ns >= worth_ns or change not in above:
            yield one
        above.add(change)


def with_workers(plan: Sequence[Valued], subject: JudgedReport) -> tuple[Valued, ...]:
    """The plan; what makes the step shorter than the loader's workers keep up with says so: the
    finding of the loader, if there is one above."""
    said = ""
    if any(one.counts for one in plan):
        said = _more_workers(subject, plan[-1].step_after_ns)
    if not said:
        return tuple(plan)
    waits = [one.finding.phase if one.finding.rule == "data-loading" else "" for one in plan]
    loading = (at for at, phase in enumerate(waits) if phase)
    shorter = (at for at, one in enumerate(plan) if _more_workers(subject, one.step_after_ns))
    at = next(loading, next(shorter, len(plan) - 1))
    finding = replace(plan[at].finding, evidence=(*plan[at].finding.evidence, said))
    return (*plan[:at], replace(plan[at], finding=finding), *plan[at + 1 :])


def _waited_for(subject: JudgedReport, process: int | None) -> dict[str, Any] | None:
    """The loader for which the loop of a process (its pid, None for any) waits longest."""
    whole = subject.tables.loader_workers.filter(pl.col("worker").is_null())
    recorded = whole if process is None else whole.filter(pl.col("process") == process)
    waited = recorded.filter((pl.col("steps") > 0) & (pl.col("batches") > 0))
    longest = waited.sort("waited_ns", descending=True).head(1)
    return next(longest.iter_rows(named=True), None)


def _batch_ns(subject: JudgedReport, loader: Mapping[str, Any]) -> float:
    """How long the slowest worker of a loader takes for a batch: they take turns. Without workers,
    or with one batch of each, how long those take that were recorded."""
    rates = batch_rates(subject.timeline.trace.loader_times)
    mine = os_pid(pl.col("process")) == loader["process"], pl.col("loader") == loader["loader"]
    rate_ns = rates.filter(*mine)["rate_ns"]
    if loader["workers"] and len(rate_ns):
        return float(loader["workers"] * rate_ns[0])
    return float(loader["busy_ns"] / loader["batches"])


def _per_step(subject: JudgedReport, loader: Mapping[str, Any]) -> float:
    """How many batches a judged step takes; 0 where none is judged. A recording ends before its
    last batches are told: steps that begin behind the last one do not count."""
    if not subject.of_steps:
        return 0.0
    mine = os_pid(pl.col("process")) == loader["process"]
    last_ns = subject.timeline.trace.loader_times.filter(mine)["end_ns"].max()
    told = subject.judged_steps.filter(mine, pl.col("begun_ns") <= last_ns)["step"].n_unique()
    return float(loader["steps"] / max(1, told))


def _own_ns(loader: Mapping[str, Any]) -> float:
    """The time of a step of the loop without its wait for the batch."""
    return float((loader["span_ns"] - loader["waited_ns"]) / loader["steps"])


def _advice(
    loader: Mapping[str, Any],
    batch_ns: float,
    step_ns: float,
    a_step: float,
    *,
    slowed: bool = False,
) -> LoaderAdvice:
    """What to change, where a worker takes `batch_ns` for a batch, for a loop that takes one every
    `step_ns` where it need not wait, and so many `a_step`; or may take one so often, where
    recording has `slowed` it."""
    workers = loader["workers"] or 0
    needed = max(ceil(batch_ns / max(step_ns, 1)), 1)
    if workers and loader["busy_pct"] < BUSY_PCT and not slowed:
        return _on_the_way(loader)
    most = loader["cores"] or needed
    if workers:
        rates = (
            f"{number(workers)} worker{'s' * (workers > 1)} give"
            f"{'s' * (workers == 1)} {_per_s(batch_ns / workers)} batches/s, the loop"
            f" {'may take' if slowed else 'takes'} {_per_s(step_ns)}"
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


_LOADER: Final = "DataLoader(…"


def _loader(workers: int, loader: Mapping[str, Any]) -> str:
    """The call with so many workers."""
    prefetch = loader["prefetch_factor"]
    ahead = f", prefetch_factor={prefetch}" if prefetch not in (None, 2) else ""
    return f"{_LOADER}, num_workers={workers}, persistent_workers=True, pin_memory=True{ahead})"


def _per_s(ns: float) -> str:
    """Of what takes so long each, how many a second: `41`, `6.5`."""
    rate = 1e9 / max(ns, 1)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
