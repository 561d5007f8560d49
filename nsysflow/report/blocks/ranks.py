"""The ranks of a run: who comes late to the collectives and who waits in them, in each group, and
who takes longer than the others in which step."""

import polars as pl

from nsysflow.analysis.ranks.stragglers import SAVED
from nsysflow.base.units import duration, number, share
from nsysflow.report.fields import Limits, Row, gpu_field, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.ranks import (
    FROM,
    KEY,
    Line,
    group_name,
    heat_map,
    rank_namer,
    reasons,
    stragglers,
    typical_step_ns,
)
from nsysflow.report.results import RunTables, gpu_name


def ranks_block(results: RunTables, limits: Limits) -> Block:
    """The ranks, the straggler first; only their numbers of collectives where none could be
    compared."""
    table = results.table("ranks").sort("late_ns", descending=True, nulls_last=True)
    ranks = make_block(
        "Ranks",
        named_rows(table, limits),
        (
            gpu_field(results, head="rank"),
            (figure("late"), value("late_ns", duration)),
            (figure("times last"), lambda row: number(row["times_last"]) if row["matched"] else ""),
            (figure("waited"), value("waited_ns", duration)),
            (figure("compared"), _compared),
        ),
        caption=_agreement(results),
        more=_largest_skew(results),
        rest=more_rows(table.height - limits.rows, "ranks"),
    )
    return without_empty_columns(ranks)


def _compared(row: Row) -> str:
    return f"{number(row['matched'])} of {number(row['collectives'])}"


def _agreement(results: RunTables) -> str:
    """How well the ranks' clocks agree: a smaller difference is no lateness."""
    table = results.table("ranks")
    apart = results.table("arrivals")["ends_spread_ns"].sort()
    if table.is_empty():
        return ""
    if apart.is_empty():
        return (
            "No collective has the same count on all ranks and ends on all at the same time, so"
            " stragglers cannot be determined; groups of ranks have collectives of their own"
        )
    median, worst = duration(apart[len(apart) // 2]), duration(apart[-1])
    several = len(results.reports) > 1
    aligned = "Clocks aligned by the ends of" if several else "The ends of"
    others = (table["matched"] < table["collectives"]).any()
    return (
        f"{aligned} {number(len(apart))} collectives: they agree to {median} (median),"
        f" {worst} (worst)"
        + ("; the others are not of all ranks, or end at different times" if others else "")
    )


def _largest_skew(results: RunTables) -> tuple[str, ...]:
    """The collective with the largest skew, as a line."""
    arrivals = results.table("arrivals").sort("spread_ns", descending=True).head(1)
    for row in arrivals.iter_rows(named=True):
        last = gpu_name(row["last_report"], row["last_device"], several=len(results.reports) > 1)
        operation = row["operation"] or row["name"]
        return (
            f"largest skew: {operation} {row['collective']}, {duration(row['spread_ns'])} from the"
            f" first rank to {last}: --table arrivals",
        )
    return ()


def rank_groups_block(results: RunTables, limits: Limits) -> Block:
    """The groups, those with a straggler first; none of a single group, of which the page's first
    lines tell all."""
    groups = results.table("rank_groups").filter(pl.col("collectives") > 0)
    step_ns = typical_step_ns(results)
    held_up = stragglers(groups, step_ns)
    others = groups.with_columns(SAVED.alias("lost_ns"))
    others = others.join(held_up, on="group", how="anti", maintain_order="left")
    others = others.sort("lost_ns", descending=True, nulls_last=True, maintain_order=True)
    table = pl.concat([held_up, others])
    if len(groups) < 2:
        table = table.clear()
    name = rank_namer(results)

    def straggler(row: Row) -> str:
        late = row["report"] is not None and row["lost_ns"]
        return name(row["report"], row["device"]) if late else ""

    def cost(row: Row) -> str:
        ns = row["lost_ns"]
        return f"{duration(ns)} {share(ns, step_ns)}" if ns and step_ns else duration(ns)

    return without_empty_columns(
        make_block(
            "Groups",
            named_rows(table, limits),
            (
                (words("group"), group_name),
                (figure("ranks"), value("ranks", number)),
                (words("straggler"), straggler),
                (figure("costs a step"), cost),
                (figure("in steps"), _steps),
                (words("late from"), lambda row: ", ".join(map(" ".join, reasons(row, FROM)))),
                (figure("collectives", spare=True), value("collectives", number)),
            ),
            caption="The straggler costs its group most time: it comes last, and the others wait",
            rest=more_rows(table.height - limits.rows, "rank_groups"),
        )
    )


def _steps(row: Row) -> str:
    return f"{number(row['steps_last'])} of {number(row['steps'])}" if row["steps"] else ""


WIDTH = 64
"""Letters of a line: with the names beside it, it fits on most screens."""


def rank_steps_block(results: RunTables, limits: Limits) -> Block:
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
