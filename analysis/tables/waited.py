"""The time without compute by what was waited for (spec §15)."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.events.waits import WaitPieces
from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.frames.scratch import in_slices
from nsysflow.analysis.schema import KIND_OF_WAIT, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

WAITED: Final = TableSchema(
    """One row per process, device, phase, kind and operation of the time without compute. Of
    `communication`, `copy` and `other` (an operation of another GPU), `name` and `stream` are those
    of the operation that was waited for, `phase` and `process` those of its launch. `host` (not
    launched yet), `start` (launched and free to start) and `unresolved` are of the operation that
    had not started, without its name. `waits` counts the waits. A device's rows sum to its window
    minus compute.""",
    [
        *shared("report"),
        Column(
            "process",
            pl.Int64(),
            "the process that launched what was waited for; if it was not launched yet, what "
            "waited",
        ),
        *shared("device"),
        Column("phase", pl.String(), "the NVTX ranges in which that was launched"),
        Column(
            "kind",
            KIND_OF_WAIT,
            "communication, copy, other (work of another GPU), host (not launched yet), start "
            "(launched and free to start) or unresolved",
        ),
        Column(
            "name",
            pl.String(),
            "the short name of the operation that was waited for; empty where it is none",
        ),
        Column("stream", pl.Int64(), "the stream of the operation that was waited for"),
        Column("waits", pl.Int64(), "how many waits"),
        Column(
            "total_ns",
            pl.Int64(),
            "how long the next compute operation waited for it while nothing computed",
        ),
        Column("largest_ns", pl.Int64(), "the longest single wait"),
        Column("window_pct", pl.Float64(), "the share of the GPU's window"),
    ],
)

NAMED: Final = ("communication", "copy", "other")
"""The kinds whose operation is named: it ran, and another one waited for it."""


def waited_table(view: View) -> pl.DataFrame:
    """The WAITED table, in a stable order."""
    paths = view.attribution.paths
    sums = pl.concat(
        [each for pieces in in_slices(view.waited, view.scratch) for each in _sums(view, pieces)],
        how="diagonal",
    )
    sums = sums.with_columns(
        paths["joined"][sums["path"]].fill_null("").alias("phase"),
        pl.col("short_name").cast(pl.String).fill_null("").alias("name"),
    )
    window = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("window_ns")
    key = ["device_no", "process", "phase", "kind", "name", "stream"]
    return (
        # names may contain `/`, so that two paths read alike
        sums.group_by(key)
        .agg(pl.col("waits", "total_ns").sum(), pl.col("largest_ns").max())
        .join(view.windows.group_by("device_no").agg(window), on="device_no")
        .join(view.events.devices, on="device_no")
        .sort(key)
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            percent(pl.col("total_ns"), pl.col("window_ns")).alias("window_pct"),
        )
    )


def _sums(view: View, pieces: WaitPieces) -> Iterator[pl.DataFrame]:
    """Two tables of sums: one for the kinds in `NAMED`, by name and stream, and one for all other
    kinds, which have neither."""
    ops, named = view.timeline.ops, pieces["kind"].is_in(NAMED)
    rows = pieces.select(
        "device_no",
        "kind",
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        ops["process"][pieces["op"]],
        view.attribution.path_of(ops["node"][pieces["op"]]),
    )
    of_ops = ops[["short_name", "stream"]][pieces["op"].filter(named)]
    where, which = ["process", "device_no", "path", "kind"], of_ops.columns
    yield _summed(rows.filter(named).hstack(of_ops), [*where, *which])
    yield _summed(rows.filter(~named), where)


def _summed(pieces: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    return pieces.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("waits"),
        pl.col("ns").sum().alias("total_ns"),
        pl.col("ns").max().alias("largest_ns"),
    )


TABLES: Final = (
    Table(
        name="waited",
        schema=WAITED,
        make=waited_table,
        json_key="waited",
        ranked_by="total_ns",
        filled_by="in this selection the GPU computes all the time",
        shown="total_ns kind name stream phase waits largest_ns window_pct device report process",
    ),
)
