"""Before and after a remedy, the changed place has the largest change in gap-report.csv."""

import re

import pytest

from benchmarks.gap_report_stability import changes, lines_of
from nsysflow.report.gap_report import gap_report, tracks_of
from nsysflow.report.results import Results
from tests.oracle.gap_report import GROUPS
from tests.pairs import PAIRS, Pair, analysed

pytestmark = pytest.mark.xdist_group("pairs")


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.after], ids=lambda pair: f"{pair.before}-{pair.after}"
)
def test_the_changed_place_leads(pair: Pair) -> None:
    assert pair.after is not None
    runs = [Results([analysed(name)]) for name in (pair.before, pair.after)]
    found = changes(*(lines_of(gap_report(tracks_of(run))) for run in runs))
    first = max(found, key=lambda row: abs(found[row]))
    phase, cause, *_ = first.split(",")
    assert re.fullmatch(pair.phase, phase), found
    assert cause in {GROUPS.get(name, name) for name in pair.causes}, found
    assert found[first] < 0
