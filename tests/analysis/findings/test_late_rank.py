"""Ranks that come late by their host: what it does longer, and whether recording explains it."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.late_rank import longer_function
from nsysflow.report.page import Page, opening
from nsysflow.report.results import Origin, Results
from tests.analysis.findings.subjects import MS, US, launched, loop
from tests.analysis.findings.test_run_saving import Loop, analyses_of
from tests.in_us import sample

QUICK = Loop(python_us=60, phases=2)
SLOW = replace(QUICK, python_us=75)
"""The host of the second one takes 600 us longer for the same 40 launches."""


def page_of(*loops: Loop, plain_us: int) -> Page:
    """The page of these ranks."""
    analyses = analyses_of(*loops, plain_ns=plain_us * US)
    paths = {f"rank{number}": Path() for number in range(len(loops))}
    return opening(Results(analyses, origin=Origin(ranks=True, paths=paths)), "full")


@pytest.mark.parametrize(
    "late",
    [SLOW, replace(SLOW, phases=1), replace(QUICK, backward_us=30)],
    ids=["all-phases", "one-phase", "backward"],
)
def test_a_rank_that_is_late_only_because_it_is_recorded_is_not_accused(late: Loop) -> None:
    page = page_of(replace(QUICK, phases=late.phases), late, plain_us=2_000)
    assert page.told.first == ""
    slower, cost = page.remarks[:2]
    assert slower == (
        "rank1's host was slower while recorded, but does nothing more than the others"
    )
    assert "; without the profiler it costs at most" in cost
    *others, last = page.suggestions.rows
    assert [row for row in others if row.saving.startswith("save ")]
    assert not any("waited for it" in row.title for row in others)
    assert last.title == (
        "rank0: rank1's host was slower while recorded, and the others waited for it"
    )
    assert last.change.startswith("nothing rank1 does takes longer: look at its CPU cores")


@pytest.mark.parametrize(
    ("late", "plain_us", "phase"),
    [
        # recording adds less than the rank costs
        (SLOW, 2_800, None),
        # one phase takes longer: more code, or it waits for data
        (replace(QUICK, sleeps_us=600), 2_000, "step/forward"),
        (replace(QUICK, data_us=610), 2_000, "step/data"),
        # it launches more, or computes longer
        (replace(QUICK, kernels=50, kernel_us=16), 2_000, None),
        (replace(SLOW, kernel_us=30), 2_000, None),
        # a function takes longer
        (replace(SLOW, functions=("augment", "main")), 2_000, None),
        # no phase tells
        (replace(SLOW, phases=0), 2_000, ""),
    ],
    ids=["as-plain", "sleeps", "data", "kernels", "compute", "function", "no-phases"],
)
def test_a_rank_that_is_late_by_itself_is_named_first_with_its_phase(
    late: Loop, plain_us: int, phase: str | None
) -> None:
    quick = replace(QUICK, phases=late.phases, functions=late.functions[1:])
    page = page_of(quick, late, plain_us=plain_us)
    assert page.told.first.startswith("rank1 holds up the other rank: ")
    assert not page.told.remarks
    if phase is not None:
        sentence = f"Its host spends more time in {phase} than the others' hosts do"
        assert (sentence in page.told.more) == (phase != "")
        (advice,) = (row.change for row in page.suggestions.rows if "straggler" in row.title)
        seen = f"see what rank1's host does longer in {phase}: " if phase else "find"
        assert advice.startswith(seen)


def test_what_costs_nothing_without_the_profiler_is_said_but_no_finding() -> None:
    busy = [replace(loop, kernel_us=40) for loop in (QUICK, SLOW)]  # then the GPU is the limit
    page = page_of(*busy, plain_us=1_660)
    assert page.remarks[1].endswith("(20 %); without the profiler it costs nothing")
    assert not any("waited for it" in row.title for row in page.suggestions.rows)


Ran = tuple[int, tuple[str, ...]]
"""For how many ms of a step which functions run, the innermost first."""


def sampled(*stacks: Ran) -> JudgedReport:
    """Steps of 10 ms with a sample in each ms; one kernel at the end of each."""
    ran = [functions for ms, functions in stacks for _ in range(ms)]
    samples = (sample(500 + 1_000 * ms, *functions) for ms, functions in enumerate(ran))
    return loop([*samples, *launched(9_000, 500, took=20)], every=10_000, steps=6)


MAIN: Final = ("main",)
AUGMENT: Final = ("augment", "main")
IN_ITS_LOOP: Final[list[Ran]] = [(10, MAIN)]


@pytest.mark.parametrize(
    ("late", "others", "late_ms", "code"),
    [
        # only the late rank runs it; the others wait for it in their loop
        ([(6, AUGMENT), (4, MAIN)], IN_ITS_LOOP, 6, "augment (train.py:1)"),
        # all ranks read for as long
        (
            [(3, ("read", "main")), (4, AUGMENT), (3, MAIN)],
            [(3, ("read", "main")), (7, MAIN)],
            4,
            "augment (train.py:1)",
        ),
        # the time is spent in the innermost one
        ([(6, ("crop", *AUGMENT)), (4, MAIN)], IN_ITS_LOOP, 6, "crop (train.py:1)"),
        # a small part of the delay
        ([(1, AUGMENT), (9, MAIN)], IN_ITS_LOOP, 9, None),
        # without samples
        ([], IN_ITS_LOOP, 6, None),
        ([(6, AUGMENT), (4, MAIN)], [], 6, None),
    ],
)
def test_the_function_that_a_late_rank_runs_longer_is_named(
    late: list[Ran], others: list[Ran], late_ms: int, code: str | None
) -> None:
    one = longer_function(sampled(*late), [sampled(*others)] * 2, late_ms * MS)
    assert (one and one.code) == code
    if one is not None:
        assert one.own_ns == pytest.approx(late_ms * MS, rel=0.02)
        assert one.others_ns == 0
