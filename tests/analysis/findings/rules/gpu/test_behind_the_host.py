"""Faster kernels of a program whose host is the limit."""

from nsysflow.analysis.findings.find import WORTH_PCT, find
from tests.analysis.findings.rules.gpu.programs import real

FOUND = find(real("h200-gpt2-eager"))
LATER = [one for one in FOUND.valued if one.later_ns]


def test_they_are_named_with_what_they_save_later_and_promise_nothing_now() -> None:
    assert {one.finding.rule for one in LATER} >= {"unaligned-matmul", "unfused-elementwise"}
    assert all(one.pct < WORTH_PCT and one.low_ns == 0 for one in LATER)


def test_they_come_behind_what_saves_something_now() -> None:
    assert FOUND.valued[-len(LATER) :] == tuple(LATER)
    assert FOUND.valued[0].pct > WORTH_PCT
