"""A copy of any trace that is safe to share, in Perfetto's format, which nsysflow reads back."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from nsysflow.analysis.analyze import analyze
from nsysflow.analysis.load.dispatch import load
from nsysflow.analysis.load.pack import write_copy
from nsysflow.analysis.load.private_names import public_observation, without_private
from nsysflow.analysis.load.unpacking import PERFETTO_SUFFIXES, Export
from nsysflow.analysis.trace import Trace
from nsysflow.report.perfetto.trace import write_trace
from nsysflow.report.results import Results

_ENDINGS: Final = "|".join(map(re.escape, PERFETTO_SUFFIXES))
_NAME: Final = re.compile(rf"(?P<report>.*)(?:{_ENDINGS})(?P<packed>\.xz|\.gz|\.zst|)")


def is_for_perfetto(out: Path) -> bool:
    """Whether a file of that name is to be in Perfetto's format."""
    return _NAME.fullmatch(out.name) is not None


def pack_trace(report: Path, out: Path, *, export: Export | None = None) -> None:
    """Write a copy of a report that gives the same page, but for private names.

    Args:
        report: what `load` reads.
        out: one that `is_for_perfetto`. Written whole or not at all.
        export: as for `load`.

    Raises:
        ReportError: the report cannot be loaded.
        NsysflowError: the package `perfetto` is not installed.
        OutputError: the copy cannot be written, or is the report itself.
    """
    name = _NAME.fullmatch(out.name)
    if name is None:
        raise ValueError(f"{out} is not for Perfetto")
    results = Results([analyze(_without_private(load(report, export=export), name["report"]))])

    def write(plain: Path) -> None:
        with plain.open("wb") as file:
            write_trace(results, file)

    write_copy(str(report), out, name["packed"], write)


def _without_private(trace: Trace, report: str) -> Trace:
    """The trace under another name, without prompts, ids of requests and paths in its names."""
    return replace(
        trace,
        report=report,
        ranges=_shared(trace.ranges, "name"),
        graph_ranges=_shared(trace.graph_ranges, "name"),
        frames=_shared(trace.frames, "function"),
        notes=tuple(
            replace(
                note,
                text=without_private(note.public or note.text),
                seen=note.seen and public_observation(note.seen),
            )
            for note in trace.notes
        ),
    )


def _shared(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows without what is private in the names of a column."""
    names = rows[column].unique().drop_nulls().cast(pl.String)
    public = {name: without_private(name) for name in names}
    changed = {name: shown for name, shown in public.items() if name != shown}
    if not changed:
        return rows
    kind = rows.schema[column]
    return rows.with_columns(pl.col(column).cast(pl.String).replace(changed).cast(kind))
