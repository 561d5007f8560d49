from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.analysis.findings.saving import PlainEstimate
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.replay.changes import Changes
from nsysflow.report.findings import saving_of, suggestions
from nsysflow.report.results import Origin
from tests.report.handmade import MS, Handmade, Results, found_of, stepped, valued, with_findings

IN_TURN: Final = "per step, each after those above"
ESTIMATE: Final = PlainEstimate(low_ns=20 * MS, high_ns=30 * MS, calibrated=False)


def test_without_steps_no_number_of_them_is_said_and_without_findings_nothing() -> None:
    found = suggestions(with_findings(valued(steps=1), steps=2, of_steps=False), 9)
    assert (found.rows[0].steps, found.caption) == ("", "of the whole window")
    none = suggestions(with_findings(), 3)
    assert (none.rows, none.more) == ((), "")


@pytest.mark.parametrize(
    ("estimate", "undisturbed_ms", "said"),
    [
        (None, 50, IN_TURN),
        (None, 25, f"{IN_TURN}; of 25.0 ms without the profiler (recorded 50.0 ms)"),
        (ESTIMATE, 25, f"{IN_TURN}; of about 25.0 ms without the profiler"),
    ],
)
def test_the_caption_says_of_which_step_savings_are(
    estimate: PlainEstimate | None, undisturbed_ms: int, said: str
) -> None:
    found = replace(
        found_of(valued()), undisturbed_step_ns=undisturbed_ms * MS, plain_estimate=estimate
    )
    assert suggestions(Results([stepped(found)]), 1).caption == said


@pytest.mark.parametrize(
    ("plain_ms", "said"),
    [
        (None, "save 5.00 ms (10 %)"),
        ((4, 5), "save 5.00 ms (10 %)"),
        ((1, 6), "save about 5.00 ms (10 %)"),
    ],
)
def test_a_saving_that_depends_much_on_what_recording_costs_is_rough(
    plain_ms: tuple[int, int] | None, said: str
) -> None:
    ends = None if plain_ms is None else (plain_ms[0] * MS, plain_ms[1] * MS)
    assert saving_of(replace(valued(5 * MS), plain_ns=ends)) == said


def test_a_saving_with_two_ends_is_printed_as_a_range() -> None:
    one = valued(5 * MS, sure=Changes())
    assert saving_of(replace(one, low_ns=1 * MS)) == "save 1.00 to 5.00 ms (2.0 to 10 %)"
    assert saving_of(replace(one, low_ns=0)) == "save up to 5.00 ms (10 %)"
    assert saving_of(replace(one, low_ns=5 * MS)) == "save 5.00 ms (10 %)"


def explained(run: Handmade, *typed: str) -> str:
    origin = Origin(typed=tuple(map(Path, typed)))
    return suggestions(Results([run], origin=origin), 1).more.partition("in full: ")[2]


def test_the_command_is_quoted_for_a_shell_and_chooses_what_is_judged() -> None:
    run = stepped(found_of(valued()))
    assert explained(run, "a b/r.sqlite") == "nsysflow explain 1 'a b/r.sqlite'"
    assert explained(run, "r0", "r1") == "nsysflow explain 1 r0 r1"
    parts = (StepPart(2), StepPart(7, 8, out=True))
    options = Options(device=1, steps=parts, step="my step", skip=3, whole=True)
    assert explained(replace(run, options=options), "r") == (
        "nsysflow explain 1 r --device 1 --steps 2: --steps '!7' --step 'my step' --skip 3 --whole"
    )


def test_a_finding_that_those_above_cover_says_what_it_saves_alone() -> None:
    covered = replace(valued(1_710), alone_ns=2 * MS)
    (row,) = suggestions(Results([stepped(found_of(covered))]), 1).rows
    assert row.saving == "nothing more (alone 2.00 ms)"
