"""Statistics of samples, and how many samples to take. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Final

WARM_UP_NS: Final = 25_000_000
BUDGET_NS: Final = 100_000_000
REPETITIONS: Final = (5, 50)
PLACEMENTS: Final = 25
"""Placements per run, of two runs. Over placements the worst kernel varies by 3.3 % (standard
deviation, H200), the median of 50 placements by 0.6 %."""
REPLAYS: Final = 2
"""Replays of the graph of each placement."""
PASSES: Final = 10
"""Passes per run. They are few where a sample is a mean over all placements, or where calls are
launched one by one, which takes the host longer than the GPU."""
SAMPLE_NS: Final = 1_000_000
CALLS_MAX: Final = 100


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Statistics of the samples of one kind over several runs, in ns.

    Attributes:
        spread_pct: the difference between the runs' largest and smallest median, in per cent of
            the smallest.
    """

    n: int
    median_ns: float
    mean_ns: float
    min_ns: float
    max_ns: float
    std_ns: float
    spread_pct: float


def stats_of(runs: Sequence[Sequence[float]]) -> Stats:
    """The statistics of all samples of all runs.

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
    """How often to measure a call of this duration: for about 100 ms, 5 to 50 times."""
    fewest, most = REPETITIONS
    return max(fewest, min(most, round(BUDGET_NS / max(call_ns, 1.0))))


def warm_ups(call_ns: float) -> int:
    """How often to call before measuring: for about 25 ms."""
    return max(1, round(WARM_UP_NS / max(call_ns, 1.0)))


def calls_a_sample(call_ns: float) -> int:
    """How many calls with warm L2 one sample averages, so that they take about 1 ms.

    A pair of events adds 1.5 to 2 us. That is 0.2 % of 1 ms, and 0.6 % of 100 calls of 3 us.
    """
    return max(1, min(CALLS_MAX, round(SAMPLE_NS / max(call_ns, 1.0))))
