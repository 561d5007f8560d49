"""What the replay says against what simulated programs really save."""

from typing import Final

import pytest

from tests.analysis.replay.sites import sites

pytestmark = pytest.mark.xdist_group("simulated")

AIM: Final = 0.95


def hits(kind: str) -> tuple[int, int]:
    """How many sites of a kind are hit, of how many."""
    of_kind = [site for site in sites() if site.kind == kind]
    return sum(site.hit for site in of_kind), len(of_kind)


def test_what_a_wait_s_removal_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    hit, of = hits("stall")
    assert of == 99
    assert hit >= AIM * of


def test_what_host_code_s_removal_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    hit, of = hits("host")
    assert of == 37
    assert hit >= 0.9 * of  # 35: threads that compete, and a copy that would be waited for later


def test_what_a_graph_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    assert hits("graph") == (2, 2)


def test_waits_that_hurt_nobody_save_nothing() -> None:
    controls = [site for site in sites() if site.control]
    quiet = sum(site.said_ns <= 0.005 * site.window_ns for site in controls)
    assert len(controls) == 48
    assert quiet >= AIM * len(controls)
