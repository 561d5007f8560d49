"""The tables of a report in partitions: those of the undivided analysis, row by row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from nsysflow.analysis.options import Options
from nsysflow.analysis.partitions.carried import Carried
from nsysflow.analysis.partitions.halo import Stretch
from nsysflow.analysis.partitions.outline import Outline
from nsysflow.analysis.partitions.partition import Partition, PartitionView
from nsysflow.analysis.tables.accounting import accounting_table, hidden_pct
from nsysflow.analysis.tables.gaps import (
    LENGTHS,
    LONGER,
    gap_histogram,
    gap_rows,
    idle_groups,
    step_counts,
    summed_up,
    window_lengths,
)
from nsysflow.analysis.tables.schema import SCHEMAS


def partitions(
    outline: Outline, cuts: Sequence[int], options: Options, steps: pl.DataFrame
) -> Iterator[Partition]:
    """The partitions of a report, one after the other; each is analysed when it is reached.

    Args:
        outline: of the report.
        cuts: instants, sorted; what starts there or later belongs to the partition behind.
        options: what to look at.
        steps: of the whole report.
    """
    borders = [None, *cuts, None]
    carried = Carried.at_the_start()
    for begin_ns, end_ns in pairwise(borders):
        part = Partition(outline, Stretch(begin_ns, end_ns), carried, options, steps)
        yield part
        carried = part.left


def tables_of(parts: Iterator[Partition], report: str) -> dict[str, pl.DataFrame]:
    """The tables of `MERGED`, of all partitions."""
    found: dict[str, list[tuple[pl.DataFrame, ...]]] = {name: [] for name in MERGED}
    for part in parts:
        view = PartitionView(part)
        for name, merged in MERGED.items():
            found[name].append(tuple(make(view) for make in merged.made))
    return {
        name: _titled(MERGED[name].merge(*map(pl.concat, zip(*made, strict=True))), name, report)
        for name, made in found.items()
    }


@dataclass(frozen=True)
class Merged:
    """How a table of partitions becomes that of the report.

    Attributes:
        made: what is made of each partition.
        merge: the table, from these frames with the rows of all partitions.
    """

    made: tuple[Callable[[PartitionView], pl.DataFrame], ...]
    merge: Callable[..., pl.DataFrame]


def _titled(rows: pl.DataFrame, name: str, report: str) -> pl.DataFrame:
    schema = SCHEMAS[name]
    titled = rows.with_columns(pl.lit(report).alias("report"))
    return titled.select(schema.names()).match_to_schema(schema)


def _gaps(view: PartitionView) -> pl.DataFrame:
    """The gaps of a partition; each device goes on counting."""
    rows = gap_rows(view, view.gaps)
    rows = rows.join(view.timeline.carried.gaps, on="device", how="left", maintain_order="left")
    return rows.with_columns(pl.col("gap") + pl.col("gaps").fill_null(0)).drop("gaps")


def _accounting(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums; shares anew from the sums."""
    edges = ("start_ns", "end_ns")
    sums = [name for name in rows.columns if rows.schema[name] == pl.Int64 and name not in edges]
    return (
        rows.group_by("device", "name")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col(sums).sum())
        .with_columns(
            hidden_pct(pl.col("copy_exposed_ns"), pl.col("copy_union_ns")).alias("copy_hidden_pct"),
            hidden_pct(pl.col("comm_exposed_ns"), pl.col("comm_union_ns")).alias("comm_hidden_pct"),
        )
        .sort("device")
    )


def _gap_histogram(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums, by length."""
    length = pl.Enum([*(label for _, label in LENGTHS), LONGER])
    key = ["device", "length", "cause"]
    sums = rows.group_by(key).agg(pl.col("gaps", "idle_ns").sum())
    return sums.sort("device", pl.col("length").cast(length), "cause")


def _gap_summary(groups: pl.DataFrame, windows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Sums; every partition knows all steps."""
    windows = windows.group_by("device").agg(pl.col("window_ns").sum())
    return summed_up(groups, windows, steps.unique())


MERGED: Final = {
    "gaps": Merged((_gaps,), lambda rows: rows.sort("device", "gap")),
    "accounting": Merged((accounting_table,), _accounting),
    "gap_histogram": Merged((gap_histogram,), _gap_histogram),
    "gap_summary": Merged((idle_groups, window_lengths, step_counts), _gap_summary),
}
"""The tables that can be made so."""
