"""Communication: what no compute hides, and which rank the others wait for."""

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results, gpu_name
from nsysflow.report.sections import more
from nsysflow.report.units import duration, number, percent, size


def communication(results: Results, limit: int) -> Block:
    """Communication kernels by kind and phase, those exposed longest first; ranks apart."""
    table = results.table("comm").sort(
        "exposed_ns", "busy_ns", descending=True, maintain_order=True
    )
    several = table.select("report", "device").n_unique() > 1
    many = len(results.reports) > 1
    sized = table["bytes"].null_count() < table.height
    rows = tuple(
        (
            *((gpu_name(row["report"], row["device"], several=many),) if several else ()),
            duration(row["exposed_ns"]),
            percent(row["hidden_pct"]),
            duration(row["busy_ns"]),
            number(row["count"]),
            *((size(row["bytes"]),) if sized else ()),
            row["phase"] or OUTSIDE,
            row["operation"] or "",
            row["name"],
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    return Block(
        title="Communication",
        caption="Exposed: with no compute at the same time; waiting for another rank counts too",
        columns=(
            *((Column(head="GPU"),) if several else ()),
            *map(figure, ("exposed", "hidden", "busy", "count")),
            *((figure("bytes"),) if sized else ()),
            words("phase"),
            words("operation"),
            words("kernel", spare=True),
        ),
        rows=rows,
        more=more(table.height - limit, "comm"),
    )


def ranks(results: Results, limit: int) -> Block:
    """Who came late to the collectives that all took part in, the latest first; where there are
    none, how many each rank did."""
    table = results.table("ranks").sort("late_ns", descending=True, nulls_last=True)
    several = len(results.reports) > 1
    rows = tuple(
        (
            gpu_name(row["report"], row["device"], several=several),
            duration(row["late_ns"]),
            number(row["times_last"]) if row["matched"] else "",
            duration(row["waited_ns"]),
            f"{number(row['matched'])} of {number(row['collectives'])}",
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    block = Block(
        title="Ranks",
        caption=_agreement(results),
        columns=(Column(head="rank"), *map(figure, ("late", "times last", "waited", "matched"))),
        rows=rows,
        more=(*_most(results), *more(table.height - limit, "ranks")),
    )
    return without_empty_columns(block)


def _agreement(results: Results) -> str:
    """How well the ranks' clocks agree: what comes late by less is not late."""
    apart = results.table("arrivals")["ends_spread_ns"].sort()
    if results.table("ranks").is_empty():
        return ""
    if apart.is_empty():
        return (
            "No collective was looked at that all ranks did equally often and ended together"
            " (groups of ranks have their own), so nobody can be called late"
        )
    median, worst = duration(apart[len(apart) // 2]), duration(apart[-1])
    several = len(results.reports) > 1
    aligned = "Clocks aligned by the ends of" if several else "The ends of"
    table = results.table("ranks")
    others = (table["matched"] < table["collectives"]).any()
    return (
        f"{aligned} {number(len(apart))} collectives, which agree within {median}, {worst} at most"
        + ("; the others are not of all ranks, or end apart" if others else "")
    )


def _most(results: Results) -> tuple[str, ...]:
    """The collective whose ranks were furthest apart, as a line."""
    arrivals = results.table("arrivals").sort("spread_ns", descending=True).head(1)
    for row in arrivals.iter_rows(named=True):
        late = gpu_name(row["last_report"], row["last_device"], several=len(results.reports) > 1)
        what = row["operation"] or row["name"]
        return (
            f"furthest apart: {what} {row['collective']}, {duration(row['spread_ns'])} from the"
            f" first to {late}: --table arrivals",
        )
    return ()
