"""Waits of the host, and of streams for each other."""

from collections.abc import Iterator

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.rules.dependency_wait import dependency_wait
from nsysflow.analysis.findings.rules.waits import waits
from tests import tiny
from tests.analysis.findings.subjects import US, Row, found, launched, loop


def waiting(start: int, i: int, *phases: str) -> Iterator[Row]:
    """A kernel of 100 us, and a wait in each phase; the host then takes 60 us to go on."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    for turn, phase in enumerate(phases):
        begin = start + (20 + 110 * turn) * US
        yield tiny.opened(begin, begin + 105 * US, phase)
        end = start + (118 + 110 * turn) * US
        yield tiny.call(begin + 1 * US, end, "cudaDeviceSynchronize")
        yield from launched(
            start, 100 * i + 2 + turn, at=180 + 110 * turn, took=5, kernel_ns=20 * US
        )


def test_a_wait_without_a_line_is_found_by_its_phase() -> None:
    (one,) = found(waits, loop(lambda start, i: waiting(start, i, "log"), every=300))
    assert (one.rule, one.phase, one.source) == ("sync-in-loop", "step/log", "")
    assert one.changes is not None
    assert list(one.changes.options()) == ["--remove", "sync@step/log"]
    assert one.evidence[0].startswith("one call a step blocks the host for 97.0 us")


def test_each_phase_that_waits_is_one_finding_and_all_of_them_another() -> None:
    rows = found(waits, loop(lambda start, i: waiting(start, i, "log", "check"), every=400))
    assert [one.phase for one in rows if not one.joint] == ["step/log", "step/check"]
    assert len([one for one in rows if one.joint]) == 1


def both(start: int, i: int) -> Iterator[Row]:
    """A kernel of 500 us, and two waits for it right after each other, in two phases; then the
    host works for 300 us."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=500 * US)
    for begin, end, phase in ((20, 518, "log"), (520, 523, "check")):
        yield tiny.opened(start + begin * US, start + (end + 1) * US, phase)
        yield tiny.call(start + (begin + 1) * US, start + end * US, "cudaDeviceSynchronize")


def test_waits_that_hide_each_other_are_one_finding_together() -> None:
    subject = loop(both, steps=12, every=820)
    found_there = find(subject)
    first = found_there.valued[0]
    assert first.finding.joint
    assert first.high_ns > 250 * US
    assert all(one.high_ns < 150 * US for one in found_there.valued[1:] if one.finding.waits)


def test_waits_that_do_not_hide_each_other_have_no_finding_together() -> None:
    subject = loop(lambda start, i: waiting(start, i, "log", "check"), every=400)
    alone = [one for one in find(subject).valued if one.finding.waits]
    assert alone
    assert not any(one.finding.joint for one in alone)


def delayed(start: int, i: int) -> Iterator[Row]:
    """A kernel, and one launched right behind it that begins 300 us after the first has ended."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    yield tiny.launch(start + 20 * US, start + 25 * US, 100 * i + 2)
    yield tiny.kernel(start + 420 * US, start + 500 * US, 100 * i + 2)


def test_idle_time_long_after_a_launch_is_a_wait_for_another_stream() -> None:
    (one,) = found(dependency_wait, loop(delayed, every=550))
    assert one.phase == "step"
    assert 250 * US < one.at_most_ns <= 303 * US
    assert one.method == "bound"
