"""What a reader should know about an nsys export before trusting what follows from it."""

from typing import Final

import polars as pl

from nsysflow.analysis.load.labels import nvtx_event_types
from nsysflow.analysis.load.raw import Raw
from nsysflow.analysis.load.sampled import wanted_metrics

_KNOWN_SCHEMA: Final = 3
_MANY: Final = 6


def notes_on(raw: Raw) -> tuple[str, ...]:
    """Sentences on what the export lacks, or has that we do not know."""
    found = (*_version(raw), *_news(raw), *_absent(raw), *_hidden(raw), *_doubtful_rows(raw))
    return tuple(found)


def _version(raw: Raw) -> list[str]:
    info = dict(raw.export_info.select("name", "value").iter_rows())
    major = (info.get("EXPORT_SCHEMA_VERSION") or "").partition(".")[0]
    if not major.isdecimal() or int(major) <= _KNOWN_SCHEMA:
        return []
    return [
        f"the export's schema {info['EXPORT_SCHEMA_VERSION']} is newer than {_KNOWN_SCHEMA}.x,"
        " which this version of nsysflow knows"
    ]


def _news(raw: Raw) -> list[str]:
    if not raw.news:
        return []
    more = f" and {len(raw.news) - _MANY} more" if len(raw.news) > _MANY else ""
    return [f"unknown columns were ignored: {', '.join(raw.news[:_MANY])}{more}"]


def _absent(raw: Raw) -> list[str]:
    ops = (raw.kernels, raw.memcpys, raw.memsets, raw.graphs)
    notes = []
    if all(frame.is_empty() for frame in ops):
        notes.append("no GPU work in this report; was it captured with --trace cuda?")
    elif raw.calls.is_empty():
        notes.append("no CUDA API calls in this report; was it captured with --trace cuda?")
    if raw.kernels.is_empty() and raw.graphs.is_empty() and _launches(raw):
        notes.append(
            "kernels were launched but none was recorded: this nsys may be too old for the"
            " CUDA driver; record again with a newer nsys (nsys 2023.4 sees none on CUDA 13)"
        )
    if not _ranges(raw):
        notes.append("no NVTX ranges in this report; was it captured with --trace nvtx?")
    return notes


def _hidden(raw: Raw) -> list[str]:
    """What was recorded in a way that hides it."""
    notes = []
    if not raw.graphs.is_empty():
        notes.append(
            f"CUDA graphs were traced whole: the kernels of {raw.graphs.height} launches are"
            " hidden; capture again with nsysflow profile --graph-trace node"
            " (nsys profile --cuda-graph-trace=node)"
        )
    if not raw.backtraces.is_empty() and raw.backtraces["jsonText"].null_count() == len(
        raw.backtraces
    ):
        notes.append(
            "Python backtraces were recorded, but the export left them out; export again with"
            " nsys export --type sqlite --include-json=true --force-overwrite=true REPORT.nsys-rep"
        )
    if not raw.gpu_metric_names.is_empty() and wanted_metrics(raw.gpu_metric_names).is_empty():
        notes.append(
            "GPU counters were sampled, but none of SM, tensor or memory activity: choose another"
            " set of metrics (nsys profile --gpu-metrics-set=help lists them)"
        )
    return notes


def _ranges(raw: Raw) -> bool:
    types = nvtx_event_types(raw.event_types)
    ranges = [types["NvtxPushPopRange"], types["NvtxStartEndRange"]]
    return bool(raw.nvtx["eventType"].is_in(ranges).any())


def _launches(raw: Raw) -> bool:
    launch = pl.col("value").str.contains(r"^(cuda|cu)(Launch|GraphLaunch)")
    ids = raw.strings.filter(launch)["id"].cast(pl.UInt32)
    return bool(raw.calls["nameId"].is_in(ids.implode()).any())


def _doubtful_rows(raw: Raw) -> list[str]:
    ops = (raw.kernels, raw.memcpys, raw.memsets, raw.graphs)
    total = sum(frame.height for frame in ops)
    unlinked = sum(_count(frame, pl.col("correlationId").fill_null(0) == 0) for frame in ops)
    notes = []
    if unlinked:
        notes.append(
            f"{unlinked} of {total} GPU operations have no correlation id: what launched them"
            " is unknown"
        )
    if raw.unusable:
        notes.append(f"{raw.unusable} rows without a time, a device or a name were left out")
    return notes


def _count(frame: pl.DataFrame, what: pl.Expr) -> int:
    return int(frame.select(what.sum()).item() or 0)
