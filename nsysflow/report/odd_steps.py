"""The line that says where the sum over all steps is not what a step is like."""

from typing import Final

import polars as pl

from nsysflow.report.results import Results, once_per_gpu
from nsysflow.report.units import duration, number, whole_percent

_TIMES_MEDIAN: Final = 2
"""A step this many times as long as the median one is not like the others."""

_MOST_PCT: Final = 50
"""The line is worth its place where such steps hold this much of the idle time …"""

_MATTERS_PCT: Final = 5
"""… and it is this much of the time looked at."""

_LISTED: Final = 3


def odd_step_lines(results: Results) -> tuple[str, ...]:
    """`step 3 took 117 ms, 2.6 times the median of the 5 steps, and holds 57 % of the idle time:
    --steps 3:4 shows it alone`, where one step or a few speak for all; none otherwise.

    The first step of a window may pay for the profiler's start, and one in many saves a checkpoint:
    what is to be changed there is another question than what is to be changed in every step. Where
    a window's edges cut steps, what they hold is not what the window holds, and nothing is said.
    """
    if results.cuts_steps:
        return ()
    odd = _odd(results)
    window_ns, idle_ns = (
        results.table("accounting").select(pl.col("window_ns", "idle_ns").sum()).row(0)
    )
    odd_ns = once_per_gpu(odd, ["idle_ns"])
    if 100 * odd_ns < max(_MOST_PCT * idle_ns, _MATTERS_PCT * window_ns, 1):
        return ()
    count = number(results.table("steps")["step"].n_unique())
    which = odd["step"].unique().sort().to_list()
    longest_ns, least, most = odd.select(
        pl.col("duration_ns").max(), pl.col("times").min(), pl.col("times").max().alias("most")
    ).row(0)
    held = f"{whole_percent(odd_ns, idle_ns)} of the idle time"
    if len(which) == 1:
        said = (
            f"step {which[0]} took {duration(longest_ns)}, {_times(most)} the median of the"
            f" {count} steps, and holds {held}"
        )
    else:
        said = (
            f"{number(len(which))} of the {count} steps ({_listed(which)}) took at least"
            f" {_times(least)} the median, and hold {held}"
        )
    return (f"{said}: {_how_to_part_them(results, which)}",)


def _odd(results: Results) -> pl.DataFrame:
    """The steps that take much longer than their process's median on that GPU, with `times`."""
    median_ns = pl.col("duration_ns").median().over("report", "process", "device")
    steps = results.table("steps").with_columns((pl.col("duration_ns") / median_ns).alias("times"))
    return steps.filter(pl.col("times").is_finite(), pl.col("times") >= _TIMES_MEDIAN)


def _times(ratio: float) -> str:
    return f"{ratio:.{0 if ratio >= 10 else 1}f} times"


def _listed(which: list[int]) -> str:
    shown = ", ".join(map(str, which[:_LISTED]))
    return f"{shown}, …" if len(which) > _LISTED else shown


def _how_to_part_them(results: Results, which: list[int]) -> str:
    """The option that leaves the first steps out, or shows one from the middle alone."""
    first = which[0]
    only_one = len(which) == 1
    if which == list(range(len(which))):
        _, end = results.analyses[0].options.steps or (None, None)
        return f"--steps {len(which)}:{end or ''} leaves {'it' if only_one else 'them'} out"
    return f"--steps {first}:{first + 1} shows {'it' if only_one else 'the first'} alone"
