"""Memory that grows from step to step.

* `memory-growth`: each step keeps GPU memory that no later one frees, until the GPU is full. The
  caching allocator grows in the first steps too, but what those allocate is freed again.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import size

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


def memory_growth(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU whose memory grows in all judged steps, with the place that keeps most.

    It costs no time until memory runs out: what it would save is 0.
    """
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
            yield _finding(growing, places.row(0, named=True))


def _finding(growing: dict[str, Any], most: dict[str, Any]) -> Finding:
    source, via = most["source"] or "", most["via"] or ""
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
            f"{kept} are allocated there{f' by {operator}' if operator else ''} in each of"
            f" {most['of_steps']} steps, and still there at the end of the next one",
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
