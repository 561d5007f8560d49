"""GPU memory that grows, has run out, or is left over.

* `memory-growth`: each step keeps GPU memory that no later one frees, until the GPU is full. The
  caching allocator grows in the first steps too, but what those allocate is freed again. Where it
  keeps asking CUDA for more, these calls are what the growth costs.
* `out-of-memory`: an allocation failed. What is reserved and not allocated lies in pieces. Where it
  is more than what was asked for, larger segments would have served; else there is too much at a
  time.
* `larger-batch`: the GPU's memory holds a larger batch.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import floor
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import FREES
from nsysflow.analysis.events.source_lines import OWN
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import frames_of_code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.schema import os_pid
from nsysflow.base.units import number, percent, size

LEAST_STEPS: Final = 5
"""Fewer judged steps in a row may be those in which a cache or a list of metrics fills."""

GROWTH_BYTES: Final = 1 << 20
"""What grows by less fills a GPU of 80 GB only in 80,000 steps."""

CHANGE_OF_GROWTH: Final = (
    "keep numbers, not tensors: loss.item() or loss.detach() in what is summed up or logged; a loss"
    " with its graph keeps all activations of its step",
    "write into a buffer that exists instead of torch.cat and append, and empty it now and then",
    "if nothing is kept on purpose: torch.cuda.memory._record_memory_history() names who holds it",
)

GIVES_BACK: Final = f"^(?:{FREES})$"
"""Names of calls that give memory back."""


def memory_growth(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU whose memory grows in all judged steps, with the place that keeps most.

    It costs no time until memory runs out, so it saves 0. Where calls for memory cost time, the
    finding is that of `memory_growth_with_calls`.
    """
    if not costs_calls(subject):
        yield from _growth(subject)


def memory_growth_with_calls(subject: JudgedReport) -> Iterator[Finding]:
    """Memory that grows, with what the allocator's calls for more cost. Without the growth it would
    use the same memory again. The first finding has all of these calls."""
    if not costs_calls(subject):
        return
    rows = _calls(subject)
    idle_ns, blocked_ns = (
        subject.per_step(int(rows[ns].sum())) for ns in ("idle_ns", "blocked_ns")
    )
    first, *others = _growth(subject)
    counted = f"the allocator asks CUDA for more, in {number(len(rows))} calls"
    yield replace(
        first,
        evidence=(
            *first.evidence,
            f"{counted}, which block the host for {subject.spent(blocked_ns)} and cost"
            f" {subject.idle(idle_ns)}",
        ),
        size_ns=idle_ns,
        changes=Changes(removed=(removal_of_calls(subject),)),
        waits=True,
    )
    yield from others


def costs_calls(subject: JudgedReport) -> bool:
    """Whether memory grows, and calls that take memory cost more than those that give it back."""
    rows = _calls(subject)
    whole_ns = int(rows["idle_ns"].sum())
    back_ns = int(rows.filter(pl.col("api").str.contains(GIVES_BACK))["idle_ns"].sum())
    return 2 * back_ns < whole_ns and bool(_growth(subject))


def removal_of_calls(subject: JudgedReport) -> Removal:
    """All calls for memory that are in no retry."""
    return Removal(kind="alloc" if subject.timeline.events.retries.is_empty() else "churn")


def _calls(subject: JudgedReport) -> pl.DataFrame:
    """The judged calls that take GPU memory or give it back, and are in no retry."""
    return subject.stalls.filter(pl.col("what") == "alloc")


def _growth(subject: JudgedReport) -> list[Finding]:
    """The findings on memory that grows, without what its calls cost."""
    return kept_with(subject, "growth of memory", lambda: [*_found(subject)])


def _found(subject: JudgedReport) -> Iterator[Finding]:
    if not subject.of_steps:
        return
    whole = subject.tables.memory.filter(
        pl.col("phase") == "", pl.col("growth_bytes") >= GROWTH_BYTES
    )
    always = (pl.col("steps") == pl.col("of_steps")) & (pl.col("steps") >= LEAST_STEPS)
    kept = subject.tables.kept_memory.filter(always)
    for growing in whole.iter_rows(named=True):
        mine = [pl.col(name) == growing[name] for name in ("process", "device")]
        places = kept.filter(*mine).sort("bytes", descending=True, maintain_order=True)
        if not places.is_empty():
            most = places.row(0, named=True)
            yield _growing(growing, most, _caller(subject, most))


