"""What the reader should know about an nsys export."""

import re
from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.load.export_tables import Raw
from nsysflow.analysis.load.labels import direction, nvtx_event_types
from nsysflow.analysis.load.sampled import GIL_DOMAIN, domains_called, wanted_metrics
from nsysflow.analysis.load.unpacking import export_of
from nsysflow.analysis.schema import METRICS, MOVES_MANAGED_MEMORY
from nsysflow.analysis.trace import Note, NoteKind

_KNOWN_SCHEMA: Final = 3
_MAJOR: Final = re.compile(r"[0-9]{1,9}(?=\.|\Z)")
"""A longer number is damage, and int() refuses thousands of digits."""

_LISTED_COLUMNS: Final = 6
_HOST_FUNCTIONS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"
"""How long streams waited for functions on the host, from nsys 2025.6 on."""


def notes_on(raw: Raw) -> Iterator[Note]:
    """Notes on what the export lacks or hides, and on what we do not know."""
    yield from _version(raw)
    yield from _unknown_columns(raw)
    if raw.unread:
        why = "; ".join(raw.unread.values())
        yield Note(NoteKind.UNREAD_TABLES, f"tables that cannot be used were left out: {why}")
    yield from _missing(raw)
    yield from _hidden(raw)
    yield from _unusable(raw)


def nameless_calls(count: int, total: int) -> Note:
    """The note that the names of `count` of `total` calls are missing."""
    return Note(
        NoteKind.NAMELESS_CALLS,
        f"{count} of {total} API calls have no name in StringIds, so they count as other API calls",
    )


def _version(raw: Raw) -> Iterator[Note]:
    info = dict(raw.export_info[["name", "value"]].iter_rows())
    version = info.get("EXPORT_SCHEMA_VERSION") or ""
    major = _MAJOR.match(version)
    if major is not None and int(major[0]) > _KNOWN_SCHEMA:
        yield Note(
            NoteKind.NEWER_SCHEMA,
            f"the export has schema {version}; this version of nsysflow knows up to"
            f" {_KNOWN_SCHEMA}.x",
        )


def _unknown_columns(raw: Raw) -> Iterator[Note]:
    if raw.unknown:
        more = len(raw.unknown) - _LISTED_COLUMNS
        rest = f" and {more} more" if more > 0 else ""
        listed = ", ".join(raw.unknown[:_LISTED_COLUMNS])
        yield Note(NoteKind.UNKNOWN_COLUMNS, f"unknown columns were ignored: {listed}{rest}")


def _missing(raw: Raw) -> Iterator[Note]:
    if all(frame.is_empty() for frame in raw.ops):
        yield Note(
            NoteKind.NO_GPU_WORK, "no GPU work in this report; was it captured with --trace cuda?"
        )
    elif raw.calls.is_empty():
        yield Note(
            NoteKind.NO_CALLS,
            "no CUDA API calls in this report; was it captured with --trace cuda?",
        )
    if raw.kernels.is_empty() and raw.graphs.is_empty() and _has_launches(raw):
        yield Note(
            NoteKind.NO_KERNELS,
            "kernels were launched, but none was recorded: this nsys may be too old for the CUDA"
            " driver (nsys 2023.4 records none on CUDA 13), or os._exit or a signal ended the"
            " program before nsys had saved them; record again with a newer nsys, or let the"
            " program end by itself",
        )
    if not _has_ranges(raw):
        yield Note(
            NoteKind.NO_RANGES, "no NVTX ranges in this report; was it captured with --trace nvtx?"
        )


def _hidden(raw: Raw) -> Iterator[Note]:
    """Notes on what was recorded in a way that hides it."""
    if not raw.graphs.is_empty():
        yield Note(
            NoteKind.GRAPHS_TRACED_WHOLE,
            f"CUDA graphs were traced as a whole, so the kernels of {raw.graphs.height} graph"
            " launches are hidden; to see them, record with nsysflow profile --graph-trace node"
            " (nsys profile --cuda-graph-trace=node)",
        )
    if _HOST_FUNCTIONS in raw.present:
        yield Note(
            NoteKind.NOT_CARRIED,
            "streams waited for functions on the host (cudaLaunchHostFunc, or host nodes of CUDA"
            f" graphs); {_HOST_FUNCTIONS} is not read, so idle time behind them reads as waiting"
            " for GPU work",
        )
    for what, rows in (("backtraces", raw.backtraces), ("samples", raw.python_samples)):
        if len(rows) and rows["jsonText"].null_count() == len(rows):
            _, command = export_of(raw.shown, json=True)
            yield Note(
                NoteKind.BACKTRACES_NOT_EXPORTED,
                f"Python {what} were recorded, but not exported; to export them: {command}",
            )
    read = wanted_metrics(raw.gpu_metric_names)["metric"]
    if not raw.gpu_metric_names.is_empty() and not read.is_in(METRICS).any():
        yield Note(
            NoteKind.OTHER_COUNTERS,
            "GPU counters were sampled, but none of SM, tensor core or memory activity; choose"
            " another set of metrics (nsys profile --gpu-metrics-set=help lists them)",
        )


def _unusable(raw: Raw) -> Iterator[Note]:
    total = sum(frame.height for frame in raw.ops)
    moved = direction("copyKind", raw.copy_kinds).str.contains(MOVES_MANAGED_MEMORY)
    launched = (raw.kernels, raw.memcpys.filter(~moved), raw.memsets, raw.graphs)
    unlinked = sum(int((frame["correlationId"].fill_null(0) == 0).sum()) for frame in launched)
    if unlinked:
        yield Note(
            NoteKind.NO_CORRELATION,
            f"{unlinked} of {total} GPU operations have no correlation id, so the call that"
            " launched them is unknown",
        )
    if raw.unusable:
        yield Note(
            NoteKind.UNUSABLE_ROWS,
            f"{raw.unusable} rows were left out: they lack a time, device or name, or their time is"
            " impossible",
        )


def _has_ranges(raw: Raw) -> bool:
    types = nvtx_event_types(raw.event_types)
    ranges = [types["NvtxPushPopRange"], types["NvtxStartEndRange"]]
    of_gil = domains_called(GIL_DOMAIN, raw.nvtx, raw.event_types, raw.strings)
    of_others = raw.nvtx.filter(~pl.col("domainId").fill_null(0).is_in(of_gil))
    return bool(of_others["eventType"].is_in(ranges).any())


def _has_launches(raw: Raw) -> bool:
    launch = pl.col("value").str.contains(r"^(cuda|cu)(Launch|GraphLaunch)")
    ids = raw.strings.filter(launch)["id"].cast(pl.UInt32)
    return bool(raw.calls["nameId"].is_in(ids.implode()).any())
