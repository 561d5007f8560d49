"""Steps inferred from what repeats in a program that marks none, and its other loops (spec §8.24,
§8.29, §8.30)."""

from collections.abc import Iterator
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.phases.stacks import PHASE_RANGES, PhaseRanges
from nsysflow.analysis.steps.launched import Launched, launches_in_order
from nsysflow.analysis.steps.ranges import StepPaths
from nsysflow.analysis.steps.repetition import (
    Repetition,
    find_repetition,
    lasts,
)
from nsysflow.base.errors import SelectionError
from nsysflow.runtime.protocol import STEP

INFERRED_STEPS: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "ended": pl.Boolean(),
        "name": pl.String(),
    }
)
"""A row per inferred step: when its process launched it, on which thread it began, and whether it
`ended` before the recording did. Its `name` is `step`, or that of another loop: `loop 1`, …"""
InferredSteps = Annotated[pl.DataFrame, INFERRED_STEPS]


def infer_steps(events: Events) -> InferredSteps:
    """The steps of each process that repeats something, and those of what else it repeats.

    Args:
        events: of a report whose ranges give no steps.
    """
    found = [INFERRED_STEPS.to_frame()]
    for process in events.ops["process"].drop_nulls().unique().sort():
        launched = launches_in_order(events, process)
        steps = find_repetition(launched)
        if steps is None:
            continue
        others = sorted(_other_loops(launched, steps, _loading_ns(events, process)), key=_begin)
        names = [STEP, *(f"loop {number}" for number in range(1, len(others) + 1))]
        for name, loop in zip(names, [steps, *others], strict=True):
            times = _times(launched, loop)
            thread = events.threads["thread"].gather(times["thread_no"])
            about = pl.lit(process, pl.Int64).alias("process"), pl.lit(name).alias("name")
            found.append(times.with_columns(*about, thread).select(*INFERRED_STEPS))
    return pl.concat(found)


def inferred_paths(steps: InferredSteps, name: str | None, report: str) -> StepPaths:
    """The processes with such steps, which are in no path.

    Args:
        steps: of the report.
        name: what is judged, as given with `--step`: the steps by default.
        report: for the message.

    Raises:
        SelectionError: `name` is another loop than there are.
    """
    asked = name or STEP
    processes = steps.filter(pl.col("name") == asked)["process"].unique(maintain_order=True)
    if name is not None and processes.is_empty():
        known = ", ".join(steps["name"].unique(maintain_order=True)) or "none"
        raise SelectionError(
            f"no range and no inferred loop {name!r} in {report}; inferred: {known}",
            "Without --step, steps are inferred from repeating kernels",
        )
    path, called = pl.lit(None, pl.UInt32).alias("path"), pl.lit(asked)
    return processes.to_frame().select("process", path, name=called, joined=called)


def as_ranges(steps: InferredSteps, events: Events, *, first_range: int) -> PhaseRanges:
    """The steps as ranges without a kind, as automatic steps are.

    Args:
        steps: of the report, or of a part of it.
        events: of the same.
        first_range: the number of the first one, as `range`.
    """
    threads = events.threads.select("thread", "thread_no")
    thread, axis = pl.col("thread_no"), events.axis
    rows = steps.with_row_index("row").join(threads, on="thread", maintain_order="left")
    return rows.select(
        (pl.col("row") + first_range).cast(pl.UInt32).alias("range"),
        "start_ns",
        "end_ns",
        pl.lit(None, PHASE_RANGES["kind"]).alias("kind"),
        "process",
        "thread",
        pl.lit(None, pl.String).alias("domain"),
        "name",
        "row",
        "thread_no",
        "ended",
        pl.lit(value=False).alias("operator"),
        pl.lit(value=False).alias("compiling"),
        axis.at(thread, pl.col("start_ns")).alias("start"),
        axis.at(thread, pl.col("end_ns")).alias("end"),
        pl.lit(0, pl.Int64).alias("captured_ns"),
    ).match_to_schema(PHASE_RANGES)


def _begin(loop: Repetition) -> int:
    return int(loop.begins[0])


def _other_loops(
    launched: Launched, known: Repetition, loading_ns: pl.Series
) -> Iterator[Repetition]:
    """The loops before and after the steps, and before and after each of these. Short loops are
    left out, and those that mostly load code: tuning tries one kernel after another."""
    left = [(0, _begin(known)), (known.end, len(launched))]
    while left:
        first, end = left.pop()
        found = find_repetition(launched.slice(first, end - first))
        if found is None:
            continue
        loop = found.moved(first)
        left += [(first, _begin(loop)), (loop.end, end)]
        if lasts(launched, loop) and not _tunes(_times(launched, loop), loading_ns):
            yield loop


def _loading_ns(events: Events, process: int) -> pl.Series:
    """When a process began to load code, in order."""
    threads = events.threads.filter(pl.col("process") == process)["thread_no"]
    loads = events.calls.filter(
        pl.col("class") == "module_load", pl.col("thread_no").is_in(threads.implode())
    )
    return loads["start_ns"].sort()


def _tunes(times: pl.DataFrame, loading_ns: pl.Series) -> bool:
    """Whether code is loaded in half or more of these steps."""
    before = [loading_ns.search_sorted(times[time]) for time in ("start_ns", "end_ns")]
    return 2 * int((before[1] > before[0]).sum()) >= len(times)


def _times(launched: Launched, found: Repetition) -> pl.DataFrame:
    """When each step was launched, and on which thread it began: from the start of its first call
    to that of the next step's, the last one to the end of its last call, but no longer than to the
    start of the next one."""
    last_ns = launched["done_ns"][found.end - 1]
    if found.end < len(launched):
        last_ns = min(last_ns, launched["begun_ns"][found.end])
    rows = launched.select("thread_no", pl.col("begun_ns").alias("start_ns"))[found.begins]
    return rows.with_columns(
        pl.col("start_ns").shift(-1, fill_value=last_ns).alias("end_ns"),
        (pl.int_range(pl.len()) < pl.len() - int(found.cut)).alias("ended"),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
