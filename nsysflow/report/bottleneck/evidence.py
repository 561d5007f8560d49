"""What is known of a bottleneck: where it is, how much time is there, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.phases.steps import SKIPPED_BY_DEFAULT
from nsysflow.report.bottleneck.bottlenecks import (
    CLEARING,
    COMMUNICATION,
    COPIES,
    EAGER_ADVICE,
    GRAPHED_ADVICE,
    HOST,
    LATER_ADVICE,
    LAUNCH,
    LOADING,
    ON_GPU,
    OUTSIDE_ADVICE,
    PEERS,
    READ_BACK,
    SCATTERED_ADVICE,
    SENDING,
    START_UP_ADVICE,
    UNEVEN,
    WAITING,
    Bottleneck,
)
from nsysflow.report.bottleneck.places import largest, parts_of, place_of, placed, there, within
from nsysflow.report.bottleneck.shared_gpus import once_per_gpu
from nsysflow.report.results import Results, gpu_name, or_outside

_SHORT_NS: Final = 200_000
_OFTEN: Final = 20
"""An eager framework makes pauses of host code this short, and this many per step, between its
launches: 400 of 59 us in a model whose operators are Python modules. Longer or rarer ones are the
program's own."""

_SMALL_BYTES: Final = 1 << 16
"""A copy to the host of at most this size reads a value; a larger one moves data."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a bottleneck.

    Attributes:
        lost_ns: the time at the place that `what` names; all of it where it names none.
        what: what happens, a noun phrase.
        advice: what to do next, a clause.
    """

    lost_ns: int
    what: str
    advice: str


def evidence_of(
    results: Results, devices: pl.DataFrame, bottleneck: Bottleneck, columns: Sequence[str]
) -> Evidence:
    """What is known of a bottleneck on some GPUs.

    Args:
        results: the run.
        devices: rows of accounting.
        bottleneck: the reason.
        columns: those of its columns that count.
    """
    lost_ns = sum(int(devices[column].sum()) for column in columns)
    if bottleneck is COMMUNICATION:
        return _of_communication(results, devices, lost_ns)
    parts = parts_of(results, devices, columns)
    where, there_ns = place_of(results, parts, lost_ns)
    here = parts.filter(within(where)) if where else parts
    steps = results.table("steps").join(devices, on=["report", "device"], how="semi")
    apart = not steps.is_empty() and 2 * once_per_gpu(steps, columns) < lost_ns
    if bottleneck is COPIES:
        bottleneck = _of_copies(results, devices, parts, lost_ns)
    call = largest(parts.filter(pl.col("culprit") != ""), "culprit") or "a CUDA call"
    if bottleneck is LAUNCH and _is_graphed(results, devices, steps, where):
        advice = GRAPHED_ADVICE
    else:
        advice = _advice(bottleneck, here, where, steps, apart=apart)
    place = placed(bottleneck, where, apart=apart, between=not steps.is_empty())
    return Evidence(
        lost_ns=there_ns if where else lost_ns,
        what=bottleneck.what.format(call=call, place=place),
        advice=advice.format(there=there(here, bottleneck, where)),
    )


def _advice(
    bottleneck: Bottleneck, here: pl.DataFrame, where: str, steps: pl.DataFrame, *, apart: bool
) -> str:
    """What helps against a bottleneck as it is at this place."""
    if bottleneck is HOST and where == OUTSIDE:
        return OUTSIDE_ADVICE[None if steps.is_empty() else not apart]
    if apart:
        return START_UP_ADVICE
    if bottleneck is HOST and _is_of_eager_launching(here, steps.height):
        return EAGER_ADVICE
    if bottleneck is HOST and not where:
        return SCATTERED_ADVICE
    if bottleneck is LOADING and steps.filter(pl.col("step") >= SKIPPED_BY_DEFAULT).is_empty():
        return LATER_ADVICE
    return bottleneck.advice


def _is_of_eager_launching(here: pl.DataFrame, steps: int) -> bool:
    """Whether host code is many short pauses, as between the operators of an eager framework."""
    times = int(here["times"].sum())
    return times >= _OFTEN * max(steps, 1) and int(here["total_ns"].sum()) <= _SHORT_NS * times


