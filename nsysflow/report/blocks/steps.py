"""Steps: a sentence on all of them, a block with one per row."""

import polars as pl

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.base.units import duration, number
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    gpu_fields,
    make_block,
    more_rows,
    named_rows,
    time_and_share,
    value,
)
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.report.step_times import steps_by_range, without_profiler


def block(results: Results, limits: Limits) -> Block:
    """The first steps, one per row."""
    table = results.table("steps")
    return make_block(
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
        rest=more_rows(table.height - limits.rows, "steps"),
    )


def _part(head: str, column: str) -> Field[Row]:
    """A part of a step and its share."""
    return figure(head), lambda row: time_and_share(row[column], row["duration_ns"])


def steps_sentence(results: Results) -> str:
    """`train_step 44.3 ms, mean of 3 of 5 (unprofiled 40.0 ms)`, for each range that is a step;
    empty without steps."""
    return "; ".join(_clause(results, *each) for each in steps_by_range(results))


def _clause(results: Results, name: object, steps: pl.DataFrame) -> str:
    """The steps of one range; the time is that of the slowest rank."""
    key = ["report", "process", "device", "step"]
    judged = results.judged.step_keys if results.judged.of_steps else steps
    judged = steps.join(judged, on=key, how="semi")
    if judged.is_empty():
        judged = steps
    means = judged.group_by("report", "process", "device").agg(pl.col("duration_ns").mean())
    mean_ns = round(float(means["duration_ns"].max()))  # type: ignore[arg-type]
    some, all_ = _count(judged), _count(steps)
    of = f"mean of {number(some)} of {number(all_)}" if some < all_ else f"mean of {number(all_)}"
    clause = f"{name or 'step'} {duration(mean_ns)}{f', {of}' if all_ > 1 else ''}"
    found = without_profiler(results, steps)
    return clause if found is None else f"{clause} (unprofiled {duration(found.step_ns)})"


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process has; all ranks have theirs at the same time."""
    each = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(each["step"])
