"""Sums over steps of processes that share a GPU."""

from collections.abc import Sequence

import polars as pl


def once_per_gpu(steps: pl.DataFrame, columns: Sequence[str]) -> int:
    """The sum of these columns over steps and GPUs, each ns of a GPU once.

    Where processes share a GPU, their steps at the same time each contain all its idle time. The
    process with the largest sum counts.
    """
    gpu = ["report", "device"]
    ended = pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1).over(gpu)
    by_process = (
        steps.sort(*gpu, "start_ns", "end_ns")
        .with_columns(ended.fill_null(value=True).cum_sum().alias("together"))
        .group_by(*gpu, "together", "process")
        .agg(pl.sum_horizontal(columns).sum().alias("ns"))
    )
    return int(by_process.group_by(*gpu, "together").agg(pl.col("ns").max())["ns"].sum())