MOSTLY: Final = 0.9
"""Look for who keeps memory at a line whose calls allocate so much of what a place keeps, but less
than so much of all that is allocated there."""


def _caller(subject: JudgedReport, most: dict[str, Any]) -> str:
    """The line of the program whose calls allocate what a place keeps, while other calls allocate
    there and keep nothing. Empty where no line tells these calls apart.

    Args:
        subject: the judged part.
        most: the place, a row of KEPT_MEMORY.
    """
    mine = os_pid(pl.col("process")) == most["process"], pl.col("device") == most["device"]
    changes = subject.timeline.trace.memory.filter(*mine).drop_nulls("address")
    freed = pl.col("time_ns").shift(-1).over("address", order_by=["time_ns", "row"]).is_not_null()
    made = changes.with_columns(freed.alias("freed")).filter(pl.col("bytes") > 0)
    made = made.group_by("stack").agg(
        pl.col("bytes").filter(~pl.col("freed")).sum().alias("kept"), pl.col("bytes").sum()
    )
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN).sort("stack", "depth")
    innermost = pl.col("line").first().over("stack") == most["source"]
    lines = frames.filter(innermost).unique(["stack", "line"], keep="first", maintain_order=True)
    sums = (
        lines.join(made, on="stack")
        .group_by("line")
        .agg(pl.col("depth").min(), pl.col("kept", "bytes").sum())
    )
    keeps, whole = pl.col("kept") >= MOSTLY * pl.col("kept").max(), pl.col("bytes").max()
    callers = sums.filter(keeps, pl.col("bytes") < MOSTLY * whole).sort("depth", "line")
    return str(callers["line"][0]) if len(callers) else ""


def _growing(growing: dict[str, Any], most: dict[str, Any], caller: str) -> Finding:
    """The finding of a row of MEMORY, with the place that keeps most, a row of KEPT_MEMORY, and the
    line that calls it."""
    source, via = most["source"] or "", most["via"] or ""
    where = f"by its calls of {line(source, via)}" if caller else "there"
    source, via = (caller, "") if caller else (source, via)
    operator = most["operator"] or ""
    kept = f"{size(round(most['bytes'] / most['of_steps']))} a step"
    begin, end = (size(growing[name]) for name in ("begin_bytes", "end_bytes"))
    return Finding(
        rule="memory-growth",
        title=f"GPU memory grows by {size(growing['growth_bytes'])} a step"
        f"{place(most['phase'], line(source, via))}",
        change=CHANGE_OF_GROWTH,
        evidence=(
            f"{begin} before the judged steps, {end} after them",
            f"{kept} are allocated {where}{f' by {operator}' if operator else ''} in each of"
            f" {most['of_steps']} steps, and still there at the end of the next one",
            *(("other calls of that line keep nothing",) if caller else ()),
        ),
        table="kept_memory",
        size_ns=0,
        steps=most["steps"],
        process=growing["process"],
        device=growing["device"],
        phase=most["phase"],
        source=source,
        via=via,
        culprit=operator,
    )


CHANGE_OF_PIECES: Final = (
    "let segments grow, so that there are fewer pieces:"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "pad or bucket lengths: pieces come from allocations of ever new sizes",
)

CHANGE_OF_FAILURE: Final = (
    "have less at a time: a smaller batch with gradient accumulation, shorter sequences",
    "recompute instead of keeping what the places with most of it keep: torch.utils.checkpoint",
    "without gradients, torch.inference_mode() keeps nothing for a backward pass",
)

_NAMED: Final = 2


