"""Read a capture from report.json. A file of another version, or an edited one, is an error."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from nsysflow.base.errors import Damaged, NotAReport, Remedy, ReportError, record_again
from nsysflow.compare.captures import Capture, Key, LoadedCaptures, PartName, Row, Track

SCHEMA_VERSION: Final = 5
"""Additions to report.json keep it, a change of meaning raises it."""

READ_VERSIONS: Final = (4, SCHEMA_VERSION)
"""What is compared has one form in these: 5 put `run` in the place of `step_groups`, made findings
a plan, and leaves the last step out of the typical ones where its end is not known."""

FILE: Final = "report.json"


_ANOTHER: Final = "Name a report, the folder of a run, or the report.json that analyze writes"

_Figure: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Tool(msgspec.Struct):
    name: str


class _Head(msgspec.Struct):
    tool: _Tool
    schema: int


class _Name(msgspec.Struct):
    name: str
    short_name: str


class _Row(msgspec.Struct):
    part: PartName
    kind: str
    name: int
    ns: list[_Figure]
    count: _Figure | list[_Figure]
    phase: str = ""
    grid: str | None = None
    source: str | None = None
    via: str | None = None
    at: list[int] | None = None
    duration_ns: list[_Figure] | None = None


class _Track(msgspec.Struct):
    report: str
    process: int | None
    device: int
    gpu: str | None
    step_name: str | None
    unprofiled_step_ns: int | None
    steps: list[int | None]
    kinds: list[Literal["steady", "one-off", "start-up"] | None]
    duration_ns: list[_Figure]
    rows: list[_Row]
    sm_clock_mhz: float | None = None


class _Series(msgspec.Struct):
    unit: str | None
    names: list[_Name]
    tracks: list[_Track]


class _Verdict(msgspec.Struct):
    valid: bool
    text: str


class _Time(msgspec.Struct):
    step_ns: _Figure


class _About(msgspec.Struct):
    selection: str


class _Document(msgspec.Struct):
    report: _About
    series: _Series
    verdict: _Verdict
    time: _Time | None = None
    findings: list[LoadedCaptures] | None = None


def read_document(file: Path, name: str) -> Capture:
    """The capture that a report.json describes.

    Raises:
        ReportError: it cannot be read, or has nothing to compare.
        NotAReport: it is not a report.json.
        Damaged: it is cut off, was edited, or another version of nsysflow wrote it.
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ReportError(f"{file} cannot be read: {error.strerror}", _ANOTHER) from error
    return capture_of(text, name, str(file))


def capture_of(text: bytes, name: str, file: str) -> Capture:
    """The capture that a document describes.

    Args:
        text: the document.
        name: what to call the capture.
        file: where the document is from, for errors.

    Raises:
        ReportError, NotAReport, Damaged: as of `read_document`.
    """
    _check_head(text, file)
    try:
        document = msgspec.json.decode(text, type=_Document)
        capture = _capture(document, name)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"{file} cannot be understood: {error}", *_again(file)) from error
    if not capture.tracks:
        seen = f"{file} has nothing to compare: no GPU work, or no whole step after start-up"
        raise ReportError(seen, *record_again())
    return capture


def _again(file: str) -> Remedy:
    """What to do about a document, and what to type."""
    folder = Path(file).parent
    return (
        "Analyse the report again; it writes a new one",
        f"nsysflow analyze REPORT -o {quote(str(folder))}",
    )


def _check_head(text: bytes, file: str) -> None:
    """Check that this version of nsysflow wrote the document."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except msgspec.ValidationError as error:
        seen = f"{file} is not a report.json of nsysflow ({error})"
        raise NotAReport(seen, _ANOTHER) from error
    except (msgspec.DecodeError, RecursionError) as error:
        seen = f"{file} is no complete JSON document: {error}"
        raise Damaged(seen, *_again(file)) from error
    if head.tool.name != "nsysflow":
        seen = f"{file} was written by {head.tool.name!r:.40}, not by nsysflow"
        raise NotAReport(seen, _ANOTHER)
    if head.schema not in READ_VERSIONS:
        age = "an older" if head.schema < SCHEMA_VERSION else "a newer"
        seen = (
            f"{age} nsysflow wrote {file}: its schema is {head.schema}, this one reads"
            f" {' and '.join(map(str, READ_VERSIONS))}"
        )
        raise Damaged(seen, *_again(file))


def _capture(document: _Document, name: str) -> Capture:
    series, verdict = document.series, document.verdict
    return Capture(
        name=name,
        tracks=[_track(track, series.names) for track in series.tracks],
        selection=document.report.selection,
        unit=series.unit,
        invalid=None if verdict.valid else verdict.text,
        findings=document.findings,
        said_step_ns=None if document.time is None else document.time.step_ns,
    )


def _track(track: _Track, names: list[_Name]) -> Track:
    count = len(track.steps)
    where = f"series of {track.report} GPU {track.device}"
    if not count or len(track.kinds) != count or len(track.duration_ns) != count:
        msg = f"{where}: steps, kinds and duration_ns differ in length"
        raise ValueError(msg)
    rows = [_row(row, names, count, where) for row in track.rows]
    if len({*map(Key.of, rows)}) < len(rows):
        msg = f"{where}: a row is there twice"
        raise ValueError(msg)
    for at, (step, expected_ns) in enumerate(zip(track.steps, track.duration_ns, strict=True)):
        sum_ns = sum(row.ns[at] for row in rows)
        if sum_ns != expected_ns:
            msg = (
                f"{where}: the rows of step {step} sum to {sum_ns} ns, not to its duration of"
                f" {expected_ns} ns; somebody edited it"
            )
            raise ValueError(msg)
    about = {name: getattr(track, name) for name in track.__struct_fields__ if name != "rows"}
    return Track(**about, rows=rows)


def _row(row: _Row, names: list[_Name], steps: int, where: str) -> Row:
    at = range(steps) if row.at is None else row.at
    count = [row.count] * len(row.ns) if isinstance(row.count, int) else row.count
    duration_ns = row.ns if row.duration_ns is None else row.duration_ns
    known = 0 <= row.name < len(names)
    placed = list(at) == sorted({*at}) and all(0 <= step < steps for step in (*at[:1], *at[-1:]))
    if not (known and placed and len(at) == len(row.ns) == len(count) == len(duration_ns)):
        msg = f"{where}: a row of {row.part}, {row.kind} names steps or kernels that are not there"
        raise ValueError(msg)
    named = names[row.name]
    return Row(
        part=row.part,
        kind=row.kind,
        name=named.name,
        short_name=named.short_name,
        grid=row.grid,
        phase=row.phase,
        source=row.source,
        via=row.via,
        ns=_dense(at, row.ns, steps),
        duration_ns=_dense(at, duration_ns, steps),
        count=_dense(at, count, steps),
    )


def _dense(at: range | list[int], values: list[int], steps: int) -> list[int]:
    if len(at) == steps:
        return values
    dense = [0] * steps
    for place, value in zip(at, values, strict=True):
        dense[place] = value
    return dense
