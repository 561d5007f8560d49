"""The judged kernels as they ran one after the other, and what each row of them belongs to."""

from typing import Final

import polars as pl

from nsysflow.analysis.findings.kernels.traits import CHAIN_CLASSES, with_traits
from nsysflow.analysis.selection.view import View

TINY_NS: Final = 5_000
"""A kernel shorter than this is mostly its own start and end: an empty one takes 1 to 2 us of the
GPU, and 5 us of bandwidth are only 20 MB on an H200."""

TINY_RUN: Final = 20
"""So many tiny kernels back to back are a loop over tensors, and not the glue of a layer."""

MOST_GLUE: Final = 16
"""Attention has at most so many kernels between its two matmuls: scale, mask, casts, softmax,
dropout and copies were 11 in eager PyTorch with a mask under autocast."""

FEWEST_UPDATES: Final = 8
"""An optimizer's run updates at least so many tensors one by one."""

_OPTIMIZER: Final = r"(?i)optim"
"""Ranges of optimizers: `optimizer`, `Optimizer.step#AdamW.step`, `optim_step`."""


def kernels_in_order(view: View) -> pl.DataFrame:
    """The judged kernels, stream by stream in the order in which they ran.

    Columns: `process`, `device`, `node`, `detail` (its row in SHAPES), `start_ns`, `ns`, `name`,
    `short_name`, those of `with_traits`, `lane` (a number per stream) and `job`: the one that a
    kernel is part of, `attention` (between the two matmuls of one that is not fused), `optimizer`
    (tensor by tensor), `tiny` (a run of kernels shorter than `TINY_NS`), `chain` (of neighbours
    that only move memory), or null. `run` numbers neighbours of one job.
    """
    kernels = _by_lane(view.ops)
    pair = ["name", "short_name"]
    names = with_traits(kernels.select(pair).unique(), view.options.kernel_classes)
    kernels = kernels.join(names, on=pair, how="left", maintain_order="left")
    tuned = _in_optimizer(kernels, view)
    kernels = kernels.with_columns(tuned.alias("tuned"))
    kernels = kernels.with_columns(_attention(kernels).alias("attention"))
    kernels = kernels.with_columns(_updates(kernels).alias("optimizer"))
    kernels = kernels.with_columns(_tiny(kernels).alias("tiny"))
    kernels = kernels.with_columns(_job().alias("job"))
    run = pl.struct("lane", "job").rle_id()
    return kernels.with_columns(run.alias("run")).drop("tuned", "attention", "optimizer", "tiny")


def _by_lane(ops: pl.DataFrame) -> pl.DataFrame:
    """The kernels, stream by stream; operations are in the order of their start."""
    stream = ["device_no", "process", "stream"]
    ns = (pl.col("end_ns") - pl.col("start_ns")).clip(0).alias("ns")
    columns = ("process", "device", "node", "detail", "start_ns", "name", "short_name", "ns")
    rows = ops.lazy().filter(pl.col("kind") == "kernel")
    kernels = rows.select(*columns[:-1], ns, "device_no", "stream").collect()
    lanes = kernels.select(stream).unique().sort(stream, nulls_last=True).with_row_index("lane")
    if len(lanes) < 2:
        return kernels.select(*columns, pl.lit(0, pl.UInt32).alias("lane"))
    numbered = kernels.join(lanes, on=stream, how="left", maintain_order="left", nulls_equal=True)
    return numbered.select(*columns, "lane").sort("lane", maintain_order=True)


def _job() -> pl.Expr:
    moves = pl.col("class").is_in(CHAIN_CLASSES)
    return (
        pl.when("attention")
        .then(pl.lit("attention"))
        .when("optimizer")
        .then(pl.lit("optimizer"))
        .when("tiny")
        .then(pl.lit("tiny"))
        .when(moves)
        .then(pl.lit("chain"))
    )


