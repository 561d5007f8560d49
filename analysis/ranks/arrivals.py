"""Who came when to each collective, and what that cost the others (spec §9.8 to §9.12)."""

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.ranks.groups import ALL_RANKS, TOGETHER, NumberedRanks
from nsysflow.analysis.ranks.stragglers import REASONS, with_reasons
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

RANKS: Final = TableSchema(
    """One row per rank: a process on a GPU; `rank` numbers them in the order of the reports.
    `matched` counts the `collectives` in which all ranks of a group took part (spec §9). Of these,
    it was last in `times_last`; `late_ns` sums how late it was after the first rank, and
    `waited_ns` how long it waited for the last one. `cost_ns` is what it cost the others: how much
    less exposed communication it has than the rank with the next least. `cost_work_ns` to
    `cost_host_ns` say why, and sum to `cost_ns`. `clock_ns` is how far its report's clock is ahead
    of the first report's; `residual_ns` is the median difference that remains.""",
    [
        *shared("report process device"),
        Column(
            "collectives",
            pl.Int64(),
            "how many communication kernels, without sends and receives",
        ),
        Column("matched", pl.Int64(), "in how many of them all ranks of a group took part"),
        Column("times_last", pl.Int64(), "in how many of those it came last"),
        *shared("late_ns"),
        Column("waited_ns", pl.Int64(), "how long it waited for the last rank, all together"),
        Column(
            "clock_ns",
            pl.Int64(),
            "how far its report's clock is ahead of the first report's",
        ),
        Column(
            "residual_ns",
            pl.Int64(),
            "the median difference of the ends that remains when the clocks are aligned",
        ),
        *shared("rank cost_ns cost_work_ns cost_copy_ns cost_group_ns cost_host_ns"),
    ],
)

ARRIVALS: Final = TableSchema(
    """One row per collective of a group that ended together on its ranks (spec §9), in order of
    time. Times are on the first report's clock. `start_ns` is the first rank's arrival, `spread_ns`
    the time until the last one's, `done_ns` what the transfer itself took after it. `cost_ns` is
    what one rank had cost the others when it ended, since they were last in step.
    `ends_spread_ns` is how far the ends differ: how well the clocks agree.""",
    [
        Column("collective", pl.Int64(), "the collective's number, in order of time"),
        Column("name", pl.String(), "the kernel's short name"),
        *shared("operation"),
        Column(
            "bytes",
            pl.Int64(),
            "the message size that NCCL states; empty where it states none",
        ),
        Column("ranks", pl.Int64(), "how many ranks took part"),
        Column("start_ns", pl.Int64(), "when the first rank arrived, on the first report's clock"),
        Column(
            "spread_ns",
            pl.Int64(),
            "how much later the last rank arrived: what the others waited",
        ),
        Column("last_report", pl.String(), "the report of the rank that came last"),
        Column("last_device", pl.Int32(), "the GPU of the rank that came last"),
        Column(
            "ends_spread_ns",
            pl.Int64(),
            "how far apart the ends are, which shows how well the clocks agree",
        ),
        Column(
            "group",
            pl.Int64(),
            "the number of the group of ranks that took part, as in rank_groups",
        ),
        Column("last_rank", pl.Int64(), "the rank that came last"),
        Column(
            "cost_ns",
            pl.Int64(),
            "what one rank cost the others since they were last in step, where they are in step "
            "again",
        ),
        Column(
            "done_ns",
            pl.Int64(),
            "from the last rank's arrival to the end: what the transfer itself took",
        ),
    ],
)


def unknown_clocks(reports: int) -> pl.DataFrame:
    """Before anything is known: `report_no`, `clock_ns`, `component`, each report by itself."""
    return _frame({number: (0, number) for number in range(reports)})


