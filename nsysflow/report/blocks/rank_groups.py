"""The groups of ranks: in each of them, who holds the others up."""

import polars as pl

from nsysflow.analysis.ranks.stragglers import SAVED
from nsysflow.base.units import duration, number, share
from nsysflow.report.fields import Limits, Row, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, figure, without_empty_columns, words
from nsysflow.report.ranks import FROM, group_name, rank_namer, reasons, stragglers, typical_step_ns
from nsysflow.report.results import RunTables


def block(results: RunTables, limits: Limits) -> Block:
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
