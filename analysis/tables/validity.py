"""Whether a recording is fit to be judged (spec §12.2), and what to know of one with CUDA graphs
(§12.8).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.events.lost_launches import are_queued, kernel_launches
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.ranges import instance_ranges
from nsysflow.analysis.trace import IMPORT_ERRORS, Note, NoteKind, Trace
from nsysflow.base.units import duration

LEAST_PCT: Final = 1
"""A step that lacks this share of its operations is not what ran: its busy time is too short by as
much, and the difference counts as idle time."""


@dataclass(frozen=True, kw_only=True)
class LostOperations:
    """What is missing.

    Attributes:
        launches: how many lack their operation, in stretches.
        of: how many launches there are.
        start_ns: when the first of them was called.
        end_ns: when the last of them returned.
    """

    launches: int
    of: int
    start_ns: int
    end_ns: int


def lost_operations(view: View) -> LostOperations | None:
    """The operations that are missing in stretches; None where they do not matter."""
    timeline = view.timeline
    in_stretches = timeline.launches_in_stretches
    if in_stretches is None:
        return None
    queued = are_queued(in_stretches, timeline.events, timeline.lost_launches)
    launches = view.calls_in_sight(in_stretches.with_columns(pl.col("lost") & ~queued))
    lost = launches.filter("lost")
    if lost.is_empty() or not _matters(launches, timeline):
        return None
    first, last = lost.select(pl.col("start_ns").min(), pl.col("end_ns").max().alias("last")).row(0)
    return LostOperations(launches=len(lost), of=len(launches), start_ns=first, end_ns=last)


def _matters(launches: pl.DataFrame, timeline: Timeline) -> bool:
    """Whether a step lacks enough of its operations, or a process as a whole.

    Launches are in the order of process and start. Thousands of steps are looked up in them by
    search, and the lost ones between two places are a difference of running sums.
    """
    axis = timeline.events.axis
    processes = launches.select(pl.col("process").unique().sort()).with_row_index("process_no")
    pieces = pl.concat([_step_spans(timeline), _process_spans(launches)]).join(
        processes, on="process"
    )
    called = launches.join(processes, on="process", maintain_order="left")
    places = axis.at(called["process_no"], called["start_ns"])
    first, end = (
        places.search_sorted(axis.at(pieces["process_no"], pieces[time]), side="left")
        for time in ("piece_start", "piece_end")
    )
    lost_before = pl.concat([pl.Series("lost", [0], pl.UInt32), launches["lost"].cum_sum()])
    lost = lost_before.gather(end) - lost_before.gather(first)
    return bool(((lost > 0) & (100 * lost >= LEAST_PCT * (end - first))).any())


def _step_spans(timeline: Timeline) -> pl.DataFrame:
    """When the host was in each step, with or without operations."""
    return instance_ranges(timeline.with_inferred, timeline.step_paths).select(
        "process", pl.col("start_ns").alias("piece_start"), pl.col("end_ns").alias("piece_end")
    )


def _process_spans(launches: pl.DataFrame) -> pl.DataFrame:
    """All of each process. The verdict is of the whole window, and the steps may not fill it."""
    return launches.group_by("process").agg(
        pl.col("start_ns").min().alias("piece_start"),
        (pl.col("start_ns").max() + 1).alias("piece_end"),
    )


UNSTAMPED_PCT: Final = 1
"""CUPTI writes 0 where it has no time. An operation at 0 is at the wrong place and has the wrong
length: from this share on, the parts of a step are off by more than they are told apart by."""


class Check(StrEnum):
    """A check, by the name that report.json has for it; in the order of their weight."""

    NO_KERNELS = "no-kernels"
    IMPORT_ERRORS = "import-errors"
    UNSTAMPED = "unstamped-operations"
    INCOMPLETE = "incomplete-capture"


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """A check that a report did not pass.

    Attributes:
        check: which one.
        count: how many are wrong: errors, operations or launches. Of NO_KERNELS, how many launches
            there are.
        of: how many there are in all. Of NO_KERNELS, how many operations of other kinds; of
            IMPORT_ERRORS, 0.
        start_ns: from when on; None where it is not a matter of time.
        end_ns: until when.
    """

    check: Check
    count: int
    of: int
    start_ns: int | None = None
    end_ns: int | None = None


def failed_checks(view: View) -> tuple[FailedCheck, ...]:
    """The checks that the report fails, the weightiest first; none for a sound one."""
    events = view.events
    if _no_kernels(events):
        launches = int(events.calls.select(kernel_launches().sum()).item())
        return (FailedCheck(check=Check.NO_KERNELS, count=launches, of=len(events.ops)),)
    return (*_import_errors(events), *_unstamped(events), *_incomplete(view))


def _no_kernels(events: Events) -> bool:
    """Whether not one kernel, nor a graph traced whole, is in a report of something else.

    torch.profiler records kernels only where it is asked to, which is another thing.
    """
    kernels = events.ops["kind"].is_in(["kernel", "graph"]).any()
    something = any(map(len, (events.ops, events.calls, events.ranges)))
    return events.trace.collector == "nsys" and something and not kernels


def import_errors(trace: Trace) -> int:
    """How often nsys says that it could not import what it had recorded."""
    if trace.diagnostics.is_empty():
        return 0  # the search alone takes a millisecond
    return int(trace.diagnostics["text"].str.contains(IMPORT_ERRORS).sum())


def _import_errors(events: Events) -> Iterator[FailedCheck]:
    if errors := import_errors(events.trace):
        yield FailedCheck(check=Check.IMPORT_ERRORS, count=errors, of=0)


def _unstamped(events: Events) -> Iterator[FailedCheck]:
    found, of = events.unstamped, events.recorded
    if found and 100 * found >= UNSTAMPED_PCT * of:
        yield FailedCheck(check=Check.UNSTAMPED, count=found, of=of)


def _incomplete(view: View) -> Iterator[FailedCheck]:
    lost = lost_operations(view)
    if lost is not None:
        yield FailedCheck(
            check=Check.INCOMPLETE,
            count=lost.launches,
            of=lost.of,
            start_ns=lost.start_ns,
            end_ns=lost.end_ns,
        )


_LEAST_GRAPH_PCT: Final = 10
"""Where graphs have a smaller part of the operations' time, idle time in them changes little."""

