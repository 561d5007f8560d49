"""Kernels that are launched in turn again and again: the passes of a loop."""

from typing import Final, Literal

import polars as pl

from nsysflow.analysis.findings.backward import BACKWARD
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.base.names import OUTSIDE

Kind = Literal["simple", "cells", "attention"]
"""What a loop launches: simple kernels alone, or also the products of recurrent cells, or calls of
attention, such as one for each head."""

KINDS: Final[tuple[Kind, ...]] = ("simple", "cells", "attention")
"""A kernel that is in loops of several kinds counts for the first of these."""

PASSES: Final = 10
"""So many passes, or more, are a loop …"""

CALLS: Final = 4
"""… and so many calls of attention with nothing but their own products between them."""

OWN_PRODUCTS: Final = 3
"""A call of attention has no more products of its own: query, key and value. From one layer to the
next there are four or more: the output, two of an MLP, and those three as one."""

LONGEST_PASS: Final = 60
"""A pass of a loop launches no more kernels."""

ALIKE: Final = 0.9
"""So many kernels of a loop are like those of the pass before: the first pass of each step is not,
and a pass may do a little more or less, such as the gradient of a table with few rows."""

CELL: Final = r"\b(?:lstm|gru)_cell_(?:forward|backward)"
"""PyTorch's kernels of nn.LSTMCell and nn.GRUCell, one for each step in time. nn.LSTM and nn.GRU
run cuDNN's kernels."""

OF_ATTENTION: Final = ("elementwise", "copy/cast", "reduction", "matmul", "attention")
"""Classes of kernels between the calls for two heads. Between two layers there is a norm, too."""

SIMPLE: Final = (
    "elementwise",
    "copy/cast",
    "reduction",
    "norm",
    "softmax",
    "fft",
    "solver",
    "embedding",
    "other",
)
"""Classes of kernels that one call over many tensors can do. Other loops with matmuls are models,
which need other remedies."""

SAME_PASSES: Final = 0.1
"""Loop and backward pass may differ by this share of their passes: the first or last one may launch
less …"""

SAME_CALLS: Final = 0.25
"""… of the few passes in a row of calls of attention by more."""


def _is_simple() -> pl.Expr:
    """Whether a kernel is one that few over many tensors can replace, and no optimizer's."""
    updates = (pl.col("job") == "optimizer").fill_null(value=False)
    return pl.col("class").is_in(SIMPLE) & ~updates


def with_passes(subject: JudgedReport) -> pl.DataFrame:
    """The judged kernels, with `phase` (`OUTSIDE` for no range), `simple`, and of those in a loop
    `pass_kernels`, how many a pass of it launches: the fewest in a row that run, in the same
    order but for a tenth, `PASSES` times or more without another kernel between them, all of the
    loop's `kind` and in one phase."""
    return kept_with(subject, "passes of loops", lambda: _with_passes(subject))


def _with_passes(subject: JudgedReport) -> pl.DataFrame:
    phase = subject.view.attribution.name_of(subject.kernels["node"])
    kernels = subject.kernels.with_columns(phase.alias("phase"), _is_simple().alias("simple"))
    order = kernels.select(pl.arg_sort_by("lane", "start_ns").alias("kernel")).to_series()
    ordered = kernels["name", "class", "lane", "phase", "simple"][order].with_columns(order)
    cell, call = pl.lit(matching(ordered["name"], CELL)), is_call_of_attention()
    product = pl.col("class") == "matmul"
    backward = pl.lit(matching(ordered["phase"], BACKWARD)).fill_null(value=False)
    left = pl.when(call).then(OWN_PRODUCTS).otherwise(0) - (product & ~backward).cast(pl.Int32)
    kinds: dict[Kind, tuple[int, pl.Expr, list[pl.Expr]]] = {
        "simple": (PASSES, pl.col("simple"), []),
        "cells": (PASSES, pl.col("simple") | product, [cell.alias("holds")]),
        "attention": (
            *(CALLS, pl.col("class").is_in(OF_ATTENTION)),
            [call.alias("holds"), left.alias("left")],
        ),
    }
    found = []
    for kind, (least, member, limits) in kinds.items():
        parts = "kernel", pl.col("name").to_physical(), "lane", "phase"
        rows = ordered.select(*parts, member.alias("member"), *limits)
        if not limits or rows["holds"].any():
            found.append(
                _passes(rows, least).with_columns(pl.lit(kind, pl.Enum(KINDS)).alias("kind"))
            )
    first = pl.concat(found).unique("kernel", keep="first", maintain_order=True)
    numbers = pl.int_range(len(kernels), dtype=pl.UInt32, eager=True).alias("kernel").to_frame()
    text = pl.col("phase").cast(pl.String).fill_null("").replace("", OUTSIDE)
    passes = numbers.join(first, on="kernel", how="left", maintain_order="left")
    return kernels.with_columns(text).hstack(passes.drop("kernel"))


