"""Python between launches that the GPU waits for.

* `host-code`: one piece of Python holds the GPU up in every step: logging, a metric on the CPU, a
  Python loop, a file that is written. A CUDA graph is no help: the piece itself has to become
  faster, rarer, or another thread's.
* `data-loading`: the GPU waits while the host gets the next batch ready. A loader in the training
  process does its work between two steps. With worker processes it does it during the steps, and
  the step only takes a finished batch.
* `checkpoint-in-loop`: each step saves a checkpoint. The host waits for a copy of each tensor. Then
  it pickles and writes them, while the GPU idles. The copies are the smaller part of the time.

Where samples name the code, the saving is that of this code alone. Without a function that ran for
65 % of such a pause, steps of 66.4 ms took 32.4 ms. Its share of the replayed time is 34.0 ms, that
of all host code 49.4 ms (pixel_cql on an H200, 2026-11-30).
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import (
    LEAST_PCT,
    Running,
    lock_share,
    running,
)
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import itself
from nsysflow.analysis.findings.loaders import loader_advice
from nsysflow.analysis.findings.rules.launch_bound import launches_cost
from nsysflow.analysis.findings.rules.loops import loops
from nsysflow.analysis.findings.stall_findings import MANY_CALLS, places_of
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number, percent

MAKE_FASTER: Final = "make it faster: vectorise loops, cache what does not change"
CHANGE_OF_HOST_CODE: Final = (
    "do it less often, later, on another thread, or on the GPU; launch the GPU's work before it",
    MAKE_FASTER,
)
SAMPLE_CODE: Final = "see which Python it is: record again with --sample-python 1000"

SHORT_NS: Final = 100_000
"""Between two launches a pause that is shorter may be the framework's own work."""

LEAST_PAUSES: Final = 3
"""Where no steps are judged, fewer pauses are start-up and no loop."""

MOSTLY_LOCKED: Final = 0.5
"""From this share on the wait for Python's lock (`gil-contention`) is the place to begin."""

MUCH_LESS: Final = 0.75
"""Recording makes the host's time longer, and the GPU's not: what the GPU hides has to be this
share of it or less to be worth a word."""

LOOP_NS: Final = 100_000
"""Between two steps a loop takes less than this for itself, its ranges and its counters: 16 us in
rolloutcopy-graph, where it is a third of a step."""


