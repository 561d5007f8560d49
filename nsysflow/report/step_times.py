"""Recorded steps, and how long they take without the profiler."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

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
