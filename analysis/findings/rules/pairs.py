"""`all-pairs`: distances of all pairs of points are written, to list the near ones in each step."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.experts import LISTS
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import number, percent

SQUARE: Final = r"\bpow_tensor_scalar_kernel_impl\b"
"""Squares of a tensor."""

SUM: Final = r"(?s)\breduce_kernel<.*\bsum_functor<"
"""Sums over a dimension."""

DISTANCE: Final = r"(?s)\breduce_kernel<.*\bNormTwoOps\b|\bcdist_kernel_cuda_impl\b"
"""Lengths, and distances, by one kernel."""

COMPARE: Final = r"\bcompare_scalar_kernel\b|\bCompareFunctor\b"
"""Comparisons with a number, or of two tensors."""

SHORT: Final = 30
"""A sum over three coordinates takes 12 times as long as the comparison behind it (md_network,
2026-11-29); one over many numbers, which are no coordinates, more than so many times."""

OFTEN: Final = 0.9
"""In so many of the steps, or more, pairs are found anew. The advice is to do so now and then."""

PAIRS_PCT: Final = 10.0
"""Less of the kernel time is not worth a list of one's own."""

CHANGE: Final = (
    "points that move little: keep a list of pairs with a margin, and filter it in each step; renew"
    " it every 10 to 20 steps, or once a point has moved half of the margin",
    "new points in each step: use a search that writes no distances, such as"
    " torch_cluster.radius_graph or pytorch3d.ops.ball_query",
    "or sort the points into cells as wide as the cutoff, and compare neighbouring cells only",
)


def all_pairs(subject: JudgedReport) -> Iterator[Finding]:
    """The kernels from differences of points to the list of those that are nearer than a cutoff:
    squares, their sums over a few coordinates, a comparison, and nonzero.

    Molecular dynamics of 11,000 atoms took 16.8 ms a step so, and 9.5 with a list that it makes
    anew every tenth step (H200, 2026-11-29).
    """
    kernels = subject.kernels
    if not subject.of_steps or not matching(kernels["name"], LISTS).any():
        return
    listed, lists = _listed(kernels)
    rows = kernels_to_drop(subject, listed, PAIRS_PCT)
    if rows.is_empty() or subject.steps_with(rows["start_ns"]) < OFTEN * subject.steps:
        return
    times = number(subject.per_step(lists))
    often = "in each step" if times == "1" else f"{times} times a step"
    yield kernel_finding(
        subject,
        rows,
        rule="all-pairs",
        title=f"near pairs are found by distances of all pairs, {often}:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(
            "squares, their sums, a comparison and nonzero, right behind each other:"
            f" {in_words(subject, rows)}",
            LAUNCHES_TOO,
        ),
    )


def _listed(kernels: pl.DataFrame) -> tuple[pl.Series, int]:
    """Whether each kernel is of a list of near pairs, and how many lists there are."""
    names = kernels["name"]
    squares, sums = matching(names, SQUARE), matching(names, SUM)
    direct, lists = matching(names, DISTANCE), matching(names, LISTS)
    simple = kernels["class"].is_in(["elementwise", "reduction"]).fill_null(value=False) | direct
    # neighbours of these kinds; behind a list begin others
    run = pl.struct("lane", simple, lists.shift(1, fill_value=False).cum_sum()).rle_id()
    rows = kernels.select(
        run.alias("run"),
        "ns",
        (direct | (sums & squares.shift(1, fill_value=False))).alias("distance"),
        matching(names, COMPARE).alias("compares"),
        lists.alias("lists"),
    ).with_row_index("row")
    distance = pl.col("row").filter("distance").last()
    compared = pl.col("compares") & (pl.col("row") > distance)
    found = rows.group_by("run").agg(
        distance.alias("from"),
        pl.col("ns").filter("distance").last().alias("distance_ns"),
        pl.col("ns").filter(compared).first().alias("compared_ns"),
        pl.col("row").filter(compared).first().alias("compared"),
        pl.col("row").filter("lists").last().alias("listed"),
    )
    short = pl.col("distance_ns") <= SHORT * pl.col("compared_ns")
    found = found.filter(pl.col("compared") < pl.col("listed"), short)
    rows = rows.join(found, on="run", how="left", maintain_order="left")
    # what is shorter than the comparison has no number for each pair
    of_pairs = (pl.col("row") >= pl.col("from")) | (pl.col("ns") >= pl.col("compared_ns"))
    return rows.select(of_pairs.fill_null(value=False)).to_series(), len(found)