def clocks_of(met: pl.DataFrame, reports: int) -> pl.DataFrame:
    """`report_no`, `clock_ns`, `component`: how far its clock is ahead of that of the first report
    that groups join it to, which is `component`.

    Args:
        met: kernels of `kernels_of` with `kind` and `party`.
        reports: how many reports there are.
    """
    ends = met.group_by("party", "kind", "turn", "report_no").agg(pl.col("end_ns").max())
    lowest = pl.col("report_no").min().over("party")
    there = ends.filter(pl.col("report_no") == lowest).drop("report_no", "party")
    ahead = (
        ends.join(there, on=["kind", "turn"], suffix="_there")
        .group_by("party", "report_no")
        .agg(
            median_ns(pl.col("end_ns") - pl.col("end_ns_there")).alias("ahead_ns"),
            pl.len().alias("collectives"),
        )
    )
    links: dict[int, dict[int, int]] = defaultdict(dict)
    weight: dict[int, int] = {}
    for party, report, ahead_ns, count in ahead.sort("party", "report_no").iter_rows():
        links[party][report] = ahead_ns
        weight[party] = count
    return _frame(_joined(links, weight, reports))


def _joined(
    links: Mapping[int, Mapping[int, int]], weight: Mapping[int, int], reports: int
) -> dict[int, tuple[int, int]]:
    """(clock, component) of each report: from the first on, always by the group with the most
    collectives that joins another report.

    Args:
        links: per party, how far each of its reports is ahead of its first.
        weight: per party, its number of collectives.
        reports: how many reports there are.
    """
    parties_of: dict[int, list[int]] = defaultdict(list)
    for party, ahead_ns in links.items():
        for report in ahead_ns:
            parties_of[report].append(party)
    clocks: dict[int, tuple[int, int]] = {}
    for first in range(reports):
        if first in clocks:
            continue
        clocks[first] = (0, first)
        heap: list[tuple[int, int]] = []
        news = [first]
        while True:
            for report in news:
                for party in parties_of[report]:
                    heappush(heap, (-weight[party], party))
            if not heap:
                break
            ahead_ns = links[heappop(heap)[1]]
            known = min(report for report in ahead_ns if report in clocks)
            news = [report for report in ahead_ns if report not in clocks]
            for report in news:
                clocks[report] = (clocks[known][0] + ahead_ns[report] - ahead_ns[known], first)
    return clocks


def _frame(clocks: Mapping[int, tuple[int, int]]) -> pl.DataFrame:
    rows = [(report, *clock) for report, clock in sorted(clocks.items())]
    names = ("report_no", "clock_ns", "component")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def with_costs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `arrivals.aligned`, plus what the rank cost the others since they were last in
    step, where they are in step again, and why; 0 elsewhere.

    Added are `cost_ns`, `reasons.REASONS` that sum to it, and `begun_ns`: when the rank was last in
    step, on its report's own clock, where it cost something (null in the first stretch).
    """
    stretches = with_reasons(stretches_of(rows), rows)
    return rows.join(
        stretches, on=["collective", "rank"], how="left", maintain_order="left"
    ).with_columns(pl.col("cost_ns", *REASONS).fill_null(0))


def stretches_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The stretches from one time that ranks are in step to the next in which one rank held up the
    others: `collective`, with which it ends, `previous`, with which the one before it ended,
    `rank`, which held up the others, and `second`, the next one; and `cost_ns`.

    In between, all took the same time. Those that were held up spent it in exposed communication,
    and the one that held them up has the least of it.

    Args:
        rows: of `arrivals.aligned`.
    """
    collectives = rows.unique("collective").sort("party", "ended_ns", "collective")
    ends = pl.when("in_step").then("collective")
    stretches = collectives.select(
        "collective",
        ends.backward_fill().over("party").alias("ending"),
        ends.forward_fill().shift(1).over("party").alias("previous"),
    ).drop_nulls("ending")
    return (
        rows[["collective", "rank", "awaited_ns"]]
        .join(stretches, on="collective")
        .group_by("ending", "rank")
        .agg(pl.col("previous").first(), pl.col("awaited_ns").sum())
        .sort("awaited_ns", "rank")
        .group_by("ending", maintain_order=True)
        .agg(
            pl.col("previous").first(),
            pl.col("rank").first(),
            pl.col("rank").get(1).alias("second"),
            (pl.col("awaited_ns").get(1) - pl.col("awaited_ns").first()).alias("cost_ns"),
        )
        .filter(pl.col("cost_ns") > 0)
        .rename({"ending": "collective"})
    )


