"""`load-imbalance`: one rank has more to compute than the others, which wait for it."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.schema import blocks_of_grid, os_pid
from nsysflow.base.units import number, percent

MORE_PCT: Final = 5
"""Equal ranks of one run compute equally long to 0.3 % (samples ddp-*, two H200s)."""

GROWN: Final = 1.02
"""A kernel that runs so much more often, or with so many more blocks, has more to do."""

EXPLAINED: Final = 0.25
"""At least this share of the time that a rank computes longer is of kernels that have more to do.
Not most of it: persistent kernels have one grid for all sizes. Of a GPU with slow clocks, none
has more to do."""

MOST_NAMED: Final = 2
"""So many kernels are named."""

CHANGE: Final = (
    "give all ranks equal work: the same number of tokens, sequences packed to equal lengths",
    "of experts or pipeline stages: balance the routing, or move layers to another stage",
    "if lengths must differ: sort batches by length, so that all ranks have long ones together",
)


def load_imbalance(
    subjects: Sequence[JudgedReport], ranks: Ranks
) -> Iterator[tuple[JudgedReport, Finding]]:
    """The rank that computes longest, if that is because its kernels run more often or on more
    blocks than those of another rank; and its report."""
    computing = ranks.computing.join(ranks.matched.ranks, on="rank").sort("compute_ns", "rank")
    if len(computing) < 2:
        return
    own = computing.row(-1, named=True)
    usual_ns = computing.head(-1)["compute_ns"].mean()
    assert isinstance(usual_ns, float)
    known = {subject.report: subject for subject in subjects if subject.of_steps}
    others = computing.head(-1).filter(pl.col("report").is_in([*known]))
    more_pct = 100 * (own["compute_ns"] / max(1.0, usual_ns) - 1)
    if more_pct < MORE_PCT or own["report"] not in known or others.is_empty():
        return
    away = (pl.col("compute_ns") - usual_ns).abs()
    other = others.sort(away, "rank").row(0, named=True)
    kernels = _compared(*(_kernels(known[rank["report"]], rank) for rank in (own, other)))
    grown = kernels.filter("grown").sort("more_ns", "name", descending=[True, False])
    if float(grown["more_ns"].sum()) < EXPLAINED * float(kernels["more_ns"].sum()):
        return
    yield known[own["report"]], _finding(known[own["report"]], own, more_pct, computing, grown)


def _kernels(subject: JudgedReport, rank: dict[str, Any]) -> pl.DataFrame:
    """Per name of a rank's compute kernels: `count`, `blocks` and `ns` a step."""
    mine = (os_pid(pl.col("process")) == rank["process"]) & (pl.col("device") == rank["device"])
    ops = subject.view.ops.filter(mine, pl.col("part") == "compute", pl.col("kind") == "kernel")
    blocks = subject.grids.select(blocks_of_grid()).to_series()
    steps = max(1, len(subject.judged_steps.filter(mine)))
    return (
        ops.with_columns(blocks[ops["detail"]].alias("blocks"), pl.col("name").cast(pl.String))
        .group_by("name")
        .agg(
            pl.col("short_name").cast(pl.String).first(),
            (pl.len() / steps).alias("count"),
            pl.col("blocks").mean(),
            ((pl.col("end_ns") - pl.col("start_ns")).sum() / steps).alias("ns"),
        )
    )


def _compared(own: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The kernels of both: `more_ns` that they take longer a step on the own rank, `often` whether
    they run more often there, and `grown` whether they have more to do."""
    both = own.join(other, on="name", how="full", coalesce=True, suffix="_other")
    often = pl.col("count").fill_null(0) > GROWN * pl.col("count_other").fill_null(0)
    larger = (pl.col("blocks") > GROWN * pl.col("blocks_other")).fill_null(value=False)
    more = pl.col("ns").fill_null(0) - pl.col("ns_other").fill_null(0)
    return both.with_columns(more.alias("more_ns"), often.alias("often")).with_columns(
        ((pl.col("often") | larger) & (pl.col("more_ns") > 0)).alias("grown")
    )


def _finding(
    subject: JudgedReport,
    own: dict[str, Any],
    more_pct: float,
    computing: pl.DataFrame,
    grown: pl.DataFrame,
) -> Finding:
    several = len(computing.filter(pl.col("report") == own["report"])) > 1
    name = f"{own['report']} on GPU {own['device']}" if several else own["report"]
    whole = int(own["compute_ns"])
    mean_ns = computing["compute_ns"].mean()
    assert isinstance(mean_ns, float)
    return Finding(
        rule="load-imbalance",
        title=f"load imbalance: {name} computes {percent(more_pct)} more than the other ranks",
        change=CHANGE,
        evidence=(
            f"it computes {subject.spent(whole)}, all ranks {subject.spent(round(mean_ns))} in the"
            " mean",
            *(_more(row) for row in grown.head(MOST_NAMED).iter_rows(named=True)),
        ),
        table="rank_steps",
        size_ns=round(whole - mean_ns),
        steps=subject.steps,
        changes=Changes(even_ranks=True),
        process=own["process"],
        device=own["device"],
        culprit=own["report"],
    )


def _more(row: dict[str, Any]) -> str:
    """How a kernel has more to do than on another rank."""
    if row["often"]:
        times = f"{_few(row['count'])} times a step"
        return f"{row['short_name']} runs {times}, on another rank {_few(row['count_other'] or 0)}"
    blocks = f"{number(round(row['blocks']))} blocks"
    return f"{row['short_name']} has {blocks}, on another rank {number(round(row['blocks_other']))}"


def _few(count: float) -> str:
    return number(round(count)) if count >= 1 or not count else f"{count:.2f}"
