"""`gil-contention`: the launching thread waits for Python's lock, which another thread holds."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import share

WORTH_PCT: Final = 5
"""Of the step, as for pauses between launches: below, moving work to a process is not worth it."""

CHANGE: Final = (
    "do that thread's work in a process: multiprocessing, DataLoader(num_workers=1 or more)",
    "or let it give the lock away: NumPy, PyTorch and I/O do, loops of Python do not",
    "or let it give the lock away sooner: sys.setswitchinterval(0.0005) instead of 5 ms",
)


ESTIMATED: Final = "estimated from the CPU time of both threads; nsysflow profile --gil measures it"


def gil_contention(subject: JudgedReport) -> Iterator[Finding]:
    """Idle time in which the launching thread waits for the lock of another thread. No replay tells
    what an estimate of it saves: that says of no instant whether the thread waits."""
    instants, lock = subject.view.gil_instants, subject.timeline.lock_waits
    if instants is None or lock is None:
        return
    rows = instants.drop_nulls("stack")
    of_gaps = subject.view.gaps.select("process", "start_ns", device="device_no")
    rows = rows.hstack(of_gaps[rows["row"]])
    size_ns = subject.worst_ns(rows, "ns")
    if rows.is_empty() or 100 * size_ns < WORTH_PCT * subject.step_ns:
        return
    holder, waits_ns = _holder(subject), int(rows["ns"].sum())
    ran = code({**holder, "via": None}) if holder["function"] is not None else ""
    thread = f"thread {holder['holder']} ({holder['holder_name'] or 'nameless'})"
    phases = subject.tables.gil["phase"].unique()
    phase = holder["phase"] if len(phases) == 1 else ""
    waits, holds = ("seems to wait", "runs") if lock.estimated else ("waits", "holds it")
    yield Finding(
        rule="gil-contention",
        title=f"the launching thread {waits} for Python's lock (GIL)"
        f"{place(phase) if phase else ''}: {ran or thread} {holds}"
        + (" meanwhile" if lock.estimated else ""),
        change=CHANGE,
        evidence=(
            f"{subject.idle(size_ns)} in which it {waits} for the lock:"
            f" {share(waits_ns, int(instants['ns'].sum()))} of host code and launches",
            f"{thread} {holds} for {share(holder['gil_ns'], waits_ns)} of that time"
            + (f", mostly in {ran}" if ran else ""),
            *((ESTIMATED,) if lock.estimated else ()),
            "the saving is that of no such wait at all",
        ),
        table="gil",
        size_ns=size_ns,
        steps=subject.steps_with(rows["start_ns"]),
        changes=None if lock.estimated else Changes(no_gil=True),
        exact=False,
        at_most_ns=size_ns if lock.estimated else 0,
        process=subject.process_of(rows),
        phase=phase,
        fits=True,
    )


def _holder(subject: JudgedReport) -> Mapping[str, Any]:
    """The row of GIL of the thread that holds the lock for most of the time, with that time and the
    phase in which it is most."""
    whole = pl.col("gil_ns").sum().over("process", "holder").alias("whole_ns")
    rows = subject.tables.gil.with_columns(whole)
    most = rows.sort("whole_ns", "gil_ns", descending=True, maintain_order=True)
    row = most.row(0, named=True)
    return {**row, "gil_ns": row["whole_ns"]}
