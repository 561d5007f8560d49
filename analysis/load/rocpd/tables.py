"""The tables of a rocpd database, which rocprofv3 writes, as frames.

Each recorded process has tables of its own, whose names end with its uuid. Where an event ran
stands in its row (schema 3.0) or in its track (4.1), and its times stand in the row or, in the
first databases, in a table of times.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load.export_tables import Table
from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.analysis.load.sqlite import (
    Reader,
    as_report_errors,
    check_none_is_lost,
    describe,
    reading,
    sqlite_uri,
)
from nsysflow.analysis.load.unpacking import export_of
from nsysflow.base.errors import Incomplete

_KERNELS: Final = "rocpd_kernel_dispatch"
_SUFFIX: Final = re.compile(rf"{_KERNELS}(_.*)?")

_EVENT: Final = dict.fromkeys(
    ("start", "end", "start_id", "end_id", "event_id", "track_id", "pid"), pl.Int64()
)
"""When and where something ran: in the row, or by the number of a time and of a track."""

_ON_GPU: Final = {**_EVENT, **dict.fromkeys(("agent_id", "stream_id"), pl.Int64())}

THREE: Final = ("x", "y", "z")
_IN_GRAPH: Final = {"graph_node_id": pl.Int64()}


def _columns(*numbers: str, **others: pl.DataType) -> pl.Schema:
    return pl.Schema({**dict.fromkeys(numbers, pl.Int64()), **others})


_TABLES: Final[Mapping[str, tuple[str, pl.Schema, tuple[str, ...]]]] = {
    "kernels": (
        _KERNELS,
        pl.Schema(
            {
                **_ON_GPU,
                **_IN_GRAPH,
                **_columns("kernel_id", "group_segment_size"),
                **_columns(*(f"workgroup_size_{axis}" for axis in THREE)),
                **_columns(*(f"grid_size_{axis}" for axis in THREE)),
            }
        ),
        ("kernel_id",),
    ),
    "copies": (
        "rocpd_memory_copy",
        pl.Schema({**_ON_GPU, **_IN_GRAPH, **_columns("dst_agent_id", "src_agent_id", "size")}),
        (),
    ),
    "regions": (
        "rocpd_region",
        pl.Schema({**_EVENT, **_columns("tid", "name_id")}),
        ("name_id",),
    ),
    "events": (
        "rocpd_event",
        _columns("id", "category_id", "stack_id", "parent_stack_id"),
        ("id", "category_id"),
    ),
    "strings": ("rocpd_string", _columns("id", string=pl.String()), ("id", "string")),
    "categories": ("rocpd_info_category", _columns("id", name=pl.String()), ("id", "name")),
    "symbols": (
        "rocpd_info_kernel_symbol",
        _columns("id", "arch_vgpr_count", kernel_name=pl.String(), display_name=pl.String()),
        ("id",),
    ),
    "tracks": (
        "rocpd_track",
        _columns("id", "pid", "tid", "agent_id", "stream_id"),
        ("id",),
    ),
    "times": ("rocpd_timestamp", _columns("id", "value"), ("id", "value")),
    "agents": (
        "rocpd_info_agent",
        _columns(
            *("id", "type_index", "logical_index"),
            **dict.fromkeys(("type", "name", "product_name", "extdata"), pl.String()),
        ),
        ("id", "type"),
    ),
    "processes": ("rocpd_info_process", _columns("id", "pid"), ("id", "pid")),
    "threads": ("rocpd_info_thread", _columns("id", "pid", "tid", name=pl.String()), ("id",)),
    "metadata": (
        "rocpd_metadata",
        pl.Schema({"tag": pl.String(), "value": pl.String()}),
        ("tag", "value"),
    ),
}
"""By field of `Frames`: the name of a table without its suffix, the columns that are read, and
those that every database has."""

_ALWAYS: Final = ("events", "strings", "symbols", "agents")
"""Fields of the tables that every database has."""

_DETAILS: Final = ("processes", "threads", "metadata")
"""Fields of the tables without which the rest stays true."""

MARKER: Final = r"(?i)marker"
"""Matches the categories of ROCTX's events: `MARKER_CORE_RANGE_API`."""

_POLARS: Final = {str: pl.String(), int: pl.Int64()}

Frames = Mapping[str, pl.DataFrame]
"""The tables of one process with rocpd's column names, by the fields of `_TABLES`; and `messages`,
the text of each marker (`message`) by its event (`id`)."""


def is_rocpd(path: Path, shown: str) -> bool:
    """Whether the SQLite file at `path` is a rocpd database.

    Raises:
        ReportError: it cannot be read.
    """
    uri = sqlite_uri(path, shown)
    with as_report_errors(shown):
        columns, _ = describe(uri, lambda _: False)
    return any(map(_SUFFIX.fullmatch, columns))


