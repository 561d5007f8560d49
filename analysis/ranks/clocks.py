"""How far each report's clock is ahead of the first one's (spec §9.8)."""

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush

import polars as pl

from nsysflow.analysis.frames.statistics import median_ns


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
    for party, of in links.items():
        for report in of:
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
            of = links[heappop(heap)[1]]
            known = min(report for report in of if report in clocks)
            news = [report for report in of if report not in clocks]
            for report in news:
                clocks[report] = (clocks[known][0] + of[report] - of[known], first)
    return clocks


def _frame(clocks: Mapping[int, tuple[int, int]]) -> pl.DataFrame:
    rows = [(report, *clock) for report, clock in sorted(clocks.items())]
    names = ("report_no", "clock_ns", "component")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")
