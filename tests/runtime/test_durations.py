"""The durations of steps are summed up in little memory."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from nsysflow.runtime.durations import LONGEST, Durations

LENGTHS = st.lists(st.integers(1, 10**11), min_size=1, max_size=3 * LONGEST)


@given(LENGTHS, st.integers(0, 1_000))
def test_number_sum_and_longest_are_exact_and_the_median_within_a_percent(
    lengths_ns: list[int], first: int
) -> None:
    durations = Durations(first)
    for number, length_ns in enumerate(lengths_ns, first):
        durations.add(number, length_ns)
    summary = durations.summary()
    assert summary is not None
    assert (summary.first, summary.count, summary.total_ns) == (
        first,
        len(lengths_ns),
        sum(lengths_ns),
    )
    middle_ns = sorted(lengths_ns)[(len(lengths_ns) - 1) // 2]
    assert abs(summary.median_ns - middle_ns) <= max(1, 0.01 * middle_ns)
    kept = [ns for _, ns in summary.longest]
    assert sorted(kept) == sorted(lengths_ns)[-LONGEST:]
    assert all(lengths_ns[number - first] == ns for number, ns in summary.longest)
    assert list(summary.longest) == sorted(summary.longest)


def test_without_a_step_there_is_nothing_and_many_take_no_more_memory() -> None:
    durations = Durations(3)
    assert durations.summary() is None
    for number in range(100_000):
        durations.add(number, 7_000_000 + number % 1_000)
    assert len(durations._classes) <= 2
    assert len(durations._longest) == LONGEST
    assert median(durations._classes.values()) >= 50_000
