"""A loop beside the steps that takes much of the time is a finding, by what its own ones save."""

from dataclasses import replace

import polars as pl
import pytest

from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.other_loop import largest_loop, with_other_loop
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.tables.run import RUN

Part = tuple[str, int, int, str]
"""Part, count, time and phase of a row of `run`."""

STEPS: tuple[Part, ...] = (
    ("start-up", 2, 9_000, "step"),
    ("typical", 8, 700, "step"),
    ("longer", 2, 300, "step"),
    ("end", 0, 5_000, ""),
)


def run_of(*parts: Part) -> pl.DataFrame:
    rows = [
        {"report": "a", "part": part, "count": count, "time_ns": time_ns, "phase": phase}
        for part, count, time_ns, phase in parts
    ]
    return pl.DataFrame(rows, schema=dict(RUN))


def saving(ns: int, *, step_ns: int, title: str = "found", replayed: bool = True) -> Valued:
    found = Finding(
        rule="launch-bound",
        title=title,
        change=("change it",),
        evidence=(),
        table="gaps",
        size_ns=ns,
        steps=8,
        changes=Changes(even_ranks=True) if replayed else None,
    )
    return Valued(
        finding=found,
        low_ns=ns,
        high_ns=ns,
        alone_ns=ns,
        alone_low_ns=ns,
        step_ns=step_ns,
        step_after_ns=step_ns - ns,
        report="a",
    )


def findings_of(*valued: Valued, step_ns: int) -> Findings:
    return Findings(
        valued=valued,
        together_ns=None,
        step_ns=step_ns,
        typical_step_ns=step_ns,
        undisturbed_step_ns=step_ns,
        of_steps=True,
        steps=8,
        report="a",
    )


EVAL, SAVE = ("loop", 50, 1_000, "eval"), ("loop", 5, 200, "save")


@pytest.mark.parametrize(
    ("loops", "judged", "at_least_pct", "largest"),
    [
        ((), None, 20, None),
        ((EVAL,), None, 20, "eval"),
        ((SAVE, EVAL), None, 20, "eval"),
        ((SAVE, EVAL), ["save"], 20, None),  # 200 of 2 200
        ((SAVE, EVAL), ["save"], 9, "save"),
        ((("loop", 5, 249, "eval"),), None, 20, None),  # of 1 249, start-up and end apart
        ((("loop", 5, 250, "eval"),), None, 20, "eval"),
    ],
)
def test_a_loop_counts_by_its_share_of_the_time_after_start_up(
    loops: tuple[Part, ...], judged: list[str] | None, at_least_pct: int, largest: str | None
) -> None:
    row = largest_loop(run_of(*STEPS, *loops), judged, at_least_pct=at_least_pct)
    assert (row and row["phase"]) == largest


@pytest.mark.parametrize(
    ("of_loop", "of_steps", "saved_ns", "at"),
    [
        ((10, 2), (), 60, 0),  # 12 ns in each of 50, over 10 steps
        ((10, 2), (70, 50), 60, 1),
        ((15, 6), (), 100, 0),  # no more than the loop takes
        ((), (70,), None, None),
        ((0,), (), None, None),
    ],
)
def test_what_a_loop_saves_is_spread_over_the_steps_and_takes_its_place(
    of_loop: tuple[int, ...], of_steps: tuple[int, ...], saved_ns: int | None, at: int | None
) -> None:
    row = largest_loop(run_of(*STEPS, EVAL))
    own = findings_of(*(saving(ns, step_ns=20, title=f"saves {ns}") for ns in of_loop), step_ns=20)
    own = replace(own, valued=(*own.valued, saving(9, step_ns=20, replayed=False)))
    before = findings_of(*(saving(ns, step_ns=100) for ns in of_steps), step_ns=100)
    after = with_other_loop(before, row, lambda name: {"eval": own}[name])
    if saved_ns is None or at is None:
        assert after == before
        return
    one = after.valued[at]
    assert (one.finding.rule, one.high_ns, one.step_ns) == ("other-loop", saved_ns, 200)
    assert one.finding.title == "eval, 50 % of the time after start-up: saves " + str(of_loop[0])
    assert not one.counts
    assert one.step_after_ns == (after.valued[at - 1].step_after_ns if at else 100)
    assert (*after.valued[:at], *after.valued[at + 1 :]) == before.valued