def _is_graphed(results: Results, devices: pl.DataFrame, steps: pl.DataFrame, where: str) -> bool:
    """Whether the launches there are of CUDA graphs: each starts several kernels, or, where these
    were not recorded, most launch idle is due to graph launches."""
    inside = pl.col("path") == where if where not in ("", OUTSIDE) else pl.col("depth") == 1
    phases = results.table("phases").filter(inside).join(devices, on="report", how="semi")
    if not steps.is_empty():  # a phase is of a process, not of a GPU
        phases = phases.join(steps, on=["report", "process"], how="semi")
    if int(phases["kernels"].sum()) > 2 * int(phases["launches"].sum()):
        return True
    here = results.table("gap_summary").join(devices, on=["report", "device"], how="semi")
    launches = here.filter(pl.col("cause") == "launch")
    if where:
        launches = launches.with_columns(or_outside("phase").alias("where")).filter(within(where))
    graphs = launches.filter(pl.col("culprit").str.contains("GraphLaunch", literal=True))
    return 2 * int(graphs["total_ns"].sum()) > int(launches["total_ns"].sum())


def _of_copies(
    results: Results, devices: pl.DataFrame, parts: pl.DataFrame, lost_ns: int
) -> Bottleneck:
    """COPIES, or what most of it is: values read back, copies within the GPU or between GPUs, or
    memsets."""
    if _reads_back(results, devices, lost_ns):
        return READ_BACK
    for direction, bottleneck in (("DtoD", ON_GPU), ("PtoP", PEERS)):
        one_way = parts.filter(pl.col("direction").cast(pl.String) == direction)
        if 2 * int(one_way["total_ns"].sum()) > lost_ns:
            return bottleneck
    elsewhere = 2 * int(parts["total_ns"].sum()) < lost_ns
    # a memcpy that the edge of a window cuts is in no table either
    none_is_cut = not results.cuts_steps or not results.has_copies
    return CLEARING if elsewhere and none_is_cut else COPIES


def _reads_back(results: Results, devices: pl.DataFrame, lost_ns: int) -> bool:
    """Whether most of it is values that the host reads: `.item()` copies a few bytes."""
    reads = results.induced().filter(
        pl.col("kind") == "blocking_copy",
        pl.col("direction") == "DtoH",
        pl.col("bytes") <= _SMALL_BYTES,
    )
    here = reads.join(devices, on=["report", "device"], how="semi")
    return 2 * int(here["induced_idle_ns"].sum()) > lost_ns


def _of_communication(results: Results, devices: pl.DataFrame, lost_ns: int) -> Evidence:
    """Of exposed communication: waiting for a straggler, for several ranks, or sending."""
    key = ["report", "device"]
    ranks = results.table("ranks").drop_nulls("late_ns")
    here = ranks.join(devices, on=key, how="semi")
    bottleneck, straggler = COMMUNICATION, ""
    if 2 * int(here["waited_ns"].sum()) > int(devices["comm_ns"].sum()):
        latest = ranks.select(*key, "late_ns").sort("late_ns", descending=True)
        late_ns = latest["late_ns"].to_list()
        straggler = gpu_name(*latest.drop("late_ns").row(0), several=len(results.reports) > 1)
        bottleneck = WAITING if late_ns[0] >= 2 * max(late_ns[1:], default=0) else UNEVEN
    elif _sends(results, devices):
        bottleneck = SENDING
    return Evidence(
        lost_ns=lost_ns,
        what=bottleneck.what.format(rank=straggler),
        advice=bottleneck.advice.format(rank=straggler),
    )


def _sends(results: Results, devices: pl.DataFrame) -> bool:
    """Whether most of it is sends and receives, as between the stages of a pipeline."""
    comm = results.table("comm").join(devices, on=["report", "device"], how="semi")
    sends = comm.filter(pl.col("name").str.contains("SendRecv", literal=True))
    return 2 * int(sends["exposed_ns"].sum()) > int(comm["exposed_ns"].sum())
