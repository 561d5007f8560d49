"""`offloaded-activations`: what the forward pass leaves for the backward pass is kept on the host.

Each tensor is copied out, mostly with a wait for the copy, and copied back before the kernels that
need it: on their stream, so that nothing computes meanwhile.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import scaled
from nsysflow.analysis.findings.launches import host_of_launches, with_less_code
from nsysflow.analysis.findings.stall_findings import places_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number, size

CHANGE: Final = (
    "keep on the GPU what fits: torch.autograd.graph.save_on_cpu, or the hooks that do so, around"
    " the largest layers only, or nowhere",
    "where memory is short: torch.utils.checkpoint for cheap layers, if computing them again takes"
    " less time than their copies",
    "copy on a stream of its own, without waits, and back a layer ahead: such as torchtune's"
    " OffloadActivations(use_streams=True)",
)
PIN: Final = "save_on_cpu(pin_memory=True), for what is left: from pageable memory it copies twice"
NOT_KNOWN: Final = (
    "the report does not say how much memory is free: torch.cuda.mem_get_info() does, and nsysflow"
    " profile --memory"
)


def offloaded_activations(subject: JudgedReport) -> Iterator[Finding]:
    """The copies of activations to the host and back, the waits for them, and the host's time to
    launch them."""
    copies = subject.offloaded
    if copies.is_empty():
        return
    ns = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    every = subject.view.copies.with_columns(ns)
    rows = every.join(copies, on="op", how="semi").with_columns(pl.col("ns").alias("gain_ns"))
    hidden_ns = subject.view.busy.with_comm.between(rows["place"], rows["place"] + rows["ns"])
    exposed_ns = subject.worst_ns(rows.with_columns(exposed=rows["ns"] - hidden_ns), "exposed")
    stalls = subject.stalls_of_offloaded
    waits = places_of(subject, stalls)
    blocked_ns, idle_ns = (sum(one.blocked_ns for one in waits), sum(one.idle_ns for one in waits))
    host = host_of_launches(subject, copies["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    removed = Changes(removed=tuple(removal for one in waits for removal in one.removals))
    scaling = Changes(scaled=scaled(every, rows))
    out = rows.filter(pl.col("direction") == "DtoH")
    moved = size(subject.worst_ns(out, "bytes"))
    (source, via), phase = _line_of(subject, out), _phase_of(out)
    pageable = rows["copy_label"].cast(pl.String).str.starts_with("pageable").any()
    yield Finding(
        rule="offloaded-activations",
        title=f"activations go to the host and come back in backward: {moved}"
        f"{subject.a_step}{place(phase, line(source, via))}",
        change=(*CHANGE, PIN) if pageable else CHANGE,
        evidence=(
            f"{number(subject.per_step(len(out)))} tensors{subject.a_step} go there, and as many"
            " bytes come back in the backward pass",
            f"nothing computes for {subject.spent(exposed_ns)} while they are copied",
            f"the host waits for these copies for {subject.spent(blocked_ns)}, and launching them"
            f" with the code before each takes {subject.spent(own_ns)}",
            *_memory(subject, rows["device"][0], moved),
        ),
        table="copies",
        size_ns=exposed_ns + idle_ns + own_ns,
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        changes=Changes.together([with_less_code(subject, host), removed, scaling]),
        exact=False,
        at_most_ns=exposed_ns + blocked_ns + own_ns,
        process=subject.process_of(rows),
        device=rows["device"][0],
        phase=phase,
        source=source,
        via=via,
        culprit=str(out["short_name"][0]),
    )


def _line_of(subject: JudgedReport, out: pl.DataFrame) -> tuple[str, str]:
    """The program's line, and the framework's, of most of these copies and waits. Those without a
    known line do not count; both are empty where no line has half of the others."""
    calls = pl.concat([out["call"], subject.stalls_of_offloaded["call"]])
    written = pl.col("source", "via").cast(pl.String).fill_null("")
    lines = subject.view.events.calls[["source", "via"]][calls].select(written)
    known = lines.filter((pl.col("source") != "") | (pl.col("via") != ""))
    counts = known.group_by("source", "via").len().sort("len", "source", "via")
    source, via, count = counts.row(-1) if len(counts) else ("", "", 0)
    return (source, via) if 2 * count > len(known) else ("", "")


def _phase_of(out: pl.DataFrame) -> str:
    """The phase in which most bytes go to the host; empty outside all ranges."""
    phases = out.select(pl.col("phase").fill_null(""), "bytes")
    return str(phases.group_by("phase").agg(pl.col("bytes").sum()).sort("bytes", "phase")[-1, 0])


def _memory(subject: JudgedReport, device: int, moved: str) -> Iterator[str]:
    """How much of the GPU's memory is free, where the report says it."""
    row = next(
        subject.tables.larger_batch.filter(pl.col("device") == device).iter_rows(named=True), None
    )
    if row is None:
        yield NOT_KNOWN
        return
    free = size(max(0, row["usable_bytes"] - row["peak_reserved_bytes"]))
    usable = size(row["usable_bytes"])
    yield f"on the GPU they would take {moved}, and {free} of {usable} stay free there"
