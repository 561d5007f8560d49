"""Ranks by steps as a heat map of letters: who took longer than the others, and when."""

import polars as pl

from nsysflow.base.units import duration
from nsysflow.report.fields import Limits, make_block
from nsysflow.report.layout import Block, Column, figure
from nsysflow.report.ranks import KEY, Line, heat_map, rank_namer
from nsysflow.report.results import RunTables

WIDTH = 64
"""Letters of a line: with the names beside it, it fits on most screens."""


def block(results: RunTables, limits: Limits) -> Block:
    """The heat map of many ranks, stragglers and outliers first; few are in the table of steps. It
    draws all steps, and costs are of the judged ones, as everywhere on the page."""
    table = results.whole.table("rank_steps")
    if not results.whole.many:
        table = table.clear()
    steps = table["step"].unique().sort()
    reports = table[["rank", "report", "device"]].unique("rank", keep="first")
    name = rank_namer(results)
    names = {rank: name(report, device) for rank, report, device in reports.rows()}
    per_step = pl.col("cost_ns").sum() // pl.col("step").n_unique()
    costs = dict(results.table("rank_steps").group_by("rank").agg(per_step).rows())

    def ranks(line: Line) -> str:
        first, *_, last = (*line.ranks, line.ranks[-1])
        return names[first] if len(line.ranks) == 1 else f"{names[first]} to {names[last]}"

    def cost(line: Line) -> str:
        return duration(max(costs.get(rank, 0) for rank in line.ranks))

    lines = heat_map(table, conspicuous_ranks(results), limits.rows, WIDTH)
    span = f"step {steps[0]} to {steps[-1]}" if len(steps) else ""
    return make_block(
        "Ranks by step",
        lines,
        (
            (Column(head="ranks"), ranks),
            (Column(head=span, drawn=True), lambda line: line.letters),
            (figure("costs a step"), cost),
        ),
        caption=f"Over the median rank, waits left out: {KEY} of a step",
    )


def conspicuous_ranks(results: RunTables) -> list[int]:
    """The ranks to show by themselves: stragglers that cost most, and outliers."""
    groups = results.table("rank_groups").filter(pl.col("cost_step_ns") > 0)
    dearest = groups.sort("cost_step_ns", descending=True).head(1)["rank"].drop_nulls()
    outliers = results.table("rank_outliers")["rank"]
    return list(dict.fromkeys([*dearest, *outliers]))
