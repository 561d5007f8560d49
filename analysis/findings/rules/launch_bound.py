"""`launch-bound`: launching takes longer than what is launched."""

from collections.abc import Iterator

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.replay.changes.declared import Changes

CHANGE = (
    "torch.compile(mode='reduce-overhead'): fewer kernels, launched as one CUDA graph",
    "capture the step with torch.cuda.graph where its shapes do not change",
    "larger batches, so that each kernel takes longer than its launch",
)


def launch_bound(subject: Subject) -> Iterator[Finding]:
    """The step whose GPU waits for launches and for the framework's code between them."""
    accounting = subject.tables.accounting
    idle = accounting.select("device", (pl.col("launch_ns") + pl.col("host_ns")).alias("ns"))
    size_ns = subject.worst_ns(idle, "ns")
    paths = subject.timeline.step_paths["joined"]
    if paths.is_empty() or not subject.of_steps:
        return
    launches = subject.tables.phases.filter(pl.col("path") == paths[0])["launches"].sum()
    yield Finding(
        rule="launch-bound",
        title=f"{subject.per_step(int(launches)):,} launches a step keep the GPU waiting",
        change=CHANGE,
        evidence=(f"{size_ns:,} ns a step of launch overhead and host code between launches",),
        table="launches",
        size_ns=size_ns,
        steps=subject.steps,
        changes=Changes(graphs=(paths[0],)),
        phase=paths[0],
    )