def is_call_of_attention() -> pl.Expr:
    """Whether a kernel is the first of a call of attention. A call may launch several different
    kernels. The kernels are in order."""
    attention, name = pl.col("class") == "attention", pl.col("name")
    again = (name == name.shift(1)).fill_null(value=True)
    return attention & (~attention.shift(1, fill_value=False) | again)


def _passes(kernels: pl.DataFrame, least: int) -> pl.DataFrame:
    """`kernel`, `pass_kernels` and `row` of the kernels in loops. Kernels in a row share a number.

    Args:
        kernels: in order: `kernel`, `name`, `lane`, `phase`; whether a loop may launch it
            (`member`). Where these columns are there, a pass has a kernel that `holds` it together,
            and its sum of `left` is not negative.
        least: so many passes are a loop.
    """
    parts = ("lane", "phase", "member")
    same = pl.all_horizontal(pl.col(part).eq_missing(pl.col(part).shift(1)) for part in parts)
    rows = kernels.with_columns((~same).cum_sum().alias("row")).filter("member")
    rows = rows.drop("lane", "phase", "member").with_columns(
        pl.lit(None, pl.UInt32).alias("pass_kernels"), pl.len().over("row").alias("length")
    )
    if "holds" in rows.columns:
        rows = rows.filter(pl.col("holds").any().over("row"))
    found = [rows.head(0)]
    for count in range(1, LONGEST_PASS + 1):
        rows = rows.filter(pl.col("length") >= least * count)
        if rows.is_empty():
            break
        again = [pl.col(name) == pl.col(name).shift(count) for name in ("name", "row")]
        if "holds" in rows.columns:
            again.append(pl.col("holds").cast(pl.Int32).rolling_sum(count) > 0)
        if "left" in rows.columns:
            again.append(pl.col("left").rolling_sum(count) >= 0)
        flags = rows.select(pl.all_horizontal(again).fill_null(value=False))
        spans = _spans(flags.to_series(), (least - 1) * count)
        if not spans.is_empty():
            inside = _covered(spans.with_columns(pl.col("first") - count), len(rows))
            length = pl.when(inside).then(pl.lit(count, pl.UInt32))
            rows = rows.with_columns(pl.coalesce("pass_kernels", length).alias("pass_kernels"))
            found.append(rows.filter(inside))
            rows = rows.filter(pl.col("pass_kernels").is_null().any().over("row"))
    return pl.concat(found).unique("kernel", keep="first").select("kernel", "pass_kernels", "row")


def _spans(flags: pl.Series, length: int) -> pl.DataFrame:
    """`first` and `after` of each so many rows in a row of which the flags of the first, the last
    and `ALIKE` of all are set."""
    up_to = flags.cast(pl.Int64).cum_sum()
    set_before = up_to.shift(length, fill_value=0)
    enough = (up_to - set_before >= ALIKE * length) & flags & flags.shift(length - 1)
    last = enough.arg_true().cast(pl.Int64)
    return pl.DataFrame({"first": last - length + 1, "after": last + 1})


def _covered(spans: pl.DataFrame, length: int) -> pl.Series:
    """Of so many rows, whether a span holds each. Spans are in order and may overlap."""
    rows = pl.int_range(length, dtype=pl.Int64, eager=True)
    span = spans["first"].search_sorted(rows, side="right").cast(pl.Int64) - 1
    return (rows < spans["after"].gather(span.set(span < 0, None))).fill_null(value=False)


def passes_of(subject: JudgedReport, kernels: pl.DataFrame) -> float:
    """How many passes of loops a step makes.

    Args:
        subject: the judged part.
        kernels: rows of `with_passes`.
    """
    return float((1 / kernels["pass_kernels"]).sum()) / subject.steps


def backward_of(subject: JudgedReport, passes: float, kind: Kind = "simple") -> pl.DataFrame:
    """The kernels of loops in backward passes that make as many passes a step, rows of
    `with_passes`."""
    kernels = with_passes(subject).filter(
        pl.col("kind") == kind, pl.col("phase").str.contains(BACKWARD)
    )
    apart = SAME_CALLS if kind == "attention" else SAME_PASSES
    loops = [
        rows
        for _, rows in sorted(kernels.group_by("phase"))
        if abs(passes_of(subject, rows) - passes) <= apart * passes
    ]
    return pl.concat(loops) if loops else kernels.clear()
