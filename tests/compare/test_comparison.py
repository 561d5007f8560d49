"""Two sides compared as a whole."""

from nsysflow.compare.comparison import compared
from nsysflow.compare.over_time import over_time
from tests.compare.handmade import capture, ranks, row, track

STEADY = [100_000 + at % 3 for at in range(40)]
SLOWER = [each * 2 for each in STEADY]


def test_a_slower_capture_is_worse() -> None:
    found = compared([capture(row(*STEADY))], [capture(row(*SLOWER))])
    assert found.change.verdict == "worse"
    assert found.bridge.total.change_ns == 100_001


def test_the_slowest_ranks_are_compared_and_each_with_its_like() -> None:
    base = ranks(track(row(*STEADY)), track(row(*SLOWER), device=1))
    new = ranks(track(row(*SLOWER)), track(row(*STEADY), device=1))
    found = compared([base], [new])
    assert found.change.verdict == "no significant change"
    assert [each.change.verdict for each in found.tracks] == ["worse", "better"]


def test_ranks_are_not_compared_one_by_one_where_their_numbers_differ() -> None:
    two = ranks(track(row(*STEADY)), track(row(*STEADY), device=1))
    assert compared([capture(row(*STEADY))], [two]).tracks == []


def test_a_few_long_steps_contradict_the_typical_one() -> None:
    base, faster = STEADY, [each * 9 // 10 for each in STEADY[:-1]]
    found = compared([capture(row(*base))], [capture(row(*faster, 10_000_000))])
    assert found.change.shift_pct < 0 < found.bridge.total.change_ns
    assert found.contradicts


def test_without_steps_windows_are_compared() -> None:
    window = capture(row(500), step_name=None, steps=[None], kinds=[None])
    found = compared([window], [window])
    assert not found.has_steps
    assert found.change.verdict == "not enough steps"


def test_over_time_each_capture_is_compared_with_the_first_and_the_last() -> None:
    captures = [capture(row(*STEADY)), capture(row(*SLOWER)), capture(row(*STEADY))]
    first, second, third = over_time(captures)
    assert first.since_first is first.since_last is None
    assert second.since_last is not None
    assert third.since_first is not None
    assert third.since_last is not None
    assert second.since_last.change.verdict == "worse"
    assert third.since_last.change.verdict == "better"
    assert third.since_first.change.verdict == "no significant change"
