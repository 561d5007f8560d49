"""The tables of an nsys export as frames, before they become a `Trace`.

`sqlite.read` and `parquetdir` fill a `Raw`; `canonical` turns it into a `Trace`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.load.nsys_export.tables import SAMPLED, TABLES, UNREAD_COLUMNS, Table
from nsysflow.base.errors import Incomplete, Remedy


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The tables of an export: nsys's column names, the types of `tables.TABLES`, in row order.

    Attributes:
        shown: the report's path as the user typed it, for messages.
        present: names of the tables that the export has.
        unknown: columns of those tables that no version known to us has, as `table.column`.
        unusable: how many rows were left out because a value that every row has was missing.
    """

    shown: str
    present: frozenset[str]
    unknown: tuple[str, ...]
    unusable: int
    strings: pl.DataFrame
    calls: pl.DataFrame
    kernels: pl.DataFrame
    memcpys: pl.DataFrame
    memsets: pl.DataFrame
    graphs: pl.DataFrame
    nvtx: pl.DataFrame
    overhead: pl.DataFrame
    event_records: pl.DataFrame
    waits: pl.DataFrame
    contexts: pl.DataFrame
    graph_nodes: pl.DataFrame
    threads: pl.DataFrame
    cuda_devices: pl.DataFrame
    gpus: pl.DataFrame
    diagnostics: pl.DataFrame
    export_info: pl.DataFrame
    gpu_metric_names: pl.DataFrame
    event_types: pl.DataFrame
    copy_kinds: pl.DataFrame
    memory_kinds: pl.DataFrame
    backtraces: pl.DataFrame
    python_samples: pl.DataFrame
    messages: pl.DataFrame
    gpu_samples: pl.DataFrame

    @property
    def ops(self) -> tuple[pl.DataFrame, ...]:
        """The tables of GPU operations."""
        return self.kernels, self.memcpys, self.memsets, self.graphs


def check_tables(
    shown: str, present: Mapping[str, tuple[str, ...]], remedy: Remedy
) -> tuple[str, ...]:
    """The columns of an export that no version known to us has, as `table.column`.

    Args:
        shown: the report's path, for messages.
        present: the export's tables with their columns.
        remedy: how to make the export again.

    Raises:
        Incomplete: a table or column that every export has is missing.
    """
    unknown: list[str] = []
    if "StringIds" not in present:
        raise Incomplete(f"{shown} is incomplete: it has no table StringIds", *remedy)
    for table in (*TABLES.values(), SAMPLED["gpu_samples"]):
        columns = present.get(table.name, ())
        missing = [name for name in table.required if name not in columns]
        if columns and missing:
            raise Incomplete(
                f"{shown} is incomplete: its table {table.name} has no column {missing[0]}", *remedy
            )
        known = UNREAD_COLUMNS.union(table.columns)
        unknown += [f"{table.name}.{name}" for name in columns if name not in known]
    return tuple(unknown)


def assemble(
    shown: str,
    present: Mapping[str, tuple[str, ...]],
    unknown: tuple[str, ...],
    frames: Mapping[str, pl.DataFrame],
) -> Raw:
    """A `Raw` of frames in the schemas of `TABLES` and `SAMPLED`, without unusable rows."""
    tables = {**TABLES, **SAMPLED}
    usable = {field: _usable(frame, tables[field]) for field, frame in frames.items()}
    left_out = sum(frame.height - usable[field].height for field, frame in frames.items())
    return Raw(
        shown=shown, present=frozenset(present), unknown=unknown, unusable=left_out, **usable
    )


def _usable(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The rows of events that have every required value; of other tables all rows."""
    is_event = not {"start", "timestamp"}.isdisjoint(table.required)
    if is_event and any(frame[name].null_count() for name in table.required):
        return frame.drop_nulls(list(table.required))
    return frame
