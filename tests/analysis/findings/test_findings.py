"""All findings of a report, and what to change next."""

from collections.abc import Iterator

import pytest

import nsysflow
from nsysflow.analysis.findings import saving
from nsysflow.analysis.findings.findings import find, largest_after
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import WORTH_PCT
from nsysflow.analysis.replay.changes import Changes, Removal
from tests import tiny
from tests.analyses import analysed, loaded
from tests.analysis.findings.subjects import US, Row, launched, loop, valued
from tests.tiny import AS_RECORDED


def test_replays_come_before_bounds_of_less_than_twice_their_size() -> None:
    ranks = [one.rank_ns for one in valued("rolloutcopy-torch")]
    assert ranks == sorted(ranks, reverse=True)


def rarely(start: int, i: int) -> Iterator[Row]:
    """A kernel; in the first of 12 steps a wait that the others do not have, and 0.4 ms of idle
    time."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=500 * US)
    if i == 0:
        yield tiny.opened(start + 20 * US, start + 530 * US, "check")
        yield tiny.call(start + 25 * US, start + 520 * US, "cudaDeviceSynchronize")
    late = 900 if i == 0 else 60
    yield from launched(start, 100 * i + 2, at=late, took=5, kernel_ns=450 * US)


def test_what_the_replayed_part_lacks_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MOST_OPS", 4)
    found = find(loop(rarely, steps=12, every=1_400)).valued
    (one,) = (one for one in found if one.finding.phase == "step/check")
    assert (one.finding.method, one.low_ns) == ("bound", 0)


def test_faster_kernels_save_once_the_step_of_gpt2_is_a_graph() -> None:
    of = analysed("h200-gpt2-eager")
    then = largest_after(JudgedReport(of), of.found, Changes(graphs=("train_step",)))
    assert then is not None
    assert then.finding.rule == "unfused-elementwise"
    assert then.high_ns > 5_000_000


def test_nothing_is_left_of_a_wait_that_is_removed_and_all_without_a_change() -> None:
    of = analysed("nan_check-sync")
    gone = Changes(removed=(Removal(kind="sync", at="nan_check.py:125"),))
    then = largest_after(JudgedReport(of), of.found, gone)
    assert then is None or then.finding.rule != "sync-in-loop"
    first = of.found.valued[0]
    then = largest_after(JudgedReport(of), of.found, Changes())
    assert then is not None
    assert (then.finding, then.high_ns) == (first.finding, first.high_ns)


def test_what_the_host_hides_comes_behind_the_launches_with_what_it_saves_then() -> None:
    recorded = nsysflow.analyze(loaded("h200-gpt2-eager"), AS_RECORDED)
    every = find(JudgedReport(recorded)).valued
    rules = [one.finding.rule for one in every]
    hidden = [one for one in every if 100 * one.alone_ns < WORTH_PCT * one.step_ns]
    assert {one.finding.rule for one in hidden} >= {"unaligned-matmul", "unfused-elementwise"}
    assert every[-len(hidden) :] == tuple(hidden)
    assert rules.index("launch-bound") < len(rules) - len(hidden)
    assert all(one.pct >= WORTH_PCT and one.low_ns == 0 for one in hidden)