_LEAST_OF_STEP_PCT: Final = 1
"""Findings that save less of a step are left out too."""

_DEVICE: Final = ("process", "device_no")


@dataclass(frozen=True, kw_only=True)
class RecordedIdle:
    """Idle time between operations of one graph launch, of a step.

    Attributes:
        idle_ns: all of it.
        longer_ns: by how much recorded steps take longer than those before the window.
    """

    idle_ns: int
    longer_ns: int

    @property
    def added_ns(self) -> int:
        """The most of it that the recording can have added."""
        return min(self.idle_ns, self.longer_ns)


def recorded_idle(view: View) -> RecordedIdle | None:
    """That of the process and device where the recording adds most.

    None where it adds less than 1 % of a step, graphs have less than 10 % of the operations' time,
    or no step before the window was timed.

    Args:
        view: of the judged steps.
    """
    before = view.trace.captures.drop_nulls("unprofiled_step_ns")
    if before.is_empty() or not view.of_steps or not view.events.ops["graph_node"].count():
        return None
    length = pl.col("end_ns") - pl.col("start_ns")
    of_graphs = length.filter(pl.col("graph_node").is_not_null()).sum()
    enough = 100 * of_graphs >= _LEAST_GRAPH_PCT * length.sum()
    mostly = view.ops.group_by(_DEVICE).agg(enough.alias("enough")).filter("enough")
    step_ns = length.median().round().cast(pl.Int64)
    longer_ns = step_ns - pl.col("unprofiled_step_ns").first()
    steps = view.steps.join(before, on="process").group_by(_DEVICE)
    found = (
        steps.agg(
            step_ns.alias("step_ns"),
            longer_ns.alias("longer_ns"),
            pl.len().cast(pl.Int64).alias("steps"),
        )
        .join(mostly, on=_DEVICE)
        .join(_idle_in_graphs(view), on=_DEVICE)
        .with_columns(pl.col("idle_ns") // pl.col("steps"))
        .with_columns(pl.min_horizontal("longer_ns", "idle_ns").alias("added_ns"))
        .filter(
            pl.col("added_ns") > 0,
            100 * pl.col("added_ns") >= _LEAST_OF_STEP_PCT * pl.col("step_ns"),
        )
        .sort("added_ns", "longer_ns", "idle_ns")
        .select("idle_ns", "longer_ns")
    )
    return None if found.is_empty() else RecordedIdle(**found.row(-1, named=True))


def _idle_in_graphs(view: View) -> pl.DataFrame:
    """`process`, `device_no`, `idle_ns`: the gaps between two operations of one graph launch."""
    graph = view.events.ops[["process", "correlation", "graph_node", "device_no"]]
    gaps = view.gaps
    before, after = (graph[gaps[side]] for side in ("prev_op", "next_op"))
    inside = before["graph_node"].is_not_null() & after["graph_node"].is_not_null()
    for key in ("process", "correlation"):
        inside &= before[key] == after[key]
    length = (gaps["end_ns"] - gaps["start_ns"]).alias("idle_ns")
    rows = after.select(_DEVICE).with_columns(length).filter(inside)
    return rows.group_by(_DEVICE).agg(pl.col("idle_ns").sum())


def notes_on_graphs(view: View) -> Iterator[Note]:
    """A note on how far replays of CUDA graphs are longer than before the window.

    Args:
        view: of what is judged.
    """
    if (found := recorded_idle(view)) is not None:
        yield Note(
            NoteKind.SLOWED_GRAPHS,
            f"idle inside CUDA graphs: {duration(found.idle_ns)} a step, of which up to"
            f" {duration(found.added_ns)} is the recording's, as a step takes"
            f" {duration(found.longer_ns)} longer than before the window; to trace each graph as a"
            f" whole: {view.options.recording('--graph-trace graph')}",
        )
