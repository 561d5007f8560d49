"""Statistics of samples, and how many samples are taken."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.kernels.bench.statistics import calls_a_sample, repetitions, stats_of, warm_ups

samples = st.lists(st.integers(1, 10**9).map(float), min_size=2, max_size=60)


@given(st.lists(samples, min_size=1, max_size=3))
def test_every_sample_of_every_run_counts_once(runs: list[list[float]]) -> None:
    stats = stats_of(runs)
    every = sorted(sample for run in runs for sample in run)
    assert stats.n == len(every)
    assert (stats.min_ns, stats.max_ns) == (every[0], every[-1])
    assert stats.median_ns == (every[(len(every) - 1) // 2] + every[len(every) // 2]) / 2
    assert stats.mean_ns == pytest.approx(sum(every) / len(every))
    assert stats.std_ns == pytest.approx(statistics.stdev(every), rel=1e-6, abs=1e-3)


def test_the_spread_compares_medians_of_runs_and_not_samples() -> None:
    assert stats_of([[1.0, 100.0, 900.0], [2.0, 102.0, 300.0]]).spread_pct == pytest.approx(2.0)
    assert stats_of([[1.0, 100.0, 900.0]]).spread_pct == 0


@given(st.floats(0, 1e12))
def test_a_call_is_repeated_5_to_50_times(call_ns: float) -> None:
    assert 5 <= repetitions(call_ns) <= 50


def test_repetitions_take_100_ms_between_those_bounds() -> None:
    assert [repetitions(ns) for ns in (1e6, 4e6, 1e7, 9e7)] == [50, 25, 10, 5]


def test_warming_up_takes_25_ms_or_one_call() -> None:
    assert [warm_ups(ns) for ns in (5e3, 1e6, 1e9)] == [5000, 25, 1]


@given(st.floats(1, 1e12))
def test_a_sample_takes_about_a_millisecond_or_is_one_call_or_a_hundred(call_ns: float) -> None:
    calls = calls_a_sample(call_ns)
    assert calls in (1, 100) or abs(calls * call_ns - 1e6) <= call_ns / 2
