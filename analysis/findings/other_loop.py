"""`other-loop`: a loop beside the steps, such as validation, that takes much of the time."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.plan import WORTH_PCT
from nsysflow.analysis.tables.run import PARTS_OF_STEPS
from nsysflow.base.units import duration, number, percent, whole_percent

OTHER_LOOP: Final = "other-loop"

LOOP_PCT: Final = 20
"""A loop that takes this share of the time after start-up is worth a second analysis."""

AFTER_START_UP: Final = (*PARTS_OF_STEPS, "loop", "between")
"""The parts of `run` that a long run consists of."""

_TRACK: Final = ("report", "process", "device")


def largest_loop(
    run: pl.DataFrame,
    judged: Collection[str] | None = None,
    *,
    at_least_pct: int = LOOP_PCT,
    only_before: bool = False,
) -> dict[str, Any] | None:
    """The row of the other loop that takes most time, with all time after start-up as `after_ns`
    and the number of steps as `all_steps`; None where none takes that share of it.

    Args:
        run: the table of that name.
        judged: the loops that can be judged, by their range; None for all.
        at_least_pct: the share of the time after start-up that it takes at least.
        only_before: whether a loop counts that only ran before the steps. How often it comes back
            is not known then.
    """
    part = pl.col("part").cast(pl.String)
    after_ns = pl.col("time_ns").filter(part.is_in(AFTER_START_UP)).sum().over(_TRACK)
    steps = pl.col("count").filter(part.is_in(PARTS_OF_STEPS)).sum().over(_TRACK)
    begun_ns = pl.col("start_ns").filter(part.is_in(PARTS_OF_STEPS)).min().over(_TRACK)
    rows = run.with_columns(after_ns=after_ns, all_steps=steps, begun_ns=begun_ns).filter(
        part == "loop",
        100 * pl.col("time_ns") >= at_least_pct * pl.col("after_ns"),
        pl.col("all_steps") > 0,
        True if only_before else pl.col("end_ns") > pl.col("begun_ns"),
        True if judged is None else pl.col("phase").is_in([*judged]),
    )
    rows = rows.sort("time_ns", *_TRACK, descending=[True, False, False, False])
    return next(rows.iter_rows(named=True), None)


def with_other_loop(
    found: Findings, row: Mapping[str, Any] | None, findings_of: Callable[[str], Findings]
) -> Findings:
    """The findings, plus one for that row's loop if changing the loop saves something.

    The loop's own findings save a share of its step. That share of the loop's time, divided by the
    number of steps, is the saving. It shortens no step.

    Args:
        found: those of the steps.
        row: a `largest_loop`; None without one.
        findings_of: what is found where the range of that name is the step.
    """
    if row is None or not found.of_steps:
        return found
    of_loop = findings_of(row["phase"])
    inside = [one for one in of_loop.valued if one.finding.changes is not None and one.high_ns]
    whole_ns = max(1, of_loop.undisturbed_step_ns)
    each_ns = min(whole_ns, sum(one.high_ns for one in inside))
    step_ns = row["after_ns"] // row["all_steps"]
    saved_ns = row["time_ns"] * each_ns // whole_ns // row["all_steps"]
    if 100 * saved_ns < WORTH_PCT * step_ns:
        return found
    at = next(
        (at for at, one in enumerate(found.valued) if one.high_ns < saved_ns), len(found.valued)
    )
    before = found.valued[:at]
    loop = Valued(
        finding=_finding(row, inside, saved_ns, found.steps),
        low_ns=0,
        high_ns=saved_ns,
        alone_ns=saved_ns,
        alone_low_ns=0,
        step_ns=step_ns,
        step_after_ns=before[-1].step_after_ns if before else found.undisturbed_step_ns,
        report=row["report"],
    )
    return replace(found, valued=(*before, loop, *found.valued[at:]))


def _finding(row: Mapping[str, Any], inside: list[Valued], saved_ns: int, steps: int) -> Finding:
    first = inside[0].finding
    name, share = row["phase"], whole_percent(row["time_ns"], row["after_ns"])
    return Finding(
        rule=OTHER_LOOP,
        title=f"{name}, {share} of the time after start-up: {first.title}",
        change=first.change,
        evidence=(
            f"{name} runs {number(row['count'])} times beside {number(row['all_steps'])} steps and"
            f" takes {duration(row['time_ns'])} of {duration(row['after_ns'])}",
            *(
                f"of one {name}, {duration(one.high_ns)} ({percent(one.pct)}): {one.finding.title}"
                for one in inside
            ),
            f"--step {name} shows it in full",
        ),
        table="run",
        size_ns=saved_ns,
        steps=steps,
        at_most_ns=saved_ns,
        process=row["process"],
        device=row["device"],
        phase=name,
        source=first.source,
        via=first.via,
        culprit=first.culprit,
        fits=True,
        frameworks=first.frameworks,
    )