def costs_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`rank`, `step`, `cost_ns` and REASONS: what a rank cost in its group where that is most, the
    first of several. The same delay holds up its other groups at the same time.

    Args:
        rows: of `with_costs`.
    """
    costs = rows.group_by("rank", "step", "group").agg(pl.col("cost_ns", *REASONS).sum())
    dearest = costs.sort("cost_ns", "group", descending=[True, False])
    return dearest.unique(["rank", "step"], keep="first").drop("group")


_ORDER: Final = ["start_ns", "end_ns", "stream", "name", "communicator", "kind", "turn"]

MOSTLY: Final = 2
"""Ranks are in step after a collective of whose transfer one part in this many, or more, is exposed
on each, if all compute before the next one ends: their compute waited for its end. A rank that has
computed all that it can waits for a later one."""

AT_ALL: Final = 10
"""Of a kernel whose compute waited for it, at least one part in this many of the transfer is
exposed: between two kernels of compute, a little of any kernel is."""


def aligned(met: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """The kernels of collectives that end together, on the clock of the first report, by
    `collective` and rank.

    `own_start_ns` and `own_end_ns` are on their report's own clock. `late_ns` and `waited_ns` are
    how long after the first rank and before the last one a rank came; `last` says whether it is
    that one. `awaited_ns` is the exposed time of a kernel that compute waited for. Of the
    collective are `arrived_ns` (its first rank), `ended_ns`, `spread_ns`, `done_ns`,
    `ends_spread_ns`, and `in_step`: whether the compute of every rank waited for it, so that they
    are in step when it ends.

    Args:
        met: kernels of `kernels_of` with `kind`, its `lowest` rank and `group`.
        clocks: of `clocks_of`.
    """
    ahead = pl.col("clock_ns")
    rows = met.join(clocks[["report_no", "clock_ns"]], on="report_no").with_columns(
        pl.col("start_ns").alias("own_start_ns"),
        pl.col("end_ns").alias("own_end_ns"),
        pl.col("start_ns") - ahead,
        pl.col("end_ns") - ahead,
    )
    agreed = _collectives(rows).filter(TOGETHER * pl.col("ends_spread_ns") < pl.col("shortest_ns"))
    start, all_there = pl.col("start_ns"), pl.col("all_there_ns")
    rows = (
        rows.join(agreed, on=["kind", "turn"])
        .sort("collective", "rank")
        .with_columns(
            (start - pl.col("arrived_ns")).alias("late_ns"),
            (all_there - start).alias("waited_ns"),
            (all_there - pl.col("arrived_ns")).alias("spread_ns"),
            (pl.col("ended_ns") - all_there).alias("done_ns"),
            _first_where(start == all_there).alias("last"),
        )
    )
    transfer, exposed = pl.col("end_ns") - all_there, pl.col("exposed_ns")
    awaited = pl.when(AT_ALL * exposed >= transfer).then(exposed).otherwise(0)
    more_ns = pl.col("compute_until_ns").shift(-1) - pl.col("compute_until_ns")
    goes_on = (more_ns > 0).over("party", "rank", order_by=["ended_ns", "collective"])
    waited = (MOSTLY * exposed >= transfer) & goes_on.fill_null(value=True)
    return rows.with_columns(awaited.alias("awaited_ns"), waited.alias("in_step")).with_columns(
        pl.col("in_step").all().over("collective")
    )


def _first_where(true: pl.Expr) -> pl.Expr:
    """The first rank of each collective of which it is true."""
    return true & (true.cum_sum().over("collective") == 1)


def _collectives(rows: pl.DataFrame) -> pl.DataFrame:
    """Per `kind` and `turn`: its number, and when its ranks came and ended."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    numbers = (
        rows.filter(pl.col("rank") == pl.col("lowest"))
        .sort(_ORDER)
        .select("kind", "turn", pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"))
    )
    times = rows.group_by("kind", "turn").agg(
        start.min().alias("arrived_ns"),
        start.max().alias("all_there_ns"),
        start.top_k(2).min().alias("second_last_ns"),
        (end.max() - end.min()).alias("ends_spread_ns"),
        median_ns(end).alias("ended_ns"),
        (end - start).min().alias("shortest_ns"),
    )
    return times.join(numbers, on=["kind", "turn"])