def run_of(kernels: pl.DataFrame, member: pl.Expr) -> pl.DataFrame:
    """Per maximal run of members on a stream: `first` and `last` row, `count`."""
    numbered = kernels.select("lane", member.fill_null(value=False).alias("member")).with_columns(
        pl.struct("lane", "member").rle_id().alias("run")
    )
    rows = numbered.with_row_index("row").filter("member")
    return rows.group_by("run", maintain_order=True).agg(
        pl.col("row").first().alias("first"),
        pl.col("row").last().alias("last"),
        pl.len().cast(pl.Int64).alias("count"),
    )


def _covered(kernels: pl.DataFrame, runs: pl.DataFrame) -> pl.Series:
    """Whether each row lies in one of the runs."""
    edges = pl.zeros(len(kernels) + 1, dtype=pl.Int32, eager=True)
    edges = edges.scatter(runs["first"], 1)
    ends = pl.zeros(len(kernels) + 1, dtype=pl.Int32, eager=True).scatter(runs["last"] + 1, 1)
    return (edges - ends).cum_sum().head(len(kernels)) > 0


def _attention(kernels: pl.DataFrame) -> pl.Series:
    """The kernels between two matmuls of which one is a softmax."""
    triton = (pl.col("class") == "triton").fill_null(value=False)
    glue = pl.col("class").is_in(CHAIN_CLASSES) | triton
    runs = run_of(kernels, glue).filter(pl.col("count") <= MOST_GLUE)
    softmaxes = kernels["softmax"].arg_true()
    holds = softmaxes.search_sorted(runs["last"], side="right") > softmaxes.search_sorted(
        runs["first"]
    )
    matmul = (kernels["class"] == "matmul").extend_constant(value=False, n=1)
    lanes = kernels["lane"].extend_constant(None, n=1)
    before = runs.select(pl.when(pl.col("first") > 0).then(pl.col("first") - 1)).to_series()
    before = before.fill_null(len(kernels))
    after = runs["last"] + 1
    here = lanes.gather(runs["first"])
    between = (
        matmul.gather(before)
        & matmul.gather(after)
        & (lanes.gather(before) == here).fill_null(value=False)
        & (lanes.gather(after) == here).fill_null(value=False)
    )
    return _covered(kernels, runs.filter(holds & between))


def _in_optimizer(kernels: pl.DataFrame, view: View) -> pl.Series:
    """Whether each kernel was launched in a range that is called an optimizer."""
    named = view.attribution.paths["joined"].str.contains(_OPTIMIZER)
    path = view.attribution.path_of(kernels["node"])
    return named.gather(path).fill_null(value=False)


def _updates(kernels: pl.DataFrame) -> pl.Series:
    """Kernels that update one tensor each: in an optimizer's range, or in a run that has an
    optimizer's arithmetic."""
    moves = pl.col("class").is_in(CHAIN_CLASSES)
    runs = run_of(kernels, moves)
    updates = kernels["update"].arg_true()
    count = updates.search_sorted(runs["last"], side="right") - updates.search_sorted(runs["first"])
    runs = runs.filter(count.cast(pl.Int64) >= FEWEST_UPDATES)
    return _covered(kernels, runs) | (kernels["tuned"] & kernels["class"].is_in(CHAIN_CLASSES))


def _tiny(kernels: pl.DataFrame) -> pl.Series:
    """Kernels in a run of `TINY_RUN` that are shorter than `TINY_NS`, with no longer pause."""
    end = (pl.col("start_ns") + pl.col("ns")).shift(1)
    paused = (pl.col("start_ns") - end > TINY_NS).fill_null(value=False)
    stretch = paused.cum_sum()
    lanes = kernels.with_columns(pl.struct(pl.col("lane"), stretch).rle_id().alias("lane"))
    runs = run_of(lanes, (pl.col("ns") < TINY_NS) & (pl.col("class") != "comm"))
    return _covered(kernels, runs.filter(pl.col("count") >= TINY_RUN))
