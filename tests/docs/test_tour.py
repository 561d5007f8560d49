"""docs/tour.md: short, and all of it is there."""

import re
from typing import Final

import polars as pl

from tests.analyses import analysed
from tests.reports import ROOT

TOUR: Final = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")


def test_it_is_short_and_every_file_that_it_names_is_there() -> None:
    assert len(TOUR.splitlines()) <= 80
    named = re.findall(r"`((?:analysis|nsysflow|samples|tests)/[\w./-]+)`", TOUR)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_row_and_what_becomes_of_it_are_as_it_says() -> None:
    analysis = analysed("nan_check-sync")
    (call,) = analysis.syncs.filter(pl.col("start_ns") == 20_756_400).rows(named=True)
    assert "20756400" in TOUR
    assert f"{call['blocked_ns'] / 1e6:.2f} ms" in TOUR
    assert f"{call['induced_idle_ns'] / 1e3:.0f} us of idle time" in TOUR
    assert call["phase"] in TOUR
    (gap,) = analysis.gaps.filter(pl.col("end_ns") == 22_774_607).rows(named=True)
    assert f"{gap['sync_ns']:,} of {gap['duration_ns']:,} ns" in TOUR
    first = analysis.findings.row(0, named=True)
    assert f"{first['saving_high_ns'] / 1e3:.0f} us shorter" in TOUR