def out_of_memory(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU on which an allocation failed, with the first one that did.

    What it would save is 0: it is no matter of time.
    """
    failed = subject.tables.out_of_memory
    for key, rows in failed.group_by("device", "process", maintain_order=True):
        held = subject.tables.peak_memory.filter(device=key[0], process=key[1])
        yield _failure(subject, rows.row(0, named=True), len(rows), held)


def _failure(
    subject: JudgedReport, first: dict[str, Any], count: int, held: pl.DataFrame
) -> Finding:
    source, via = first["source"] or "", first["via"] or ""
    asked, allocated, reserved = (
        first[name] for name in ("asked_bytes", "allocated_bytes", "reserved_bytes")
    )
    in_pieces = None not in (allocated, reserved) and reserved - allocated >= asked
    gpu = _on_gpu(first["device"], subject.tables.memory)
    return Finding(
        rule="out-of-memory",
        title=f"GPU memory ran out{gpu}: {size(asked)} more were asked for{_at(first)}",
        change=CHANGE_OF_PIECES if in_pieces else CHANGE_OF_FAILURE,
        evidence=(*_levels(first, count), *_held(held)),
        table="out_of_memory",
        size_ns=0,
        steps=subject.steps,
        process=first["process"] or None,
        device=first["device"],
        phase=first["phase"],
        source=source,
        via=via,
        culprit=first["operator"] or "",
    )


def _levels(first: dict[str, Any], count: int) -> Iterator[str]:
    """`84.1 GB of 84.2 GB reserved were allocated, 95.7 MB of the GPU were free`."""
    reserved, allocated, free = (
        None if first[name] is None else size(first[name])
        for name in ("reserved_bytes", "allocated_bytes", "free_bytes")
    )
    had = f"{allocated} of {reserved} reserved were allocated" if allocated else None
    had = had or (reserved and f"{reserved} were reserved")
    known = [*filter(None, [had, free and f"{free} of the GPU were free"])]
    if known:
        yield ", ".join(known)
    if count > 1:
        yield f"{number(count)} allocations failed; this is the first one"


def _held(held: pl.DataFrame) -> Iterator[str]:
    """`38 % of the peak were allocated in models.py:174 in update_nodes`."""
    known = held.filter(pl.coalesce("source", "via").is_not_null())
    for row in known.head(_NAMED).iter_rows(named=True):
        yield f"{percent(row['share_pct'])} of the peak, {size(row['bytes'])}, allocated{_at(row)}"


def _at(row: dict[str, Any]) -> str:
    """` in forward, model.py:88 in attend`; without a phase ` at model.py:88 in attend`."""
    code = line(row["source"] or "", row["via"] or "")
    return place(row["phase"], code) if row["phase"] else f" at {code}" * bool(code)


LEAST_TIMES: Final = 1.5
"""A batch that is less than so many times as large changes little."""

LEFT_FREE: Final = 0.1
"""This share of what the table says is left free. What is named so then ran, or a size within 2 %
of it, with each of eight programs on an H100 (docs/facts.md)."""

CHANGE_OF_BATCH: Final = (
    "a larger batch: each launch and each wait then serves more of it. The learning rate may have"
    " to follow",
    "if the batch is to stay: fewer steps of accumulation, or less recomputation",
)


def larger_batch(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU whose memory holds a larger batch.

    What that saves depends on what the kernels do with it: it is not estimated.
    """
    if not subject.of_steps:
        return
    for row in subject.tables.larger_batch.iter_rows(named=True):
        times = times_that_fit(row)
        if times >= LEAST_TIMES:
            yield _fitting(subject, row, times)


def times_that_fit(row: dict[str, Any]) -> float:
    """How many times the batch memory holds, with some of it left free.

    Args:
        row: of the table `larger_batch`.
    """
    growing: int = row["growing_bytes"]
    fixed: int = row["fixed_bytes"]
    room: float = (1 - LEFT_FREE) * (row["times"] * growing + fixed) - fixed
    return floor(10 * room / growing) / 10


def _fitting(subject: JudgedReport, row: dict[str, Any], times: float) -> Finding:
    peak, reserved, usable, growing, fixed = (
        size(row[f"{name}_bytes"])
        for name in ("peak", "peak_reserved", "usable", "growing", "fixed")
    )
    gpu = _on_gpu(row["device"], subject.tables.larger_batch)
    return Finding(
        rule="larger-batch",
        title=f"memory for {times:g} times the batch{gpu}: {peak} of {usable} are used",
        change=CHANGE_OF_BATCH,
        evidence=(
            f"when memory would run out first, {growing} grow with the batch and {fixed} do not",
            f"{LEFT_FREE:.0%} of the memory are left free, and so much lies in pieces as now:"
            f" {reserved} are reserved for these {peak}",
        ),
        table="larger_batch",
        size_ns=0,
        steps=subject.steps,
        process=row["process"],
        device=row["device"],
    )


def _on_gpu(device: int, table: pl.DataFrame) -> str:
    """` on GPU 1`; nothing where the table is of a single GPU."""
    return f" on GPU {device}" if table["device"].n_unique() > 1 else ""
