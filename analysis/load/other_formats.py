"""Files of other tools, which no loader reads: what they are, and what to type instead."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from nsysflow.analysis.load.unpacking import ROCPROF
from nsysflow.base.errors import NotAReport

_TORCH: Final = "profiler.export_chrome_trace('run.pt.trace.json')"
_AGAIN: Final = "Record a timeline of the program"
_HEAD_BYTES: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that nsysflow does not read.

    Attributes:
        is_a: what it is, as it follows "FILE is".
        advice: what to do, a sentence without its full stop.
        command: what to type; `{}` is the file.
        name: the end of such a file's name, as a pattern; None where only the content tells.
        begins: what is in its first 64 kB, as a pattern; None where only the name tells.
        keys: keys of its JSON object; it has all of them.
    """

    is_a: str
    advice: str
    command: str
    name: str | None = None
    begins: bytes | None = None
    keys: tuple[str, ...] = ()


FORMATS: Final = (
    Format(
        is_a="a pointer of Git LFS, and not the file itself",
        advice="Fetch the files of that repository",
        command="git lfs pull",
        begins=rb"\Aversion https://git-lfs\.github\.com/spec/",
    ),
    Format(
        is_a="a report of Nsight Compute: counters of single kernels, and no timeline",
        advice="Look at it with ncu, and record a timeline of the program for nsysflow",
        command="ncu --import {}\nnsysflow profile -- COMMAND",
        name=r"\.ncu-repz?",
    ),
    Format(
        is_a="an unfinished recording of Nsight Systems, not yet a report",
        advice="Import it, with the nsys that recorded it, and analyse the report",
        command="QdstrmImporter --input-file {}",
        name=r"\.qdstrm",
    ),
    Format(
        is_a="a profile of XLA (xplane), which JAX and TensorFlow write",
        advice="Record the program by Nsight Systems instead",
        command="nsysflow profile -- COMMAND",
        name=r"\.xplane\.pb",
    ),
    Format(
        is_a="a Python pickle",
        advice=_AGAIN,
        command="nsysflow profile -- COMMAND",
        begins=rb"\A\x80[\x02-\x05]",
    ),
    Format(
        is_a="a CSV table of rocprof: rows of kernels, without what launched them",
        advice="Record a database by rocprofv3 instead",
        command=ROCPROF,
        begins=rb'\A"?(?:Kind"?,"?Agent_Id|Domain"?,"?Function|Index"?,"?KernelName|'
        rb'Name"?,"?Calls"?,"?TotalDurationNs|Guid"?,"?Kind)',
    ),
    Format(
        is_a="a CSV table of nsys stats, sums without a timeline",
        advice="Analyse the report that it was made from",
        command="nsysflow analyze REPORT.nsys-rep",
        begins=rb"\A(?:Time \(%\)|Start \(ns\)),",
    ),
    Format(
        is_a="a JSON export of Nsight Systems",
        advice="Export the report that it was made from as SQLite instead",
        command="nsys export --type sqlite REPORT.nsys-rep",
        begins=rb'\A[\s\[]*\{[^\0]*"(?:TraceProcessEvent|CudaEvent|NvtxEvent|StringIds|NVTX_EVENTS'
        rb'|META_DATA_\w+|TARGET_INFO_\w+|CUPTI_ACTIVITY_KIND_\w+)"',
    ),
    Format(
        is_a="the JSON output of rocprofv3",
        advice="Record a database instead",
        command=ROCPROF,
        keys=("rocprofiler-sdk-tool",),
    ),
    Format(
        is_a="an execution trace of PyTorch (Chakra): operators without times",
        advice="Write a trace of torch.profiler from the program",
        command=_TORCH,
        keys=("schema", "nodes"),
    ),
    Format(
        is_a="a report.json of nsysflow",
        advice="Compare it with another one, or analyse the report that it was made from",
        command="nsysflow diff {} OTHER/report.json",
        keys=("schema", "tool", "verdict"),
    ),
)
"""In the order in which they are tried."""

