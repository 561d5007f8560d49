"""The findings of simulated programs, each beside what its change really saves.

The truth knows single sites, and all stalls together. A finding is of all sites that lie at its
place, so it can be compared where these are one site or all of them. Of launches, the truth knows
only the programs whose launches are a site; of host code, only the range `data`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.apply import Names
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.selection.timeline import Timeline
from tests.analysis.replay.sites import CONTROLS, Site, is_hit, sites
from tests.analysis.test_simulated import simulated

# These tests share the findings of 44 programs, which take half a minute. In each run, small traces
# and real reports hold the rules, and replay/test_replay.py holds the savings of these programs.
pytestmark = [pytest.mark.xdist_group("simulated"), pytest.mark.slow]

AIM: Final = 0.95

HOST_RULES: Final = frozenset(
    {
        *("sync-in-loop", "scalar-readback", "pageable-copy", "blocking-pinned-copy"),
        *("allocator-churn", "launch-bound", "data-loading", "host-code", "exposed-copy"),
    }
)
"""Rules about kernels are left out: those of simulated programs have neither shapes nor names."""


@dataclass(frozen=True)
class Compared:
    """A finding of a program: its place among those about the host and copies, which sites it is
    of, and what its change really saves; None where the truth does not know."""

    program: str
    control: bool
    rank: int
    finding: Valued
    sites: tuple[str, ...]
    saves_ns: int | None
    window_ns: int

    @property
    def said_ns(self) -> int:
        """What the finding says that its calls cost: of a range the low end, as the truth is of
        calls alone."""
        is_range = self.finding.finding.sure is not None
        return self.finding.alone_low_ns if is_range else self.finding.alone_ns

    @property
    def hit(self) -> bool:
        """Whether that is what they cost."""
        assert self.saves_ns is not None
        return is_hit(self.said_ns, self.saves_ns, self.window_ns)


def worthy_sites(share: float) -> list[Site]:
    """The sites of stalls that really save at least this share of their window."""
    stalls = (site for site in sites() if site.kind == "stall")
    return [site for site in stalls if site.saves_ns >= share * site.window_ns]


@cache
def findings_of(program: str) -> tuple[Compared, ...]:
    """All findings of a program, of its whole window."""
    analyses, truth = simulated()
    return tuple(_compared(program, analyses[program], truth[program]))


def findings_of_programs() -> tuple[Compared, ...]:
    return tuple(one for name in simulated()[1] for one in findings_of(name))


def _compared(
    program: str, analysis: nsysflow.Analysis, about: dict[str, Any]
) -> Iterator[Compared]:
    found = find(JudgedReport(analysis)).valued
    of_host = [one for one in found if one.finding.rule in HOST_RULES]
    for rank, valued in enumerate(of_host):
        places = tuple(_sites(analysis.timeline, valued, about))
        saves_ns, control = _really(places, about), about["class"] in CONTROLS
        yield Compared(program, control, rank, valued, places, saves_ns, about["window"])


def _sites(timeline: Timeline, valued: Valued, about: dict[str, Any]) -> Iterator[str]:
    """The sites that the finding's change takes away."""
    finding = valued.finding
    if finding.rule == "data-loading":
        yield finding.phase.rpartition("/")[2]
    if finding.rule == "launch-bound":
        yield from (name for name, of in about["sites"].items() if of["kind"] == "graph")
    if finding.changes is None or not finding.changes.removed:
        return
    recording = recorded(timeline)
    names = Names(timeline=timeline, recorded=recording)
    starts = recording.program.calls["start_ns"]
    gone = {
        start
        for removal in finding.changes.removed
        for start in starts.gather(names.stalls(removal)).to_list()
    }
    for name, of in about["sites"].items():
        calls = {start for start, _, site in about["calls"] if site == name}
        if of["kind"] == "stall" and calls and calls <= gone:
            yield name


def _really(sites: tuple[str, ...], about: dict[str, Any]) -> int | None:
    """What is really saved without these sites; None where it is not known."""
    if len(sites) == 1:
        return int(about["sites"][sites[0]]["saving"])
    stalls = {
        name for name, of in about["sites"].items() if of["kind"] == "stall" and name != "last"
    }
    return int(about["all_stalls"]) if sites and stalls <= {*sites} else None


def test_a_saving_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    known = [one for one in findings_of_programs() if one.saves_ns is not None]
    assert len(known) >= 45
    assert sum(one.hit for one in known) >= AIM * len(known)


def test_the_first_finding_of_a_program_saves_most_of_all_that_is_known() -> None:
    for one in findings_of_programs():
        if one.rank and one.saves_ns is not None:
            (first,) = (other for other in findings_of(one.program) if other.rank == 0)
            assert first.saves_ns is None or first.saves_ns >= 0.95 * one.saves_ns


def test_no_wait_of_a_control_is_a_finding() -> None:
    controls = [one for one in findings_of_programs() if one.control or "last" in one.sites]
    waits = [one for one in controls if one.finding.finding.waits]
    assert not [one for one in waits if one.finding.alone_ns > 0.005 * one.window_ns]


def test_waits_that_cost_a_twentieth_of_the_window_have_findings_and_others_cost_little() -> None:
    found = {(one.program, site) for one in findings_of_programs() for site in one.sites}
    worthy = worthy_sites(0.05)
    assert len(worthy) >= 20
    assert all((site.program, site.name) in found for site in worthy)
    costly = [site for site in worthy_sites(0.01) if (site.program, site.name) not in found]
    assert len(worthy_sites(-1.0)) == 99
    assert len(costly) <= (1 - AIM) * 99
