"""The ranks of a run: who comes late to the collectives, and who waits in them."""

from nsysflow.base.units import duration, number
from nsysflow.report.fields import Limits, Row, gpu_field, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, figure, without_empty_columns
from nsysflow.report.results import RunTables, gpu_name


def block(results: RunTables, limits: Limits) -> Block:
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
