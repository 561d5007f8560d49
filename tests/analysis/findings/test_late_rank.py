"""Ranks that come late by their host: what it does longer, and whether recording explains it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import nsysflow
from nsysflow import Analysis
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.late_rank import longer_function
from nsysflow.report.page import Page, opening
from nsysflow.report.results import Origin, Results
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, launched, loop
from tests.analysis.findings.test_run_saving import AS_RECORDED_WHOLE, Loop, rows_of

QUICK = Loop(python_us=60, phases=2)
SLOW = replace(QUICK, python_us=75)
"""The host of the second one takes 600 us longer for the same 40 launches."""


def recorded(*loops: Loop, plain_us: int) -> list[Analysis]:
    """Ranks whose step takes so long without the profiler."""
    options = replace(AS_RECORDED_WHOLE, unrecorded_step_ns=plain_us * US)
    return [
        nsysflow.analyze(replace(tiny.trace_of(*own), report=f"rank{number}"), options)
        for number, own in enumerate(rows_of(*loops))
    ]


def page_of(*loops: Loop, plain_us: int) -> Page:
    """The page of these ranks."""
    analyses = recorded(*loops, plain_us=plain_us)
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
    ("late", "plain_us"),
    [
        # recording adds less than the rank costs
        (SLOW, 2_800),
        # one phase takes longer: more code, or it waits for data
        (replace(QUICK, sleeps_us=600), 2_000),
        (replace(QUICK, data_us=610), 2_000),
        # it launches more, or computes longer
        (replace(QUICK, kernels=50, kernel_us=16), 2_000),
        (replace(SLOW, kernel_us=30), 2_000),
        # a function takes longer
        (replace(SLOW, functions=("augment", "main")), 2_000),
        # no phase tells
        (replace(SLOW, phases=0), 2_000),
    ],
    ids=["as-plain", "sleeps", "data", "kernels", "compute", "function", "no-phases"],
)
def test_a_rank_that_is_late_by_itself_is_named_first(late: Loop, plain_us: int) -> None:
    quick = replace(QUICK, phases=late.phases, functions=late.functions[1:])
    page = page_of(quick, late, plain_us=plain_us)
    assert page.told.first.startswith("rank1 holds up the other rank: ")
    assert not page.told.remarks


@pytest.mark.parametrize(
    ("late", "phase"),
    [
        (replace(QUICK, sleeps_us=600), "step/forward"),
        (replace(QUICK, data_us=610), "step/data"),
        (replace(SLOW, phases=0), ""),
    ],
    ids=["sleeps", "data", "no-phases"],
)
def test_the_phase_in_which_a_late_host_takes_longer_is_named(late: Loop, phase: str) -> None:
    page = page_of(replace(QUICK, phases=late.phases), late, plain_us=2_000)
    sentence = f"Its host spends more time in {phase} than the others' hosts do"
    assert (sentence in page.told.more) == (phase != "")
    (advice,) = (row.change for row in page.suggestions.rows if "straggler" in row.title)
    assert advice.startswith(f"see what rank1's host does longer in {phase}: " if phase else "find")


def test_what_costs_nothing_without_the_profiler_is_said_but_no_finding() -> None:
    busy = [replace(loop, kernel_us=40) for loop in (QUICK, SLOW)]  # then the GPU is the limit
    page = page_of(*busy, plain_us=1_660)
    assert page.remarks[1].endswith("(20 %); without the profiler it costs nothing")
    assert not any("waited for it" in row.title for row in page.suggestions.rows)


Ran = tuple[int, tuple[str, ...]]
"""For how many ms of a step which functions run, the innermost first."""


def sampled(*stacks: Ran) -> JudgedReport:
    """Steps of 10 ms with a sample in each ms; one kernel at the end of each."""

    def body(start: int, i: int) -> Iterator[Row]:
        ran = [functions for ms, functions in stacks for _ in range(ms)]
        for ms, functions in enumerate(ran):
            yield tiny.sample(start + MS // 2 + ms * MS, *functions)
        yield from launched(start, i + 1, at=9_000, took=20, kernel_ns=500 * US)

    return loop(body, every=10_000, steps=6)


AUGMENT: Final[Ran] = (6, ("augment", "main"))


@pytest.mark.parametrize(
    ("late", "others", "late_ms", "code"),
    [
        # only the late rank runs it; the others wait for it in their loop
        ([AUGMENT, (4, ("main",))], [(10, ("main",))], 6, "augment (train.py:1)"),
        # all ranks read for as long
        ([(3, ("read", "main")), (4, ("augment", "main")), (3, ("main",))],
         [(3, ("read", "main")), (7, ("main",))], 4, "augment (train.py:1)"),
        # the time is spent in the innermost one
        ([(6, ("crop", "augment", "main")), (4, ("main",))], [(10, ("main",))], 6,
         "crop (train.py:1)"),
        # a small part of the delay
        ([(1, ("augment", "main")), (9, ("main",))], [(10, ("main",))], 9, None),
        # without samples
        ([], [(10, ("main",))], 6, None),
        ([AUGMENT, (4, ("main",))], [], 6, None),
    ],
)  # fmt: skip
def test_the_function_that_a_late_rank_runs_longer_is_named(
    late: list[Ran], others: list[Ran], late_ms: int, code: str | None
) -> None:
    one = longer_function(sampled(*late), [sampled(*others)] * 2, late_ms * MS)
    assert (one and one.code) == code
    if one is not None:
        assert one.own_ns == pytest.approx(late_ms * MS, rel=0.02)
        assert one.others_ns == 0
