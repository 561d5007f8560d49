"""Captured workloads: the bottleneck is named before the remedy and gone after it."""

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.catalog.catalog import workloads
from tests.pairs import NOT_IDLE, PAIRS, UNHELD, Pair, accounted, charged, share

pytestmark = pytest.mark.xdist_group("pairs")

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.before)


def test_every_workload_is_a_pair_or_a_control_or_not_about_idle_time() -> None:
    paired = {pair.before.partition("-")[0] for pair in PAIRS}
    controls = {workload.name for workload in workloads() if workload.control}
    assert sorted([*paired, *NOT_IDLE, *controls]) == sorted(one.name for one in workloads())


@each_pair
def test_before_the_remedy_its_cause_is_the_largest_with_phase_and_line(pair: Pair) -> None:
    assert share(pair.before, *pair.causes) >= 0.05
    gpu = accounted(pair.before)
    assert max(CAUSES, key=lambda cause: int(gpu[f"{cause}_ns"])) in pair.causes
    costs = charged(pair.before, pair.causes)
    there = pl.col("phase").str.contains(f"^{pair.phase}$")
    if pair.line is None:
        assert pair.before in UNHELD
    else:
        there &= pl.col("source").str.contains(f"^{pair.line}$")
    assert 2 * costs.filter(there)["ns"].sum() > costs["ns"].sum()


@each_pair
def test_after_the_remedy_the_cause_is_gone(pair: Pair) -> None:
    assert pair.before in UNHELD if pair.after is None else share(pair.after, *pair.causes) < 0.01
