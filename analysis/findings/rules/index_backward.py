"""`index-backward`: rows are added one after another, so that the sum is the same in each run.

That is the gradient of `tensor[index]`. PyTorch checks and sorts the index, and adds rows with the
same number in turn; that of index_select adds them all at once. Deterministic algorithms do the
same in index_add and others, also in the forward pass, and fill every new tensor.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    kernels_by_pass,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import covered, run_of
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.rules.extra_kernels import SORTS, kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import number, percent

INDEX_BACKWARD: Final = "indexing_backward_kernel"
"""PyTorch's kernel; there are some with a suffix, for small strides."""

INDEX_BACKWARD_PCT: Final = 5.0
"""Where an index hardly repeats it takes little. Of 4,000 rows for each number it took 47 % of a
step's kernel time (H100, 2026-11-26)."""

PREPARES: Final = rf"<long\b|lambda\(long\b|arange|_assert_async|{SORTS}"
"""Kernels that check the numbers of an index, compute with them or sort them: about 20 for each
index (PyTorch 2.12)."""

TIMES_ALPHA: Final = r"AUnaryFunctor<.*MulFunctor<(?:float|double|c10)"
"""What deterministic algorithms add rows by has no factor alpha: they are multiplied before."""

FILL: Final = "FillFunctor"

FILLED_PCT: Final = 10.0
"""If so many kernels are fills, where rows are added in this way in the forward pass, too, these
are deterministic algorithms: 27 and 36 % of two programs. Eleven recordings that have such kernels
without them have 9 % at most (2026-11-29)."""

INDEX_SELECT: Final = (
    "tensor.index_select(0, index) instead of tensor[index]: its gradient is added in parallel"
)
NOT_DETERMINISTIC: Final = (
    "torch.use_deterministic_algorithms(False), if it is on: index_add and interpolate then add in"
    " parallel"
)
EXPAND: Final = "where each row comes equally often: tensor.expand, whose gradient is one sum"
CHANGE_OF_DETERMINISTIC: Final = (
    "torch.use_deterministic_algorithms(False): rows are added in parallel, new tensors not filled",
    "if it has to be on: torch.utils.deterministic.fill_uninitialized_memory = False, at least",
    INDEX_SELECT,
)
MEASURE_BOTH: Final = (
    "measure both: where each number comes some 8 times, a step took 59.5 ms with index_select,"
    " and 53.8 without"
)
"""A graph transformer with 1.36 M edges between 160,000 nodes (H200, 2026-11-30)."""

NOT_THE_SAME_SUM: Final = "floats added in another order: the last digits differ from run to run"


def index_backward(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that add up rows one after another, with those that prepare the index; of
    deterministic algorithms those that fill new tensors, too.

    A context of 32 laser scans, given to each of their 131,072 points by `context[scan]`, took 13.3
    of 28.6 ms; index_select saved 12.7 ms (H100, 2026-11-26). Deterministic algorithms took 46.2
    ms, and 17.9 without (H200, 2026-11-29); mostly by launches 23.8, and 18.4.
    """
    kernels = kernels_by_pass(subject)
    adds = matching(kernels["name"], INDEX_BACKWARD)
    added = kernels_to_drop(subject, adds, INDEX_BACKWARD_PCT)
    if added.is_empty():
        return
    forward = bool((~kernels.filter(adds)["backward"]).any())
    fills = matching(kernels["name"], FILL)
    deterministic = forward and 100 * int(fills.sum()) >= FILLED_PCT * len(kernels)
    prepares = _prepares(kernels, adds, deterministic=deterministic)
    fills = _of_new_tensors(kernels, fills & ~prepares)
    rows = kernels.filter(adds | prepares | fills if deterministic else adds | prepares)
    counts = [number(subject.per_step(int(part.sum()))) for part in (prepares, fills)]
    filled = f", {counts[1]} fill new tensors" if deterministic else ""
    first, second = (
        (NOT_DETERMINISTIC, INDEX_SELECT) if forward else (INDEX_SELECT, NOT_DETERMINISTIC)
    )
    finding = kernel_finding(
        subject,
        rows,
        rule="index-backward",
        title=(
            "deterministic algorithms, which add row after row:"
            if deterministic
            else "the gradient of tensor[index] is added row after row:"
        )
        + f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_DETERMINISTIC if deterministic else (first, second, EXPAND),
        evidence=(
            f"{in_words(subject, added)} add rows; {counts[0]} prepare their index{filled}",
            NOT_THE_SAME_SUM,
            *([] if deterministic else [MEASURE_BOTH]),
        ),
    )
    yield counting_launches(subject, finding, rows["op"], inside_calls=True)


def _prepares(kernels: pl.DataFrame, adds: pl.Series, *, deterministic: bool) -> pl.Series:
    """Whether each kernel is of those right before one that adds rows, on its stream, that prepare
    the index; with the product before them where algorithms are deterministic."""
    runs = run_of(kernels, pl.lit(matching(kernels["name"], PREPARES) & ~adds))
    beside = kernels.select(
        pl.lit(adds).shift(-1).over("lane").alias("adds_next"),
        pl.lit(matching(kernels["name"], TIMES_ALPHA)).shift(1).over("lane").alias("times_before"),
    ).fill_null(value=False)
    runs = runs.filter(beside["adds_next"][runs["last"]])
    times = beside["times_before"][runs["first"]] & deterministic
    return covered(kernels, runs.with_columns(pl.col("first") - times.cast(pl.UInt32)))


def _of_new_tensors(kernels: pl.DataFrame, fills: pl.Series) -> pl.Series:
    """The fills but those right behind one of the same size: torch.zeros is filled twice."""
    filled = kernels.select("lane", "key", pl.lit(fills).alias("fill"))
    again = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in filled.columns)
    return filled.select(pl.col("fill") & ~again.fill_null(value=False)).to_series()
