"""`expert-loop`: the experts of a layer run one at a time, each with a wait for its rows."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import launched_in
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import phase_of, scaled
from nsysflow.analysis.findings.kernels import TINY_NS
from nsysflow.analysis.findings.launches import host_of_launches, without_launches
from nsysflow.analysis.findings.rules.fusion import gain_as_few
from nsysflow.analysis.findings.stall_findings import Stalls, places_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number

CHANGE: Final = (
    "sort the rows by expert once, then one F.grouped_mm for all experts; counts stay on the GPU",
    "before PyTorch 2.10 torch._grouped_mm; where neither fits (dtype, GPU), pad each expert to the"
    " same number of rows: one torch.bmm for all",
    "Hugging Face: from_pretrained(..., experts_implementation='grouped_mm')",
)

NO_GRAPH: Final = (
    "while the loop waits for the GPU, no CUDA graph can hold it, and compiled code breaks"
)


def expert_loop(subject: JudgedReport) -> Iterator[Finding]:
    """The loops over experts: their waits, their launches, and their kernels, of which few are left
    where all experts run at once. Products take as long as they do; how much faster one for all
    experts is, no trace tells."""
    loop = subject.experts
    if not loop.passes:
        return
    waits = places_of(subject, subject.stalls_of_experts)
    every = pl.concat([loop.kernels, loop.backward])
    small = every.filter(pl.col("class") != "matmul", pl.col("ns") < TINY_NS)
    small = small.with_columns(gain_as_few())
    host = host_of_launches(subject, every["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    blocked_ns, idle_ns = (sum(one.blocked_ns for one in waits), sum(one.idle_ns for one in waits))
    removed = Changes(removed=tuple(removal for one in waits for removal in one.removals))
    changes = [removed, without_launches(subject, host)]
    source, via = _line_of(waits)
    spot = launched_in(subject, loop.kernels["op"])
    phase = phase_of(subject, loop.kernels.with_columns(gain_ns="ns"))
    passes, a_step = number(subject.per_step(loop.passes)), subject.a_step
    forward, backward = (len(rows) / loop.passes for rows in (loop.kernels, loop.backward))
    at = (
        place(phase, line(source, via))
        if phase or source or via
        else f" in {spot.code}" * bool(spot.source)
    )
    counted = f"{forward:.0f} kernels" + (f", and {backward:.0f} in backward" if backward else "")
    yield Finding(
        rule="expert-loop",
        title=f"experts run one at a time: {passes} passes{a_step}{at}",
        change=CHANGE,
        evidence=(
            "each pass lists the rows of one expert (nonzero), picks and multiplies them, and puts"
            " them back",
            f"each pass launches {counted}; launches and the code before them take the host"
            f" {subject.spent(own_ns)} in all",
            f"each pass waits for the number of rows, {subject.spent(blocked_ns)} in all;"
            f" {subject.idle(idle_ns)} behind these waits",
            NO_GRAPH,
        ),
        table="launches",
        size_ns=own_ns + idle_ns,
        steps=min(subject.steps, subject.steps_with(loop.kernels["start_ns"])),
        changes=Changes.together([*changes, Changes(scaled=scaled(subject.kernels, small))]),
        exact=False,
        at_most_ns=own_ns + blocked_ns + subject.worst_ns(small, "gain_ns"),
        process=subject.process_of(loop.kernels),
        phase=phase,
        source=source,
        via=via,
    )


def _line_of(waits: tuple[Stalls, ...]) -> tuple[str, str]:
    """The lines that wait longest; empty where none are known."""
    known = [one for one in waits if one.line]
    most = max(known, key=lambda one: one.blocked_ns, default=None)
    return (most.source, most.via) if most else ("", "")
