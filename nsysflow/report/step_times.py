"""Recorded steps, how long they take without the profiler, and a sentence on them."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.base.units import duration, number
from nsysflow.report.results import Results


@dataclass(frozen=True, kw_only=True)
class WithoutProfiler:
    """What the profiler does to a step.

    Attributes:
        step_ns: a step without it, the median of the processes that measured it.
        added_ns: what it adds; below 0 where the recorded steps are the shorter ones.
    """

    step_ns: int
    added_ns: int


def steps_by_range(results: Results) -> Iterator[tuple[object, pl.DataFrame]]:
    """The steps of each range that is a step, with its path."""
    steps = results.table("steps").join(
        results.step_names, on=["report", "process"], how="left", maintain_order="left"
    )
    for (name,), some in steps.group_by("name", maintain_order=True):
        yield name, some


def without_profiler(results: Results, steps: pl.DataFrame) -> WithoutProfiler | None:
    """What the profiler does to these steps: to the steady ones if there are any, and only of the
    processes that measured a step without it. None where none did."""
    of = ["report", "process"]
    steady = steps.filter("steady")
    steps = steps if steady.is_empty() else steady
    measured = results.captures.drop_nulls("unprofiled_step_ns").join(steps, on=of, how="semi")
    profiled = steps.join(measured, on=of, how="semi")
    if profiled.is_empty():
        return None
    step_ns = int(measured.select(pl.col("unprofiled_step_ns").median().round()).item())
    return WithoutProfiler(step_ns=step_ns, added_ns=median_ns(profiled) - step_ns)


def median_ns(steps: pl.DataFrame) -> int:
    """The median duration of these steps."""
    return int(steps.select(pl.col("duration_ns").median().round()).item())


def steps_sentence(results: Results) -> str:
    """`train_step 44.3 ms, mean of 3 of 5 (unprofiled 40.0 ms)`, for each range that is a step;
    empty without steps."""
    return "; ".join(_clause(results, name, steps) for name, steps in steps_by_range(results))


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
    mean = f"mean of {number(some)} of {number(all_)}" if some < all_ else f"mean of {number(all_)}"
    clause = f"{name or 'step'} {duration(mean_ns)}{f', {mean}' if all_ > 1 else ''}"
    unprofiled = without_profiler(results, steps)
    if unprofiled is None:
        return clause
    return f"{clause} (unprofiled {duration(unprofiled.step_ns)})"


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process has; all ranks have theirs at the same time."""
    counts = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(counts["step"])
