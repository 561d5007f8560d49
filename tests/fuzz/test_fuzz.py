"""Mutated inputs never break nsysflow; `make fuzz` runs many more."""

import pytest

from tests.fuzz.cases import PEAK, run_case

CASES = 5
"""As many as take few seconds; one takes about half a second of CPU time."""


@pytest.mark.skipif(not PEAK.exists(), reason="only Linux tells the most memory of a process")
@pytest.mark.parametrize("number", range(CASES))
def test_a_mutated_input_breaks_nothing(number: int) -> None:
    assert run_case(0, number).failure is None
