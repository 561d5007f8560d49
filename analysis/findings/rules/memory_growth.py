"""Memory that grows from step to step.

* `memory-growth`: each step keeps GPU memory that no later one frees, until the GPU is full. The
  caching allocator grows in the first steps too, but what those allocate is freed again. Where it
  keeps asking CUDA for more, these calls are what the growth costs.
"""

from collections.abc import Iterator
from dataclasses import replace
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
from nsysflow.base.units import number, size

LEAST_STEPS: Final = 5
"""Fewer judged steps in a row may be those in which a cache or a list of metrics fills."""

GROWTH_BYTES: Final = 1 << 20
"""What grows by less fills a GPU of 80 GB only in 80,000 steps."""

CHANGE: Final = (
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
            yield _finding(growing, most, _caller(subject, most))


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


def _finding(growing: dict[str, Any], most: dict[str, Any], caller: str) -> Finding:
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
        change=CHANGE,
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