_PACKED: Final = r"(?:\.xz|\.gz|\.zst)?$"


def not_a_report(path: Path, shown: str) -> NotAReport:
    """The error for a file that begins like no report.

    Args:
        path: the file, unpacked.
        shown: its name in messages.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for kind in FORMATS:
        by_name = kind.name is not None and re.search(kind.name + _PACKED, shown)
        if by_name or (kind.begins is not None and re.search(kind.begins, head)):
            return _error(kind, shown)
    return NotAReport(
        f"{shown} is not an SQLite file, nor another report that nsysflow reads (.nsys-rep,"
        " parquetdir, arrowdir, torch.profiler trace, rocpd database, Perfetto trace, or memory"
        " snapshot of PyTorch)",
        "Export a report",
        "nsys export --type sqlite REPORT.nsys-rep",
    )


def not_a_trace(content: bytes, shown: str, why: str, *, written_by: str = "") -> NotAReport:
    """The error for JSON that is no trace of torch.profiler.

    Args:
        content: of the file.
        shown: its name in messages.
        why: what about it is not as in such a trace.
        written_by: the categories of its events, if it is a trace of something else.
    """
    if known := another_json(content, shown):
        return known
    keys, what = _keys(content), "JSON"
    if "traceEvents" in keys and written_by:
        what = f"a Chrome trace with events of {written_by}"
    elif keys and "traceEvents" not in keys:
        what = f"JSON with {_listed(sorted(keys))}"
    return NotAReport(
        f"{shown} is {what}, but not a trace of torch.profiler: {why}",
        "Write one from the program",
        _TORCH,
    )


def not_a_perfetto_trace(categories: Iterable[str], shown: str) -> NotAReport:
    """The error for a trace of Perfetto that another program wrote.

    Args:
        categories: some of those of its events.
        shown: its name in messages.
    """
    found = ", ".join(category[:40] for category in categories)
    return NotAReport(
        f"{shown} is a trace of Perfetto, but not of torch.profiler, rocprofv3 or nsysflow: it has"
        f" {f'events of {found}' if found else 'none of their events'}",
        "Record in a format that nsysflow reads: a rocpd database of rocprofv3, or a trace of"
        " torch.profiler",
        f"{ROCPROF}\n{_TORCH}",
    )


def another_json(content: bytes, shown: str) -> NotAReport | None:
    """The error for JSON of a known kind, also for several documents in one file; None for any
    other content."""
    keys, head = _keys(content), content[:_HEAD_BYTES]
    for kind in FORMATS:
        by_content = kind.begins is not None and re.search(kind.begins, head)
        if by_content or (kind.keys and keys.issuperset(kind.keys)):
            return _error(kind, shown)
    return None


def not_an_export(tables: Iterable[str], shown: str) -> NotAReport:
    """The error for an SQLite database of something else."""
    names = sorted(tables)
    if {"rocpd_api", "rocpd_op"} & {*names}:
        return NotAReport(
            f"{shown} is a database of rocmProfileData (rpd), whose tables are older than rocpd's",
            "Record a database by rocprofv3 instead",
            ROCPROF,
        )
    found = f"it has {_listed(names)}" if names else "it has no tables"
    return NotAReport(
        f"{shown} is an SQLite database, but not an Nsight Systems export: {found}, and none of its"
        " tables",
        "Export a report",
        "nsys export --type sqlite REPORT.nsys-rep",
    )


def _error(kind: Format, shown: str) -> NotAReport:
    command = kind.command.replace("{}", quote(shown))
    return NotAReport(f"{shown} is {kind.is_a}; nsysflow does not read it", kind.advice, command)


def _keys(content: bytes) -> frozenset[str]:
    """The keys of a JSON object; none of anything else."""
    try:
        return frozenset(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return frozenset()


_MOST: Final = 4


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    rest = f" and {more} more" if more > 0 else ""
    return f"{', '.join(name[:40] for name in names[:_MOST])}{rest}"
