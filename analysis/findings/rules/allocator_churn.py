"""`allocator-churn`: memory is taken from the driver, and given back, in every step.

cudaFree waits for all that the GPU has to do, and cudaMalloc takes 0.1 ms and more. PyTorch's
caching allocator needs neither, once it has seen the largest step.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.stall_findings import stalls_of
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.base.units import number

CHANGE: Final = (
    "no torch.cuda.empty_cache() in the loop; let PyTorch keep what it has",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where shapes change from step to step",
    "allocate buffers once, before the loop, and write into them (out=, copy_)",
)


def allocator_churn(subject: JudgedReport) -> Iterator[Finding]:
    """All calls that allocate or free memory; the place is where they lose most."""
    every = sorted(stalls_of(subject, "alloc"), key=lambda stalls: stalls.idle_ns)
    if not every:
        return
    most = every[-1]
    apis = subject.stalls.filter(pl.col("what") == "alloc")["api"].value_counts(sort=True)
    counted = ", ".join(f"{number(n)} {api}" for api, n in apis.head(3).iter_rows())
    idle_ns = sum(stalls.idle_ns for stalls in every)
    blocked_ns = sum(stalls.blocked_ns for stalls in every)
    yield Finding(
        rule="allocator-churn",
        title=f"memory allocated and freed{' in the loop' if subject.of_steps else ''}: {most.api}"
        f"{place(most.phase, most.line)}",
        change=CHANGE,
        evidence=(
            f"{counted} in {subject.steps} steps" if subject.of_steps else counted,
            f"they block the host for {subject.spent(blocked_ns)} and cost {subject.idle(idle_ns)}",
            "what Python does around these calls is not in the saving",
        ),
        table="syncs",
        size_ns=idle_ns,
        steps=max(stalls.steps for stalls in every),
        changes=Changes(removed=(Removal(kind="alloc"),)),
        waits=True,
        phase=most.phase,
        source=most.source,
        via=most.via,
        culprit=most.api,
    )