def read_tables(path: Path, shown: str, scratch: Scratch | None) -> tuple[list[Frames], list[str]]:
    """The tables of each recorded process in the database at `path`, and what of them was left out.

    Raises:
        Damaged: it is truncated or corrupt.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every database has.
    """
    uri = sqlite_uri(path, shown)
    with as_report_errors(shown):
        columns, extents = describe(uri, lambda name: name.startswith("rocpd_"))
        suffixes = [match[1] or "" for match in map(_SUFFIX.fullmatch, columns) if match]
        left_out: dict[str, str] = {}
        processes = [_tables(shown, columns, suffix, left_out) for suffix in suffixes]
        wanted = {name: of_table for name, of_table in columns.items() if name not in left_out}
        with reading(uri, path, wanted, extents, scratch, lenient=True) as reader:
            raws = [_raw(reader, tables) for tables in processes]
        for tables, raw in zip(processes, raws, strict=True):
            read = {field: table for field, table in tables.items() if table.name not in left_out}
            check_none_is_lost(uri, read, raw, extents)
    return raws, [*left_out.values(), *reader.unread.values()]


def _tables(
    shown: str, columns: Mapping[str, tuple[str, ...]], suffix: str, left_out: dict[str, str]
) -> dict[str, Table]:
    """The tables of one process. Adds to `left_out` why one of details cannot be used, by its name.

    Raises:
        Incomplete: another one, or a column of it, is missing.
    """
    tables = {}
    for field, (name, read, required) in _TABLES.items():
        table = Table(name=f"{name}{suffix}", columns=read, required=required)
        present = columns.get(table.name, ())
        missing = [column for column in required if column not in present]
        timed = {"start", "end"} <= {*present} or {"start_id", "end_id"} <= {*present}
        if "start_id" in read and not timed:
            missing.append("start")
        if present and missing and field in _DETAILS:
            left_out[table.name] = f"{table.name}, which has no column {missing[0]}"
        elif present and missing:
            seen = f"{shown} is incomplete: its table {table.name} has no column {missing[0]}"
            raise Incomplete(seen, *export_of(shown))
        if not present and field in _ALWAYS:
            seen = f"{shown} is incomplete: it has no table {table.name}"
            raise Incomplete(seen, *export_of(shown))
        tables[field] = table
    return tables


def _raw(reader: Reader, tables: Mapping[str, Table]) -> Frames:
    """The tables of one process, as far as they are needed."""
    frames = reader.all_of(tables)
    marks = categories_of(frames).filter(pl.col("category").str.contains(MARKER))["id"]
    ids = frames["events"].filter(pl.col("category_id").is_in(marks.implode()))["id"]
    first, last = ids.min(), ids.max()
    events = Table(
        name=tables["events"].name, columns=_columns("id", extdata=pl.String()), required=()
    )
    rows = events.columns.to_frame()
    if (
        "extdata" in reader.columns[events.name]
        and isinstance(first, int)
        and isinstance(last, int)
    ):
        # rocprofv3 writes events kind by kind, so that these are together
        rows = reader.read(events, {"id": range(first, last + 1)})
    rows = rows.filter(pl.col("id").is_in(ids.implode()))
    return {**frames, "messages": rows.select("id", extra_value("extdata", "message", str))}


def categories_of(raw: Frames) -> pl.DataFrame:
    """`id`, `category` of events: in a table of their own, or among the strings."""
    if len(raw["categories"]):
        return raw["categories"].select("id", pl.col("name").alias("category"))
    return raw["strings"].select("id", pl.col("string").alias("category"))


class _Extra(msgspec.Struct):
    """What is read of the JSON beside an event or an agent."""

    message: Any = None
    cu_count: Any = None


_EXTRA: Final = msgspec.json.Decoder(_Extra)


def extra_value(column: str, value: str, dtype: type[str] | type[int]) -> pl.Expr:
    """A value in a column of JSON; null where it is missing or of another type."""

    def decoded(texts: pl.Series) -> pl.Series:
        found = {}
        for text in texts.drop_nulls().unique():
            extra = decoded_or_none(_EXTRA, text)
            known = None if extra is None else getattr(extra, value)
            found[text] = known if type(known) is dtype else None
        values = pl.Series(found.values(), dtype=_POLARS[dtype], strict=False)
        return texts.replace_strict(
            pl.Series([*found], dtype=pl.String), values, default=None, return_dtype=values.dtype
        )

    return pl.col(column).map_batches(decoded, return_dtype=_POLARS[dtype]).alias(value)
