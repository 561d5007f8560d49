"""Recorded steps, how long they take without the profiler, and a sentence on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.findings.host_functions import code_of
from nsysflow.analysis.findings.rules.growing_work import NOT_MORE, explains, grown_ns
from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.steps.kinds import step_time_ns
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.base.names import one_line
from nsysflow.base.units import between, duration, number
from nsysflow.report.results import Results, RunTables

PLAIN: Final = "plain"
AFTER: Final = "after the recording"


@dataclass(frozen=True, kw_only=True)
class WithoutProfiler:
    """What the profiler does to a step.

    Attributes:
        step_ns: a step that is not recorded.
        added_ns: what recording adds; below 0 where the recorded steps are the shorter ones.
        when: which step that is: `plain`, `after the recording` or `before the window`.
    """

    step_ns: int
    added_ns: int
    when: str

    @property
    def others(self) -> str:
        """What recorded steps are compared with."""
        return "plain ones" if self.when == PLAIN else f"those {self.when}"

    @property
    def is_unrecorded(self) -> bool:
        """Whether nothing records that step: before a window, the profiler is attached already."""
        return self.when in (PLAIN, AFTER)

    @property
    def is_after(self) -> bool:
        """Whether that step came after the recording, in the recorded process."""
        return self.when == AFTER


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
    """What the profiler does to these steps, of which the typical ones count, compared with the
    best that is known of steps without it; None where nothing is."""
    steps = _typical(results, steps)
    return _against_the_run(results, steps) or _against_warm_up(results, steps)


SLOWED_PCT: Final = 15
"""From here on the profiler changes what is seen: it slows launching and host code alone, so their
shares grow at the cost of all others. Below, steps vary as much from run to run."""


def slowed_most(results: RunTables) -> WithoutProfiler | None:
    """What the profiler does to the steps, where that is much; of several kinds of steps, to those
    that it slows most."""
    if results.unrecorded_step_ns is None:
        return None
    compared = [without_profiler(results, steps) for _, steps in steps_by_range(results)]
    slowed = [
        (each.added_ns / each.step_ns, each)
        for each in compared
        if each is not None and each.step_ns and 100 * each.added_ns >= SLOWED_PCT * each.step_ns
    ]
    return max(slowed, key=lambda found: found[0])[1] if slowed else None


SHORTER_PCT: Final = 7
"""Recorded steps of a program with a loader lack something if they are this much shorter than later
ones; of others it takes `SLOWED_PCT`. Of 25 recordings, 23 were at most 4 % shorter. Two were 9 and
10 % shorter: their loaders' queues were still full. One without a loader was 9 % shorter, by
chance."""


def shorter_steps(results: Results) -> Iterator[str]:
    """That recorded steps are much shorter than those after the recording, and why, if growing work
    explains it."""
    record_later = results.origin.record_later
    loads = len(results.table("loader_workers")) > 0
    least_pct, such = SLOWED_PCT, ""
    if loads:
        least_pct, such = SHORTER_PCT, ", such as a loader whose queue runs empty"
    for _, steps in steps_by_range(results):
        known = without_profiler(results, steps)
        if known is None or not known.is_after or not record_later:
            continue
        recorded_ns = known.step_ns + known.added_ns
        if -100 * known.added_ns >= least_pct * recorded_ns:
            longer = (
                f"Steps {known.when} take {duration(known.step_ns)}, recorded ones"
                f" {duration(recorded_ns)}."
            )
            grown = _grown(results, -known.added_ns)
            if grown.explains:
                yield f"{longer}{grown.words}"
            else:
                yield (
                    f"{longer}{grown.words} The recording lacks what"
                    f" {'else ' if grown.words else ''}slows later steps{such}. Record later ones:"
                    f" {record_later}"
                )


@dataclass(frozen=True, kw_only=True)
class _Grown:
    """What growing work makes of later steps.

    Attributes:
        words: a sentence with a space before it; empty where it makes nothing, or too much.
        explains: whether it is most of what they take longer.
    """

    words: str = ""
    explains: bool = False


def _grown(results: Results, longer_ns: int) -> _Grown:
    """What work that grows from step to step has come to in the steps after the recording.

    Args:
        results: the run.
        longer_ns: by how much these are longer than recorded ones.
    """
    middle = results.origin.later_middle
    found = [one.finding for one in results.found.valued if one.finding.growth]
    added_ns = grown_ns(found, middle)
    if middle is None or not 0 < added_ns <= NOT_MORE * longer_ns:
        return _Grown()
    by_now = f"by step {number(round(middle))} that is about {duration(added_ns)}"
    places = dict.fromkeys(code_of(one.source) for one in found if one.source)
    where = f" in {' and '.join(places)}" if len(places) == len(found) else ""
    is_most = explains(added_ns, longer_ns)
    part = ", most of the difference" if is_most else ""
    words = f" Work{where} grows from step to step: {by_now} more{part} (growing-work)."
    return _Grown(words=words, explains=is_most)


def _against_the_run(results: RunTables, steps: pl.DataFrame) -> WithoutProfiler | None:
    """Compared with steps of the plain run, or after the recording. Both count every step, so of
    several ranges that are steps they say nothing."""
    origin = results.whole.origin
    when = PLAIN if origin.plain_step_ns else AFTER
    step_ns = origin.plain_step_ns or origin.later_step_ns
    names = results.together(lambda report: report.step_names)["name"]
    if not step_ns or names.n_unique() > 1:
        return None
    added_ns = step_time_ns(steps, _TRACK) - step_ns
    return WithoutProfiler(step_ns=step_ns, added_ns=added_ns, when=when)


def _against_warm_up(results: RunTables, steps: pl.DataFrame) -> WithoutProfiler | None:
    """Compared with the steps before the window, the median of the processes that timed them."""
    of = ["report", "process"]
    measured = results.captures.drop_nulls("unprofiled_step_ns").join(steps, on=of, how="semi")
    profiled = steps.join(measured, on=of, how="semi")
    if profiled.is_empty():
        return None
    step_ns = int(measured.select(pl.col("unprofiled_step_ns").median().round()).item())
    added_ns = step_time_ns(profiled, _TRACK) - step_ns
    return WithoutProfiler(step_ns=step_ns, added_ns=added_ns, when="before the window")


_TRACK: Final = ("report", "process", "device")
_STEP: Final = [*_TRACK, "step"]

COMPARED: Final = ("steady", "one-off")
"""The kinds of steps that a long run consists of: all after start-up that were recorded whole."""


def run_steps(tables: ReportTables) -> pl.DataFrame:
    """The rows of `steps` that a step's time is the mean of, and that are compared (spec §8.23):
    all after start-up that were recorded whole; with `--steps` those that it takes."""
    run = tables.run_steps
    if run.step_counts:
        return tables.steps.join(run.step_keys, on=_STEP, how="semi", maintain_order="left")
    return tables.steps.filter(pl.col("kind").cast(pl.String).is_in(COMPARED))


def _of_run(results: RunTables, steps: pl.DataFrame) -> pl.DataFrame:
    """Those of the steps that a step's time is the mean of; all where there are none of these."""
    return _those(steps, pl.concat([run_steps(each) for each in results.report_tables]))


