"""What a page concludes: whether the recording can be judged, and the verdict if it can."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.tables.integrity import OF_GRAPHS
from nsysflow.base.units import number, whole_percent
from nsysflow.report.results import Results
from nsysflow.report.step_times import steps_by_range, without_profiler
from nsysflow.report.verdict.validity import Invalid, failures
from nsysflow.report.verdict.verdict import Verdict, verdicts

SLOWED_PCT: Final = 15
"""From here on the profiler changes what is seen: it slows launching and host code alone, so their
shares grow at the cost of all others. Below, steps vary as much from run to run."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is concluded from a run.

    Attributes:
        why: the check that failed, by name; None where the recording is valid.
        headlines: the failed checks, or the verdicts; never empty.
        remarks: what to keep in mind about them, a sentence each.
    """

    why: str | None
    headlines: tuple[Verdict | Invalid, ...]
    remarks: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether the recording can be judged."""
        return self.why is None

    @property
    def bound(self) -> str | None:
        """What takes most of the time, as phases.csv has it; None where nothing was judged."""
        first = self.headlines[0]
        return first.bound if isinstance(first, Verdict) else None

    @property
    def bound_pct(self) -> float | None:
        """Its share of the time."""
        first = self.headlines[0]
        return first.bound_pct if isinstance(first, Verdict) else None

    @property
    def text(self) -> str:
        """All of it in sentences; what to do next only where a check failed."""
        sentences = []
        for each in self.headlines:
            sentences.append(each.sentence)
            if isinstance(each, Invalid):
                sentences.append(each.advice[0].upper() + each.advice[1:])
        return ". ".join([*sentences, *self.remarks])


def judge(results: Results) -> Judgement:
    """The judgement on a run. A failed check stands in place of a verdict."""
    failed = failures(results)
    return Judgement(
        why=failed[0].why if failed else None,
        headlines=failed or _verdicts(results),
        remarks=tuple(_remarks(results.typical)),
    )


def _remarks(results: Results) -> Iterator[str]:
    yield from _slowed(results)
    yield from _wrong_times(results)
    yield from _without_steps(results)


def _verdicts(results: Results) -> tuple[Verdict, ...]:
    """The verdicts on a run; of many ranks, on the typical one."""
    found = verdicts(results.typical.judged)
    if not results.many:
        return found
    name = f"{results.typical.reports[0]}, the typical rank"
    return tuple(replace(each, gpus=", ".join(filter(None, [name, each.gpus]))) for each in found)


def _slowed(results: Results) -> Iterator[str]:
    """That the profiler slows the steps by much; of several kinds of steps, those it slows most."""
    if results.unprofiled_step_ns is None:
        return
    compared = [without_profiler(results, steps) for _, steps in steps_by_range(results)]
    slowed = [
        (each.added_ns / each.step_ns, each)
        for each in compared
        if each is not None and each.step_ns and 100 * each.added_ns >= SLOWED_PCT * each.step_ns
    ]
    if slowed:
        _, worst = max(slowed, key=lambda found: found[0])
        yield (
            f"Recorded steps are {whole_percent(worst.added_ns, worst.step_ns)} slower than"
            " unprofiled ones: host and launch shares are inflated"
        )


def _wrong_times(results: Results) -> Iterator[str]:
    """That operations of graphs have wrong times. One that lasts too long hides what follows it."""
    found = results.table("integrity").filter(pl.col("check").is_in(OF_GRAPHS))
    count = found["count"].max()
    if isinstance(count, int):
        one = count == 1
        yield (
            f"{number(count)} operation{'' if one else 's'} of a CUDA graph"
            f" {'has a wrong time' if one else 'have wrong times'}, which hides idle time around"
            f" {'it' if one else 'them'}: --table integrity"
        )


def _without_steps(results: Results) -> Iterator[str]:
    """That no step is known, and how to say what one is."""
    if results.step_name is None and not results.table("accounting").is_empty():
        yield (
            "No step is known, so the whole window is judged: put the loop into nsysflow.steps, or"
            " name the range that is one step with --step NAME"
        )