def arrivals_table(rows: pl.DataFrame, ranks: NumberedRanks) -> pl.DataFrame:
    """ARRIVALS.

    Args:
        rows: of `costs.with_costs`, those to show.
        ranks: of `ranks_of`.
    """
    sizes = rows.group_by("collective").agg(
        pl.col("bytes").max(),
        pl.col("cost_ns").sum(),
        pl.len().cast(pl.Int64).alias("ranks"),
        pl.col("name").first(),
    )
    last = rows.filter("last").drop("bytes", "name", "cost_ns").join(sizes, on="collective")
    names = ranks.select("rank", pl.col("report").alias("last_report"))
    return (
        last.join(names, on="rank")
        .sort("collective")
        .select(
            *("collective", "name", "operation", "bytes", "ranks"),
            pl.col("arrived_ns").alias("start_ns"),
            *("spread_ns", "last_report", pl.col("device").alias("last_device"), "ends_spread_ns"),
            *("group", pl.col("rank").alias("last_rank"), "cost_ns", "done_ns"),
        )
        .match_to_schema(ARRIVALS)
    )


def ranks_table(
    ranks: NumberedRanks, counted: pl.DataFrame, rows: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """RANKS.

    Args:
        ranks: of `ranks_of`.
        counted: the communication kernels to count.
        rows: of `costs.with_costs`, those to sum up; sends and receives are left out.
        clocks: the reports whose clocks are known: `report_no`, `clock_ns`.
    """
    collectives = pl.col("pair").not_()
    rows, counted = rows.filter(collectives), counted.filter(collectives)
    off = (pl.col("end_ns") - _reference_end()).abs()
    costs = costs_of(rows).group_by("rank").agg(pl.col("cost_ns", *REASONS).sum())
    met = (
        rows.with_columns(off.alias("off"))
        .group_by("rank")
        .agg(
            pl.len().cast(pl.Int64).alias("matched"),
            pl.col("last").sum().cast(pl.Int64).alias("times_last"),
            median_ns(pl.col("off")).alias("residual_ns"),
            pl.col("late_ns", "waited_ns").sum(),
        )
    )
    counts = counted.group_by("rank").agg(pl.len().cast(pl.Int64).alias("collectives"))
    return (
        ranks.join(counts, on="rank", how="left")
        .join(met, on="rank", how="left")
        .join(costs, on="rank", how="left")
        .join(clocks, on="report_no", how="left")
        .with_columns(pl.col("collectives", "matched", "times_last").fill_null(0))
        .sort("rank")
        .select([*RANKS])
        .match_to_schema(RANKS)
    )


def _reference_end() -> pl.Expr:
    """The latest end of the first report in each collective."""
    first = pl.col("report_no") == pl.col("report_no").min().over("collective")
    return pl.when(first).then("end_ns").max().over("collective")


TABLES: Final = (
    Table(
        name="ranks",
        schema=RANKS,
        scope="run",
        csv="with rows",
        json_key="ranks",
        page_rows=4,
        full_rows=64,
        filled_by=ALL_RANKS,
        shown=(
            "report device late_ns cost_ns waited_ns times_last matched cost_work_ns "
            "cost_copy_ns cost_group_ns cost_host_ns process clock_ns residual_ns"
        ),
    ),
    Table(
        name="arrivals",
        schema=ARRIVALS,
        scope="run",
        csv="with rows",
        json_key="arrivals",
        filled_by=ALL_RANKS,
        shown=(
            "collective operation spread_ns last_report last_device cost_ns done_ns start_ns "
            "bytes group ranks ends_spread_ns"
        ),
    ),
)