def _typical(results: RunTables, steps: pl.DataFrame) -> pl.DataFrame:
    """The typical ones among the steps, which are judged; where none are, those of the run."""
    keys = [each.judged.step_keys for each in results.report_tables if each.judged.step_counts]
    return _those(steps, pl.concat(keys)) if keys else _of_run(results, steps)


def _those(steps: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The steps that are chosen; all where none of them is."""
    held = steps.join(chosen, on=_STEP, how="semi", maintain_order="left")
    return steps if held.is_empty() else held


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """What a step takes, of the slowest rank.

    Attributes:
        step_ns: the mean of all steps after start-up that were recorded whole.
        typical_step_ns: the mean of the typical ones, which are judged.
        plain_step_ns: a step of the plain run; None without one.
        later_step_ns: a step after the recording, in the recorded process; None without one.
    """

    step_ns: int
    typical_step_ns: int
    plain_step_ns: int | None
    later_step_ns: int | None

    @property
    def unrecorded_step_ns(self) -> int | None:
        """A step that was not recorded: the plain one, else one after the recording."""
        return self.plain_step_ns or self.later_step_ns

    @property
    def inflation_pct(self) -> float | None:
        """How much longer a recorded step is than one that was not."""
        unrecorded_ns = self.unrecorded_step_ns
        if not unrecorded_ns:
            return None
        return 100 * (self.step_ns - unrecorded_ns) / unrecorded_ns


def step_time(results: Results) -> StepTime | None:
    """What a step takes; None where no steps are judged. All that is said of it is from here."""
    if not results.judged.of_steps:
        return None
    return _step_time(results, results.table("steps"))


def _step_time(results: Results, steps: pl.DataFrame) -> StepTime:
    """What these steps take, such as those of one range."""
    return StepTime(
        step_ns=step_time_ns(_of_run(results, steps), _TRACK),
        typical_step_ns=step_time_ns(_typical(results, steps), _TRACK),
        plain_step_ns=results.origin.plain_step_ns,
        later_step_ns=results.origin.later_step_ns,
    )


APART_PCT: Final = 1
"""Where mean and typical step differ by less, one of them says enough."""


def steps_sentence(results: Results) -> str:
    """`train_step 44.3 ms, mean of 4 of 5, typically 40.1 ms (plain 40.0 ms)`, for each range that
    is a step; empty without steps."""
    clauses = [_clause(results, name, steps) for name, steps in steps_by_range(results)]
    if clauses and results.steps_inferred:
        clauses.append("steps inferred from repeating kernels")
    return "; ".join(clauses)


def _clause(results: Results, name: object, steps: pl.DataFrame) -> str:
    """The steps of one range; the times are those of the slowest rank."""
    found = _step_time(results, steps)
    some, all_ = _count(_of_run(results, steps)), _count(steps)
    mean = f"mean of {number(some)} of {number(all_)}" if some < all_ else f"mean of {number(all_)}"
    shown = one_line(str(name or "step"))
    clause = f"{shown} {duration(found.step_ns)}{f', {mean}' if all_ > 1 else ''}"
    if 100 * (found.step_ns - found.typical_step_ns) >= APART_PCT * found.typical_step_ns:
        clause += f", typically {duration(found.typical_step_ns)}"
    known = without_profiler(results, steps)
    if known is not None:
        return f"{clause} ({known.when} {duration(known.step_ns)})"
    # of many ranks this is the typical one, whose findings nobody else asks for
    estimate = None if results.many else results.found.plain_estimate
    several = len({*results.together(lambda report: report.step_names)["name"]}) > 1
    if estimate is None or several:
        return clause
    return f"{clause} (plain about {between(estimate.low_ns, estimate.high_ns)})"


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process has; all ranks have theirs at the same time."""
    counts = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(counts["step"])
