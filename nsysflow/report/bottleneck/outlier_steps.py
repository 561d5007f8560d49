"""The steps that take much longer than the others and hold most of the idle time."""

from typing import Final

import polars as pl

from nsysflow.report.bottleneck.shared_gpus import once_per_gpu
from nsysflow.report.results import Results
from nsysflow.units import duration, number, whole_percent

_TIMES_MEDIAN: Final = 2
"""An outlier step takes this many times the median."""

_MOST_PCT: Final = 50
"""Outlier steps are worth a sentence where they hold this much of the idle time …"""

_MATTERS_PCT: Final = 5
"""… and this much of the window."""

_LISTED: Final = 3


def outlier_sentences(results: Results) -> tuple[str, ...]:
    """`outlier step 3: 117 ms, 2.6 times the median of the 5 steps, with 57 % of the idle time;
    --steps 3:4 shows it alone`; none where the sums are like the steps.

    A first step may pay for the start of the profiler, and one in many saves a checkpoint. What to
    change there is another question than what to change in every step. There is no sentence where
    the edges of a window cut steps: what they contain is then not what the window contains.
    """
    if results.cuts_steps:
        return ()
    outliers = _outliers(results)
    window_ns, idle_ns = (
        results.table("accounting").select(pl.col("window_ns", "idle_ns").sum()).row(0)
    )
    held_ns = once_per_gpu(outliers, ["idle_ns"])
    if 100 * held_ns < max(_MOST_PCT * idle_ns, _MATTERS_PCT * window_ns, 1):
        return ()
    which = outliers["step"].unique().sort().to_list()
    held = f"with {whole_percent(held_ns, idle_ns)} of the idle time"
    steps = results.table("steps")["step"].n_unique()
    return (f"{_which(outliers, which, steps)}, {held}; {_how_to_select(results, which)}",)


def _outliers(results: Results) -> pl.DataFrame:
    """The steps that take much longer than the median of their process on that GPU, with `times`,
    how many times the median."""
    median_ns = pl.col("duration_ns").median().over("report", "process", "device")
    steps = results.table("steps").with_columns((pl.col("duration_ns") / median_ns).alias("times"))
    return steps.filter(pl.col("times").is_finite(), pl.col("times") >= _TIMES_MEDIAN)


def _which(outliers: pl.DataFrame, which: list[int], steps: int) -> str:
    """Which steps are outliers, and by how much."""
    longest_ns, least, most = outliers.select(
        pl.col("duration_ns").max(), pl.col("times").min(), pl.col("times").max().alias("most")
    ).row(0)
    if len(which) == 1:
        times = f"{_times(most)} the median of the {number(steps)} steps"
        return f"outlier step {which[0]}: {duration(longest_ns)}, {times}"
    count = f"{number(len(which))} outlier steps of {number(steps)} ({_listed(which)})"
    return f"{count}: at least {_times(least)} the median"


def _times(ratio: float) -> str:
    return f"{ratio:.{0 if ratio >= 10 else 1}f} times"


def _listed(which: list[int]) -> str:
    shown = ", ".join(map(str, which[:_LISTED]))
    return f"{shown}, …" if len(which) > _LISTED else shown


def _how_to_select(results: Results, which: list[int]) -> str:
    """The option that leaves the first steps out, or shows one from the middle alone."""
    first = which[0]
    only_one = len(which) == 1
    if which == list(range(len(which))):
        _, end = results.analyses[0].options.steps or (None, None)
        return f"--steps {len(which)}:{end or ''} leaves {'it' if only_one else 'them'} out"
    return f"--steps {first}:{first + 1} shows {'it' if only_one else 'the first'} alone"
