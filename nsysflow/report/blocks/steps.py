"""Steps: a sentence on all of them, a block with one per row."""

import polars as pl

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    filled,
    gpu_fields,
    left_out,
    named_rows,
    time_and_share,
    value,
)
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.report.step_times import median_ns, steps_by_range, without_profiler
from nsysflow.units import duration, number, whole_percent


def block(results: Results, limits: Limits) -> Block:
    """The first steps, one per row."""
    table = results.table("steps")
    return filled(
        "Steps",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (figure("step"), value("step")),
            (figure("time"), value("duration_ns", duration)),
            _part("compute", "compute_ns"),
            _part("communication", "comm_exposed_ns"),
            _part("copy", "copy_exposed_ns"),
            _part("idle", "idle_ns"),
            (words("steady"), lambda row: "yes" if row["steady"] else ""),
        ),
        caption=steps_sentence(results),
        more=left_out(table.height - limits.rows, "steps"),
    )


def _part(head: str, column: str) -> Field[Row]:
    """A part of a step and its share."""
    return figure(head), lambda row: time_and_share(row[column], row["duration_ns"])


def steps_sentence(results: Results) -> str:
    """`5 steps of step, median 61.4 ms (2 to 4 steady: 60.9 ms, 12 % idle; unprofiled 50.0 ms: the
    profiler adds 22 %)`, for each range that is a step; empty without steps."""
    return "; ".join(_clause(results, *each) for each in steps_by_range(results))


def _clause(results: Results, name: object, steps: pl.DataFrame) -> str:
    per_process = _count(steps)
    plural = "s" if per_process != 1 else ""
    count = f"{number(per_process)} step{plural}{f' of {name}' if name else ''}"
    steady = steps.filter("steady")
    remarks = []
    if 0 < steady.height < steps.height:
        idle = whole_percent(int(steady["idle_ns"].sum()), int(steady["duration_ns"].sum()))
        median = duration(median_ns(steady))
        remarks.append(f"{_which(steps, steady)} steady: {median}, {idle} idle")
    remarks += _unprofiled(results, steps)
    clause = f"{count}, median {duration(median_ns(steps))}"
    return f"{clause} ({'; '.join(remarks)})" if remarks else clause


def _which(steps: pl.DataFrame, steady: pl.DataFrame) -> str:
    """The steady steps: `2 to 4`, or how many where others lie between them."""
    which = steady["step"].unique().sort()
    first, last = which[0], which[-1]
    if last - first + 1 > len(which):
        return f"{number(len(which))} of {number(_count(steps))}"
    return f"{first} to {last}" if last > first else f"step {first}"


def _unprofiled(results: Results, steps: pl.DataFrame) -> list[str]:
    """How long a step takes without the profiler, and what the profiler adds."""
    found = without_profiler(results, steps)
    if found is None:
        return []
    text = f"unprofiled {duration(found.step_ns)}"
    if found.added_ns <= 0 or not found.step_ns:
        return [text]
    return [f"{text}: the profiler adds {whole_percent(found.added_ns, found.step_ns)}"]


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process has; all ranks have theirs at the same time."""
    each = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(each["step"])
