"""What GPUs send and receive, from counters that start again, and from none."""

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from nsysflow.runtime.gpu_states import Traffic

MS = 1_000_000
FULL = 1 << 32
NONE = [None] * 4


class Fake:
    """An NVML with these counters; the time goes on as told."""

    def __init__(self, *counts: Any, lanes: Any = (4, 16), rates: Any = (None, None)) -> None:
        self.counts: list[list[int | None]] = [*counts]
        self.now_ns, self.asked = 0, list[int]()
        self.lanes, self.rates = lanes, rates

    def monotonic_ns(self) -> int:
        return self.now_ns

    def counters(self, _gpu: object) -> list[int | None]:
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]

    def pcie_rate(self, _gpu: object, direction: int) -> int | None:
        self.asked.append(direction)
        return self.rates[direction]  # type: ignore[no-any-return]

    def pcie_lanes(self, _gpu: object) -> tuple[int, int] | None:
        return self.lanes  # type: ignore[no-any-return]

    def reading_at(self, ms: int, **how: bool) -> tuple[int | None, ...] | None:
        """The reading at this time."""
        self.now_ns = ms * MS
        return self.traffic.reading(**how)

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic(self, ctypes.c_void_p(7), 0.1)


Make = Callable[..., Fake]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Returns a function that makes a fake GPU whose counters were first read at time 0."""

    def make(*counts: Any, **more: Any) -> Fake:
        fake = Fake(*counts, **more)
        monkeypatch.setattr("nsysflow.runtime.gpu_states.time", fake)
        assert fake.traffic
        return fake

    return make


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (0, 5_000_000, 50_000_000),
        (FULL - 1_000_000, 1_000_000, 20_000_000),  # of 32 bits: started again
        (FULL, FULL + 1_000_000, 10_000_000),
        (FULL + 1_000_000, FULL, None),  # of 64 bits: somebody reset it
        (FULL - 1, FULL + 999_999, 10_000_000),
        (None, 5, None),
        (5, None, None),
    ],
)
@pytest.mark.parametrize("received", [False, True])
def test_bytes_over_pcie_become_a_rate(
    before: Any, after: Any, rate: Any, received: bool, begun: Make
) -> None:
    def both(count: Any) -> list[Any]:
        return [7, count, None, 3] if received else [count, 7, None, 3]

    fake = begun(both(before), both(after))
    expected = [0, rate] if received else [rate, 0]
    assert fake.reading_at(100) == (100 * MS, *expected, None, 0)
    assert fake.asked == []  # what counts for 20 ms is not needed


def test_nvlink_counts_kibibytes_and_never_starts_again(begun: Make) -> None:
    fake = begun([None, 0, 500, 500], [None, 0, 600, 400])
    assert fake.reading_at(100) == (100 * MS, None, 0, 1_024_000, None)


def test_looks_between_readings_see_a_counter_start_again_twice(begun: Make) -> None:
    """3 GB in 50 ms, three times: 9 GB in 150 ms, where the counter itself shows 0.4."""
    counts = [[None, 3_000_000_000 * step % FULL, None, None] for step in range(4)]
    fake = begun(*counts, lanes=(5, 16))
    assert fake.traffic.looks == 2
    for at_ms in (50, 100):
        fake.now_ns = at_ms * MS
        fake.traffic.look()
    assert fake.reading_at(150) == (150 * MS, None, 60_000_000_000, None, None)


def test_a_look_that_comes_too_late_leaves_the_rate_unknown(begun: Make) -> None:
    """A link of 64 GB/s may have filled 32 bits by then; the next reading is known again."""
    fake = begun(*([0, 0, 0, n] for n in (0, 1_000, 2_000)), lanes=(5, 16))
    assert fake.reading_at(68) == (68 * MS, None, None, 0, 1_024_000 * 1000 // 68)
    assert fake.reading_at(100) == (32 * MS, 0, 0, 0, 32_000_000)


@pytest.mark.parametrize(
    ("lanes", "looks"), [((3, 16), 1), ((4, 16), 1), ((5, 8), 1), ((5, 16), 2), ((6, 16), 4)]
)
def test_faster_links_are_looked_at_more_often(
    lanes: tuple[int, int], looks: int, begun: Make
) -> None:
    assert begun([0] * 4, lanes=lanes).traffic.looks == looks
    assert begun([0] * 4, lanes=None).traffic.looks == 2
    assert begun(NONE, lanes=lanes).traffic.looks == 1


def test_without_counters_each_reading_asks_for_one_direction(begun: Make) -> None:
    fake = begun(NONE, rates=(5, 6))
    read = [fake.reading_at(ms) for ms in (100, 200, 300)]
    assert read == [(100 * MS, 5, *NONE[1:]), (100 * MS, None, 6, None, None), read[0]]
    assert fake.asked == [0, 1, 0]
    assert fake.reading_at(400, may_wait=False) is None
    assert fake.asked == [0, 1, 0]


def test_a_gpu_that_says_nothing_has_no_reading(begun: Make) -> None:
    assert begun(NONE).reading_at(100) is None


def test_what_was_counted_before_a_window_is_not_in_its_readings(begun: Make) -> None:
    fake = begun(*([n, 0, 0, 0] for n in (0, 1_000_000, 3_000_000)))
    fake.now_ns = 5_000 * MS
    fake.traffic.look(afresh=True)
    assert fake.reading_at(5_100) == (100 * MS, 20_000_000, 0, 0, 0)


def test_too_little_time_has_no_rate_and_is_not_lost(begun: Make) -> None:
    fake = begun(*([n, 0, 0, 0] for n in (0, 1_000, 2_000)))
    assert fake.reading_at(9) is None
    assert fake.reading_at(10) == (10 * MS, 200_000, 0, 0, 0)
