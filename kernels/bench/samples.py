"""From samples to the numbers of a row: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Final

WARM_UP_NS: Final = 25_000_000
BUDGET_NS: Final = 100_000_000
REPETITIONS: Final = (5, 50)
PLACEMENTS: Final = 25
"""Of each of the two runs. Over placements the worst kernel varies by 3.3 % (standard deviation, on
an H200), the median of 50 of them by 0.6."""
REPLAYS: Final = 2
"""Of the graph of a placement."""
PASSES: Final = 10
"""Of a run, where a sample is the mean over its placements, or is launched call by call: that takes
the host longer than the GPU."""
SAMPLE_NS: Final = 1_000_000
CALLS_MAX: Final = 100


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Samples of one kind in ns, of several runs of the measurement.

    Attributes:
        spread_pct: how far the runs' medians are apart, of the smallest.
    """

    n: int
    median_ns: float
    mean_ns: float
    min_ns: float
    max_ns: float
    std_ns: float
    spread_pct: float


def stats_of(runs: Sequence[Sequence[float]]) -> Stats:
    """What all samples of all runs say together.

    Raises:
        ValueError: a run is empty, or there are fewer than two samples.
    """
    samples = [sample for run in runs for sample in run]
    medians = [median(run) for run in runs]
    return Stats(
        n=len(samples),
        median_ns=median(samples),
        mean_ns=fmean(samples),
        min_ns=min(samples),
        max_ns=max(samples),
        std_ns=stdev(samples),
        spread_pct=100 * (max(medians) - min(medians)) / min(medians) if min(medians) else 0.0,
    )


def repetitions(call_ns: float) -> int:
    """How often to measure a call that takes so long: for 100 ms, 5 to 50 times."""
    fewest, most = REPETITIONS
    return max(fewest, min(most, round(BUDGET_NS / max(call_ns, 1.0))))


def warm_ups(call_ns: float) -> int:
    """How often to call it before measuring: for about 25 ms."""
    return max(1, round(WARM_UP_NS / max(call_ns, 1.0)))


def calls_a_sample(call_ns: float) -> int:
    """Of how many calls with L2 warm a sample is the mean, so that they take about 1 ms.

    A pair of events sees 1.5 to 2 us of its own; spread over 1 ms that is 0.2 %, over 100 calls of
    3 us 0.6 %.
    """
    return max(1, min(CALLS_MAX, round(SAMPLE_NS / max(call_ns, 1.0))))
