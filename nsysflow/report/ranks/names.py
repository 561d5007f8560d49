"""What ranks, their groups and the reasons for being late are called."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import polars as pl

from nsysflow.analysis.tables.schema import REASONS
from nsysflow.base.units import number, share
from nsysflow.report.results import Results, gpu_name

Row = Mapping[str, Any]

FROM: Final = {
    "cost_work_ns": "more compute",
    "cost_copy_ns": "copies",
    "cost_group_ns": "another group",
    "cost_host_ns": "host",
}
"""Why a rank comes late, in a cell."""

_MOST: Final = 0.9
"""A reason with this share is the only one said."""

_LEAST: Final = 0.1
"""A reason below this share is not said."""


def rank_namer(results: Results) -> Callable[[object, object], str]:
    """A function from a report and a device to what their rank is called: the report, with the GPU
    where a report has several."""
    ranks = results.table("ranks").select("report", "device").unique()
    several_gpus = ranks["report"].is_duplicated().any()
    several_reports = ranks["report"].n_unique() > 1

    def name(report: object, device: object) -> str:
        if several_reports and not several_gpus:
            return str(report)
        return gpu_name(str(report), int(str(device)), several=several_reports)

    return name


def group_name(row: Row) -> str:
    """What a group is called: `TP 8-15`, `all 64 ranks`."""
    if row["kind"] == "all":
        return f"all {number(row['ranks'])} ranks"
    return f"{row['kind'] or 'ranks'} {row['members']}"


def group_names(groups: pl.DataFrame) -> dict[int, str]:
    """What each group of RANK_GROUPS is called, by its number."""
    return {row["group"]: group_name(row) for row in groups.iter_rows(named=True)}


def reasons(row: Row, words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Why a rank is late, and the share of each reason, the largest first; one alone where it is
    nearly all."""
    whole = sum(row[reason] or 0 for reason in REASONS)
    if not whole:
        return []
    found = sorted(REASONS, key=lambda reason: -(row[reason] or 0))
    found = [reason for reason in found if (row[reason] or 0) >= _LEAST * whole]
    if row[found[0]] >= _MOST * whole:
        found = found[:1]
    return [(words[reason], share(row[reason], whole)) for reason in found]
