"""Recorded steps, how long they take without the profiler, and a sentence on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.base.units import duration, number
from nsysflow.report.results import Results, RunTables


@dataclass(frozen=True, kw_only=True)
class WithoutProfiler:
    """What the profiler does to a step.

    Attributes:
        step_ns: a step without it, the median of the processes that measured it.
        added_ns: what it adds; below 0 where the recorded steps are the shorter ones.
    """

    step_ns: int
    added_ns: int


def steps_by_range(results: RunTables) -> Iterator[tuple[object, pl.DataFrame]]:
    """The steps of each range that is a step, with its path."""
    steps = results.table("steps").join(
        results.together(lambda report: report.step_names),
        on=["report", "process"],
        how="left",
        maintain_order="left",
    )
    for (name,), some in steps.group_by("name", maintain_order=True):
        yield name, some


def without_profiler(results: RunTables, steps: pl.DataFrame) -> WithoutProfiler | None:
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


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """What a step takes, of the slowest rank.

    Attributes:
        step_ns: the mean of all steps after start-up that were recorded whole.
        typical_step_ns: the mean of the typical ones, which are judged.
        plain_step_ns: a step of the same program without a profiler; None where none was timed.
        undisturbed_step_ns: `step_ns` without the profiler's share, as far as a replay can take it
            out; None without a plain step.
    """

    step_ns: int
    typical_step_ns: int
    plain_step_ns: int | None
    undisturbed_step_ns: int | None

    @property
    def inflation_pct(self) -> float | None:
        """How much longer a recorded step is than a plain one."""
        if not self.plain_step_ns:
            return None
        return 100 * (self.step_ns - self.plain_step_ns) / self.plain_step_ns


def step_time(results: Results) -> StepTime | None:
    """What a step takes; None where no steps are judged."""
    found = results.found
    if not found.of_steps:
        return None
    return StepTime(
        step_ns=found.step_ns,
        typical_step_ns=found.typical_step_ns,
        plain_step_ns=results.origin.plain_step_ns,
        undisturbed_step_ns=found.undisturbed_step_ns if results.origin.plain_step_ns else None,
    )


def median_ns(steps: pl.DataFrame) -> int:
    """The median duration of these steps."""
    return int(steps.select(pl.col("duration_ns").median().round()).item())


APART_PCT: Final = 1
"""Where mean and typical step differ by less, one of them says enough."""


def steps_sentence(results: Results) -> str:
    """`train_step 44.3 ms, mean of 4 of 5, typically 40.1 ms (plain 40.0 ms)`, for each range that
    is a step; empty without steps."""
    return "; ".join(_clause(results, name, steps) for name, steps in steps_by_range(results))


def _clause(results: Results, name: object, steps: pl.DataFrame) -> str:
    """The steps of one range; the times are those of the slowest rank."""
    judged = run = steps
    if results.judged.of_steps:
        judged, run = (_those(steps, part) for part in (results.judged, results.run_steps))
    typical_ns, mean_ns = _longest_mean_ns(judged), _longest_mean_ns(run)
    some, all_ = _count(run), _count(steps)
    mean = f"mean of {number(some)} of {number(all_)}" if some < all_ else f"mean of {number(all_)}"
    clause = f"{name or 'step'} {duration(mean_ns)}{f', {mean}' if all_ > 1 else ''}"
    if 100 * (mean_ns - typical_ns) >= APART_PCT * typical_ns:
        clause += f", typically {duration(typical_ns)}"
    if plain_ns := results.origin.plain_step_ns:
        return f"{clause} (plain {duration(plain_ns)})"
    before = without_profiler(results, steps)
    return f"{clause} (before the window {duration(before.step_ns)})" if before else clause


def _those(steps: pl.DataFrame, part: RunTables) -> pl.DataFrame:
    """The steps that a part of the run holds; all where it holds none of them."""
    key = ["report", "process", "device", "step"]
    held = steps.join(part.step_keys, on=key, how="semi")
    return steps if held.is_empty() else held


def _longest_mean_ns(steps: pl.DataFrame) -> int:
    """The mean of these steps, of the rank where it is longest."""
    means = steps.group_by("report", "process", "device").agg(pl.col("duration_ns").mean())
    return round(float(means["duration_ns"].max()))  # type: ignore[arg-type]


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process has; all ranks have theirs at the same time."""
    counts = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(counts["step"])
