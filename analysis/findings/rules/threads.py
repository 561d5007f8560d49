"""What keeps the thread that launches from running, while the GPU waits for it.

* `cpu-wait`: it could run and has no CPU.
* `gil-contention`: it waits for Python's lock, which another thread holds.
* `profiler-overhead`: it does the profiler's own work, so that other figures are inflated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import itself
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.tables.gaps import descheduled
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import cpus, duration, percent, share

LEAST_PCT: Final = 2
"""Of a step. Less comes and goes with what else a machine does now and then: without a neighbour,
threads waited 0.004 % of the time (2 CPUs, 2026-11-27)."""

FULL: Final = 0.9
"""CPUs that are busy for so much of the time have none free when a thread wakes up."""

THROTTLED: Final = 0.01
"""A limit that holds a process up for less of the time is not why its thread waits."""

OTHERS: Final = 0.1
"""Others that use so much of the CPUs do not just tick."""

LEAST_OF_LOCK_PCT: Final = 5
"""Of the step, as for pauses between launches: below, moving work to a process is not worth it."""

CHANGE_OF_LOCK: Final = (
    "do that thread's work in a process: multiprocessing, DataLoader(num_workers=1 or more)",
    "or let it give the lock away: NumPy, PyTorch and I/O do, loops of Python do not",
    "or let it give the lock away sooner: sys.setswitchinterval(0.0005) instead of 5 ms",
)

ESTIMATED: Final = "estimated from the CPU time of both threads; nsysflow profile --gil measures it"


@dataclass(frozen=True)
class _Reason:
    """Why the thread has no CPU: how the title ends, and what helps."""

    title: str
    change: tuple[str, ...]


_THREADS: Final = (
    "let fewer threads run: OMP_NUM_THREADS and torch.set_num_threads below the number of CPUs,"
    " fewer DataLoader workers"
)

LIMIT: Final = _Reason(
    "the CPU limit of its container holds it up",
    ("raise the limit, or take it away: --cpus of docker, resources.limits.cpu of a pod", _THREADS),
)
TOO_FEW: Final = _Reason(
    "its own program takes all CPUs",
    (_THREADS, "give it more CPUs: --cpus-per-task of Slurm, taskset, a larger machine"),
)
ONE: Final = _Reason(
    "its program may use only one",
    (
        "let it use more: do not bind it to one (taskset, os.sched_setaffinity), and ask Slurm for"
        " more (--cpus-per-task)",
        _THREADS,
    ),
)
NEIGHBOUR: Final = _Reason(
    "others take the CPUs",
    (
        "see who: top; other ranks on the same CPUs count, each with its threads",
        "give each process CPUs of its own: taskset, numactl --physcpubind, --cpu-bind of Slurm",
    ),
)
UNKNOWN: Final = _Reason(
    "the CPUs are not all busy",
    (
        "see whether its threads are bound to one CPU: taskset -acp PID, and who shares it: top -1",
        "bind the launching thread to a CPU of its own: os.sched_setaffinity(0, {CPU})",
    ),
)


def cpu_wait(subject: JudgedReport) -> Iterator[Finding]:
    """The wait for a CPU in idle time of the judged part, of the process with most of it."""
    gaps = subject.view.gaps
    every = gaps.select(
        os_pid(pl.col("process")).alias("process"),
        subject.timeline.events.ops["device"][gaps["next_op"]].alias("device"),
        *("start_ns", "host_ns", "host_node"),
        descheduled(subject.view, gaps),
    )
    rows = every.filter(pl.col("descheduled_ns") > 0)
    threads = subject.tables.cpu.drop_nulls("descheduled_ns")
    size_ns = subject.worst_ns(rows, "descheduled_ns")
    if rows.is_empty() or 100 * size_ns < LEAST_PCT * subject.step_ns:
        return
    thread = threads.sort("descheduled_ns", descending=True, maintain_order=True).row(0, named=True)
    reason = _reason(thread)
    yield Finding(
        rule="cpu-wait",
        title=f"the launching thread waits for a CPU: {reason.title}",
        change=reason.change,
        evidence=(
            f"the GPU waits {subject.spent(size_ns)} for a thread that could run and has no CPU",
            f"that thread waited {percent(thread['waited_pct'])} of the recording,"
            f" {duration(thread['waited_ns'])}",
            *_used(thread),
        ),
        table="cpu",
        size_ns=size_ns,
        changes=_without_waits(subject, every),
        exact=False,
        at_most_ns=size_ns,
        steps=subject.steps_with(rows["start_ns"]),
        process=thread["process"] if subject.timeline.events.users.height > 1 else None,
        fits=True,
    )


def _without_waits(subject: JudgedReport, gaps: pl.DataFrame) -> Changes:
    """The host's code of each phase less the share of it that is a wait for a CPU while a GPU
    idles: what other findings say of this code is then what is left."""
    phase = subject.view.attribution.name_of(gaps["host_node"]).cast(pl.String).fill_null("")
    phase = phase.replace("", OUTSIDE).alias("phase")
    sums = gaps.group_by(phase).agg(pl.col("descheduled_ns", "host_ns").sum())
    left = (1 - pl.col("descheduled_ns") / pl.col("host_ns")).clip(lower_bound=0)
    waits = sums.filter(pl.col("descheduled_ns") > 0).sort("phase").select("phase", left)
    return Changes(faster_host=tuple((itself(subject, name), left) for name, left in waits.rows()))


def _reason(thread: Mapping[str, Any]) -> _Reason:
    """Why it has no CPU, by what is known of its process."""
    lasted_ns = thread["end_ns"] - thread["start_ns"]
    if thread["limit_cores"] is not None and (thread["throttled_ns"] or 0) > THROTTLED * lasted_ns:
        return LIMIT
    cores = thread["cores"] or 0
    own = (thread["used_cores"] or 0) + (thread["started_cores"] or 0)
    others = thread["others_cores"] or 0
    if cores and own >= FULL * cores:
        return ONE if cores == 1 else TOO_FEW
    if cores and own + others >= FULL * cores and others >= OTHERS * cores:
        return NEIGHBOUR
    return UNKNOWN


def _used(thread: Mapping[str, Any]) -> Iterator[str]:
    """`of 4 CPUs it used 3.9, processes that it started 0.1, others 0.0`; what limits it."""
    if thread["used_cores"] is not None:
        used = f"of {cpus(thread['cores'])} its process used {thread['used_cores']:.1f}"
        started, others = thread["started_cores"], thread["others_cores"]
        more = [f"those that it started {started:.1f}"] if started else []
        more += [] if others is None else [f"others {others:.1f}"]
        yield ", ".join([used, *more])
    if thread["throttled_ns"]:
        held_ns = duration(thread["throttled_ns"])
        yield f"a limit of {thread['limit_cores']:g} CPUs held it up for {held_ns}, over all CPUs"


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
    if rows.is_empty() or 100 * size_ns < LEAST_OF_LOCK_PCT * subject.step_ns:
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
        change=CHANGE_OF_LOCK,
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


LEAST_OF_PROFILER_PCT: Final = 2
"""Below, it changes no other figure. Starting nsys costs up to 1.1 % of five captured steps
(alloc_churn, rolloutcopy-torch)."""

CHANGE_OF_PROFILER: Final = (
    "record less: no lines of launches (--backtrace waits, or none), fewer steps (--capture)",
    "leave out the first captured step: the profiler starts during it",
)


def profiler_overhead(subject: JudgedReport) -> Iterator[Finding]:
    """Idle time in which the profiler worked on the thread that launches."""
    idle_ns = subject.worst_ns(subject.tables.accounting, "profiler_ns")
    if 100 * idle_ns < LEAST_OF_PROFILER_PCT * subject.step_ns:
        return
    rows = subject.tables.gap_summary.filter(pl.col("cause") == "profiler")
    yield Finding(
        rule="profiler-overhead",
        title="the profiler's own work keeps the GPU waiting",
        change=CHANGE_OF_PROFILER,
        evidence=(
            f"{subject.idle(idle_ns)} while the profiler works:"
            f" {', '.join(sorted(rows['culprit'].unique()))}",
            "without a profiler the program does not lose this",
        ),
        table="gap_summary",
        size_ns=idle_ns,
        steps=subject.steps,
        changes=Changes(no_profiler=True),
    )
