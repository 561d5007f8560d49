"""What findings of simulated programs say against what their changes really save."""

from typing import Final

import pytest

from tests.analysis.findings.simulated import findings_of_programs, worthy_sites

pytestmark = pytest.mark.xdist_group("simulated")

AIM: Final = 0.95


def test_a_finding_s_saving_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    known = [one for one in findings_of_programs() if one.saves_ns is not None]
    assert len(known) >= 45
    assert sum(one.hit for one in known) >= AIM * len(known)


def test_the_first_finding_of_a_program_is_what_saves_most_of_all_that_is_known() -> None:
    for one in findings_of_programs():
        if one.rank and one.saves_ns is not None:
            (first,) = (
                other
                for other in findings_of_programs()
                if other.program == one.program and other.rank == 0
            )
            assert first.saves_ns is None or first.saves_ns >= 0.95 * one.saves_ns


def test_no_wait_of_a_control_is_a_finding() -> None:
    controls = [one for one in findings_of_programs() if one.control or "last" in one.sites]
    waits = [one for one in controls if one.finding.finding.waits]
    assert not [one for one in waits if one.finding.alone_ns > 0.005 * one.window_ns]


def test_every_wait_that_costs_a_twentieth_of_the_window_is_in_a_finding() -> None:
    found = {(one.program, site) for one in findings_of_programs() for site in one.sites}
    worthy = worthy_sites(0.05)
    assert len(worthy) >= 20
    assert all((site.program, site.name) in found for site in worthy)


def test_waits_that_no_finding_names_cost_less_than_a_hundredth_of_the_window() -> None:
    found = {(one.program, site) for one in findings_of_programs() for site in one.sites}
    every = worthy_sites(-1.0)
    unnamed = [site for site in every if (site.program, site.name) not in found]
    costly = [site for site in unnamed if site.saves_ns > 0.01 * site.window_ns]
    assert len(every) == 99
    assert len(costly) <= (1 - AIM) * len(every)
