"""The heat map of the page, rank by step: `about.heat`."""

from typing import Any

import polars as pl

from nsysflow.report.html.packing import Blobs, packed
from nsysflow.report.ranks.heat_map import longer_pct, own_ns
from nsysflow.report.ranks.names import rank_namer
from nsysflow.report.results import Results

_CELL = ["rank", "step"]


def heat_shown(results: Results, blobs: Blobs) -> dict[str, Any] | None:
    """The names of the ranks, the numbers of the steps, and for each rank its steps: `duration`,
    `own`, `late` and `cost` in ns, and `longer` in tenths of a percent. 0 where a rank lacks a
    step. None of few ranks. Adds the columns to `blobs`.
    """
    table = results.table("rank_steps")
    if not results.many or table.is_empty():
        return None
    ranks = table.select("rank", "report", "device").unique("rank", keep="first").sort("rank")
    steps = table.select("step").unique().sort("step")
    values = table.select(
        *_CELL,
        pl.col("duration_ns").alias("duration"),
        own_ns().alias("own"),
        pl.col("late_ns").alias("late"),
        pl.col("cost_ns").alias("cost"),
        (10 * longer_pct()).round().clip(0).cast(pl.Int64).alias("longer"),
    )
    cells = ranks.select("rank").join(steps, how="cross").join(values, on=_CELL, how="left")
    cells = cells.sort(_CELL).drop(_CELL).fill_null(0)
    name = rank_namer(results)
    columns = {column.name: packed(column) for column in cells}
    return {
        "ranks": [name(report, device) for _, report, device in ranks.rows()],
        "steps": steps["step"].to_list(),
        "columns": {each: blobs.column(of) for each, of in columns.items() if of is not None},
    }
