"""`small-copies`: a batch goes to the GPU in many small pieces, each with a launch of its own."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import host_of_launches, without_launches
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import number, size

MANY: Final = 32
"""So many copies a step are a loop over a dict or a list, and no batch of inputs and labels."""

SMALL_BYTES: Final = 256 << 10
"""A pinned copy of so much takes 5 us at 50 GB/s. Its launch and the code around it take longer."""

LEFT: Final = 2
"""So many copies are left: of whole and of floating-point numbers."""

CHANGE: Final = (
    "stack them on the CPU, best in the DataLoader's collate_fn, copy that once, and split it on"
    " the GPU: unbind, or slices",
    "of tensors with different types: one buffer of bytes, and views of it",
)


def small_copies(subject: JudgedReport) -> Iterator[Finding]:
    """Copies to the GPU that do not block the host, where a step has many of them and they are
    small in the mean; without most of their launches and the code between these.

    A dict of 93 pinned tensors took 4.84 ms a step, two tensors 3.31 (H200, 2026-11-29).
    """
    view = subject.view
    launched = view.events.calls["class"][view.copies["call"]] == "launch"
    copies = view.copies.filter(launched, pl.col("direction") == "HtoD")
    copies = copies.join(subject.offloaded, on="op", how="anti")
    count = subject.per_step(len(copies))
    whole = int(copies["bytes"].sum() or 0)
    if not subject.of_steps or count < MANY or whole >= SMALL_BYTES * len(copies):
        return
    host = host_of_launches(subject, copies["op"]).with_columns(
        (pl.col("own_ns") * (count - LEFT) // count).alias("own_ns")
    )
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    most = host.sort("own_ns", "phase")["phase"]
    phase = "" if most.is_empty() or most[-1] == OUTSIDE else most[-1]
    yield Finding(
        rule="small-copies",
        title=f"{number(count)} small copies to the GPU a step{place(phase)}",
        change=CHANGE,
        evidence=(
            f"{size(subject.per_step(whole))} a step in all, {size(whole // len(copies))} each",
            f"their launches and the code before each take the host {subject.spent(own_ns)}",
        ),
        table="copies",
        size_ns=own_ns,
        steps=min(subject.steps, subject.steps_with(copies["start_ns"])),
        changes=without_launches(subject, host),
        exact=False,
        at_most_ns=own_ns,
        phase=phase,
        culprit="memcpy HtoD",
    )