def host_code(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase in which the GPU mostly waits for long pieces of Python, in at least half the
    steps; phases in which that is the same code are one finding, with the time between the steps
    if it goes on there. Not if the host mostly waits for Python's lock there."""
    for phases in _places(subject):
        if lock_share(subject, *phases) < MOSTLY_LOCKED:
            yield _finding(subject, phases)


def runs_between_steps(subject: JudgedReport) -> bool:
    """Whether the code that holds the GPU up in a phase also runs between the steps."""
    return any(OUTSIDE in phases and len(phases) > 1 for phases in _places(subject))


def between_steps(subject: JudgedReport) -> pl.DataFrame:
    """The rows of `JudgedReport.pauses` between the steps, where ranges mark these."""
    between = (pl.col("phase") == OUTSIDE) & (pl.col("ns") >= LOOP_NS) & ~pl.col("loads_code")
    return subject.pauses.filter(between, subject.steps_marked)


Pauses = dict[str, pl.DataFrame]
"""Rows of `JudgedReport.pauses` by phase; `OUTSIDE` for those between the steps."""


def _places(subject: JudgedReport) -> list[Pauses]:
    """The pauses of each finding."""
    return kept_with(subject, "places of host code", lambda: [*_found_places(subject)])


def _found_places(subject: JudgedReport) -> Iterator[Pauses]:
    """The phases with long pauses, those together in which the same code runs."""
    phases = dict(_phases(subject))
    between = between_steps(subject)
    if not between.is_empty():
        phases = {OUTSIDE: between} | phases
    by_code: dict[str, Pauses] = {}
    for phase, rows in phases.items():
        code = running(subject, phase).mostly or phase
        by_code.setdefault(code, {})[phase] = rows
    return (found for found in by_code.values() if found.keys() != {OUTSIDE})


def _phases(subject: JudgedReport) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each phase in which most of the wait for the host is long pauses that recur."""
    outside = (pl.col("phase") == OUTSIDE) & pl.lit(subject.steps_marked)
    short = (pl.col("ns") >= SHORT_NS) & ~pl.col("data") & ~pl.col("loads_code")
    host = pl.col("long") if launches_cost(subject) else short
    saves = pl.col("phase").is_in(subject.saving_phases)
    pauses = subject.pauses.filter(host, ~outside, ~saves)
    whole = dict(subject.pauses.group_by("phase").agg(pl.col("ns").sum()).rows())
    for (phase,), rows in sorted(pauses.group_by("phase"), key=lambda group: str(group[0])):
        mostly = 2 * rows["ns"].sum() >= whole[phase]
        steps = subject.steps_with(rows["start_ns"])
        recurs = 2 * steps >= subject.steps if subject.of_steps else len(rows) >= LEAST_PAUSES
        if mostly and recurs:
            yield str(phase), rows


def _finding(subject: JudgedReport, phases: Pauses) -> Finding:
    rows = pl.concat(phases.values())
    ran = running(subject, *phases)
    whole_ns, size_ns = _waited(subject, ran, phases)
    left = tuple((itself(subject, phase), _left(ran, phase)) for phase in phases)
    first, *others = phases
    where = f" {_in_turn(phases)}" if others else place(first)
    part = _part(ran, size_ns, whole_ns)
    return Finding(
        rule="host-code",
        title=f"{ran.mostly or 'one piece of host code'} holds the GPU up{where}",
        change=ran.change or (*CHANGE_OF_HOST_CODE, *(() if ran.evidence else (SAMPLE_CODE,))),
        evidence=(
            f"the GPU waits {subject.spent(whole_ns)} for {'host code there' if part else 'it'}, in"
            f" {number(len(rows))} pauses of {duration(int(rows['ns'].sum()) // len(rows))}{part}",
            *ran.evidence,
            *_waits_for_lock(subject, phases),
            (_only(ran) if part else "the saving assumes that no host time is left there")
            + _hidden(subject, size_ns),
        ),
        table="host_stacks" if ran.evidence else "gap_summary",
        size_ns=size_ns,
        steps=subject.steps_with(rows["start_ns"]),
        changes=Changes(faster_host=left) if others or first != OUTSIDE else None,
        exact=False,
        at_most_ns=size_ns,
        process=subject.process_of(rows),
        phase="" if others or first == OUTSIDE else first,
        source=ran.source,
        via=ran.via,
    )


def _waited(subject: JudgedReport, ran: Running, phases: Pauses) -> tuple[int, int]:
    """For how long a step the GPU waits: for all host code of these pauses, and for the code that
    is named."""
    share = (
        rows.with_columns((pl.col("ns") * ran.part(phase)).round().cast(pl.Int64))
        for phase, rows in phases.items()
    )
    parts = (phases.values(), share)
    whole_ns, size_ns = (subject.worst_ns(pl.concat(rows), "ns") for rows in parts)
    return whole_ns, size_ns


def _left(ran: Running, phase: str) -> float:
    """The factor on the host's time in a phase in which the named code takes none, as `nsysflow
    whatif` prints it."""
    return round(1 - ran.part(phase), 2)


def _part(ran: Running, size_ns: int, whole_ns: int) -> str:
    """`; for pack (train.py:92) about 38.1 ms of it`, by its share; empty where that is all."""
    return f"; for {ran.mostly} about {duration(size_ns)} of it" if size_ns < whole_ns else ""


def _only(ran: Running) -> str:
    """What is saved where the named code is a part of it."""
    return f"the saving assumes that {ran.mostly} takes no time, and that the rest there stays"


def _hidden(subject: JudgedReport, size_ns: int) -> str:
    """How much of code that has to stay the GPU's work can hide, where that is much less than all:
    15.9 of 26.7 ms in which lidar points were put into pillars. It is no bound: of a sampler's
    8.1 ms 0.7 could hide, and 4.2 were saved by another one (H200, 2026-11-30)."""
    parts = pl.sum_horizontal("compute_ns", "comm_exposed_ns", "copy_exposed_ns").alias("ns")
    busy_ns = subject.worst_ns(subject.tables.accounting.with_columns(parts), "ns")
    if not subject.of_steps or busy_ns > MUCH_LESS * size_ns:
        return ""
    return f"; if the code stays, the GPU's work can hide at most {duration(busy_ns)} of it"


def _waits_for_lock(subject: JudgedReport, phases: Pauses) -> Iterator[str]:
    """What part of that time is no work of this code."""
    locked, lock = lock_share(subject, *phases), subject.timeline.lock_waits
    if lock is not None and 100 * locked >= LEAST_PCT:
        waited = "seems to have waited" if lock.estimated else "waited"
        yield f"for {percent(100 * locked)} of it, it {waited} for Python's lock (table gil)"


def _in_turn(phases: Pauses) -> str:
    """`between the steps and in forward`."""
    named = ["between the steps" if phase == OUTSIDE else f"in {phase}" for phase in phases]
    return f"{', '.join(named[:-1])} and {named[-1]}"


CHANGE_OF_LOADER: Final = (
    "DataLoader(num_workers=4 or more, persistent_workers=True, pin_memory=True)",
    "a larger prefetch_factor where batches take unequally long",
    "do the work once, before training: store what is decoded or tokenized",
)
CHANGE_ON_GPU: Final = (
    "the data is on the GPU, where workers are no help: take a batch at once, data[order[i:j]]",
    "draw its order there, too: order = torch.randperm(len(data), device='cuda')",
)
CHANGE_OF_SAMPLES: Final = (
    "leave samples on the CPU in the dataset, and copy the batch: .to(device, non_blocking=True)",
    "then workers can make the batches: DataLoader(num_workers=1 or more, pin_memory=True)",
)
SAMPLE_BETWEEN: Final = (
    "see what Python does between the steps: record again with --sample-python 1000"
)


def data_loading(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase that loads data while the GPU waits, or whose workers limit the loop without the
    profiler; and host code between marked steps: it is mostly the loader's.

    Not if other rules say what that code is: a loop of launches, or code that also holds the GPU up
    in a phase.
    """
    between = between_steps(subject)
    if runs_between_steps(subject) or any(one.phase == OUTSIDE for one in loops(subject)):
        between = between.clear()
    pauses = pl.concat([subject.pauses.filter("data"), between])
    rows_of = {str(phase): rows for (phase,), rows in pauses.group_by("phase")}
    for phase in sorted({*rows_of, *subject.loading_phases}):
        found = _data_finding(subject, phase, rows_of.get(phase, pauses.clear()))
        if found.size_ns:
            yield found


def _data_finding(subject: JudgedReport, phase: str, rows: pl.DataFrame) -> Finding:
    known, ran = phase != OUTSIDE, running(subject, phase)
    whole_ns, size_ns = _waited(subject, Running() if known else ran, {phase: rows})
    part = _part(ran, size_ns, whole_ns)
    batches = _batches_on_gpu(subject, phase) if known else None
    loads = known and batches is None
    advice = loader_advice(subject, subject.process_of(rows)) if loads else None
    what = f"{'waiting' if ran.waits_in else 'host code'} between the steps"
    most = f", most in {ran.most}" if ran.most else ""
    between = f"{what}: {ran.mostly}" if ran.mostly else f"{what}{most}"
    if not known:
        change = _change_between(subject, ran)
        stays = "" if ran.waits_in else _hidden(subject, size_ns)
        reason = (_only(ran) if part else "no range says what it does") + stays
    elif batches is not None:
        change, reason = batches
    elif advice is not None:
        change, reason = advice.change, "the saving is that of no wait at all"
        if advice.floor_ns:
            reason = "the saving is that of a step that waits for these workers"
    else:
        change, reason = CHANGE_OF_LOADER, "the saving holds if the workers keep up"
    if advice is not None and advice.in_loop and ran.source:
        change = (change[0], f"{MAKE_FASTER}, most of all in {ran.mostly}", *change[1:])
    recorded = advice.evidence if advice is not None else ()
    limit = advice if advice is not None and advice.limit_ns > size_ns else None
    title = f"the GPU waits for data{place(phase)}" if known else between
    seen = () if limit else ran.evidence
    table = "loader_workers" if recorded else "gap_summary"
    return Finding(
        rule="data-loading",
        title=limit.limit if limit else title,
        change=change,
        evidence=(
            f"the GPU waits {subject.spent(whole_ns)} for host code{place(phase)}{part}",
            *recorded,
            *seen,
            reason,
        ),
        table="host_stacks" if seen else table,
        size_ns=limit.limit_ns if limit else size_ns,
        steps=subject.steps if limit else subject.steps_with(rows["start_ns"]),
        changes=Changes(faster_host=((phase, 0.0 if known else _left(ran, phase)),)),
        exact=known and (advice is None or advice.counted),
        at_most_ns=0 if known else size_ns,  # other code there launches kernels
        floor_ns=0 if advice is None else advice.floor_ns,
        worth_ns=2 * size_ns if limit else 0,
        process=subject.process_of(rows),
        takes="restructure" if ran.evidence and not (known or ran.waits_in) else None,
        phase=phase if known else "",
        source=ran.source,
        via=ran.via,
        fits=not known and ran.waits_in != "",
    )


def _batches_on_gpu(subject: JudgedReport, phase: str) -> tuple[tuple[str, ...], str] | None:
    """What to change where kernels put the batches together in a phase that loads data, and why:
    its data is on the GPU, or samples are copied there one by one. None where batches are made on
    the host."""
    if not subject.tables.phases.filter(pl.col("path") == phase)["kernels"].sum():
        return None
    up = (pl.col("phase") == phase) & (pl.col("direction") == "HtoD")
    copies = subject.per_step(int(subject.tables.copies.filter(up)["count"].sum()))
    if copies == 0:
        return CHANGE_ON_GPU, "kernels put the batches together; none comes from the host"
    if copies < MANY_CALLS:
        return None
    return CHANGE_OF_SAMPLES, f"{number(copies)} copies{subject.a_step} put samples on the GPU"


def _change_between(subject: JudgedReport, ran: Running) -> tuple[str, ...]:
    """What to do about host code outside all ranges: it is no loader where batches have a phase."""
    if ran.waits_in:
        return ran.change
    change = CHANGE_OF_HOST_CODE if ran.evidence else (SAMPLE_BETWEEN,)
    return change if subject.pauses["data"].any() else (*change, *CHANGE_OF_LOADER)


CHANGE_OF_CHECKPOINT: Final = (
    "save less often, or only when the model is better",
    "copy it on the GPU, {name: tensor.clone()}, and let another thread write the copy:"
    " torch.distributed.checkpoint.async_save",
)


def checkpoint_in_loop(subject: JudgedReport) -> Iterator[Finding]:
    """The ranges of checkpoints: the waits for their copies, and the host's code in them."""
    phases = subject.saving_phases
    if not phases:
        return
    stalls = subject.stalls_of_checkpoints
    waits = places_of(subject, stalls)
    gaps = subject.tables.gap_summary.filter(pl.col("phase").is_in(phases))
    size_ns = subject.worst_ns(gaps, "total_ns")
    blocked_ns = sum(one.blocked_ns for one in waits)
    to_host = pl.col("phase").is_in(phases) & (pl.col("direction") == "DtoH")
    copies = subject.per_step(int(subject.tables.copies.filter(to_host)["count"].sum()))
    largest = max(waits, key=lambda one: one.blocked_ns)
    removed = Changes(removed=tuple(removal for one in waits for removal in one.removals))
    host = Changes(faster_host=tuple((itself(subject, phase), 0.0) for phase in phases))
    yield Finding(
        rule="checkpoint-in-loop",
        title=f"a checkpoint is saved in each step: {number(copies)} copies to the host"
        f"{place(largest.phase, largest.line)}",
        change=CHANGE_OF_CHECKPOINT,
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for the checkpoint",
            f"the copies block the host for {subject.spent(blocked_ns)}; in the rest it pickles and"
            " writes",
            "the saving is for a loop without any checkpoint",
        ),
        table="gap_summary",
        size_ns=size_ns,
        steps=subject.steps_with(stalls["start_ns"]),
        changes=Changes.together([removed, host]),
        exact=False,
        at_most_ns=size_ns,
        process=subject.process_of(stalls),
        phase=largest.phase,
        source=largest.source,
        via=largest.via,
    )
