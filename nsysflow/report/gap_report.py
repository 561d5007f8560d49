"""The idle time of a step by place and cause, so rounded that only a change shows (spec §21)."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, DECLARED
from nsysflow.analysis.findings.finding import in_function
from nsysflow.base.names import OUTSIDE, csv_text
from nsysflow.base.units import duration, percent
from nsysflow.compare.change import median_step
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.report.text import escaped, table_lines

LAUNCHING: Final = "launching"
"""All that it takes until the next operation runs, unless a call blocks the host. A faster CPU
turns one of its causes into another; their sum is steady where they are not."""

WAITING: Final = "waiting"
"""Waiting in a sync or a copy. To read a value back is a copy and a sync, of which now the one
blocks, now the other."""

_GROUPS: Final = {
    **dict.fromkeys(("host", "launch", "api", "queue_delay"), LAUNCHING),
    **dict.fromkeys(("sync", "blocking_copy"), WAITING),
}
"""The causes that rows take together; others stand alone."""

_NAMED: Final = frozenset(cause.name for cause in DECLARED if cause.kind in ("stall", "call"))
"""The causes of single calls: their line is recorded, not sampled."""

_TRACK: Final = ("report", "process", "device")


@dataclass(frozen=True, order=True)
class Place:
    """What a row is about.

    Attributes:
        phase: where the host was.
        cause: a cause, `LAUNCHING` or `WAITING`.
        function: the function of the blamed call, as `step (train.py)`; empty where none is known.
    """

    phase: str
    cause: str
    function: str = ""


Part = tuple[str, str]
"""What a row consists of: a cause, and the call that is blamed; empty where none is."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """One process on one GPU.

    Attributes:
        gpu: the GPU's name.
        has_steps: whether these are steps, and not one whole window.
        step_ns: how long each step takes.
        idle_ns: for each place the idle time in each step, by its parts.
    """

    gpu: str
    has_steps: bool
    step_ns: Sequence[int]
    idle_ns: Mapping[Place, Mapping[Part, Sequence[int]]]


def tracks_of(results: Results) -> list[Track]:
    """The processes and GPUs of a run, with their steady steps."""
    gpus = dict(_gpu_names(results))
    parts = pl.concat(
        _in_typical_steps(each.step_parts, each.steps) for each in results.analyses
    ).with_columns(pl.col("step").rank("dense").over(_TRACK).fill_null(1) - 1)
    by_track = parts.group_by(_TRACK, maintain_order=True)
    return [_track(gpus[key[0], key[2]], rows) for key, rows in by_track]


def _gpu_names(results: Results) -> Iterator[tuple[tuple[str, int], str]]:
    for report, device, name in results.table("accounting")["report", "device", "name"].rows():
        yield (report, device), name or "unknown GPU"


def _in_typical_steps(parts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows of steady steps; of a process and GPU without any, of all its steps."""
    key = [*_TRACK, "step"]
    marked = parts.join(steps[[*key, "steady"]], on=key, how="left", maintain_order="left")
    steady = pl.col("steady").fill_null(value=False)
    some = steady.any().over(_TRACK)
    return marked.with_columns(pl.col("process").is_not_null().alias("has_steps")).filter(
        steady | ~some
    )


def _track(gpu: str, rows: pl.DataFrame) -> Track:
    step_ns = rows.group_by("step").agg(pl.col("ns").sum()).sort("step")["ns"].to_list()
    idle = rows.filter(pl.col("part") == "idle")
    key = ("phase", "kind", "name", "source", "via")
    sums = idle.group_by(*key, "step").agg(pl.col("ns").sum())
    idle_ns: dict[Place, dict[Part, list[int]]] = defaultdict(dict)
    for row in sums.iter_rows(named=True):
        part = (row["kind"], row["name"] if row["kind"] in _NAMED else "")
        series = idle_ns[_place(row)].setdefault(part, [0] * len(step_ns))
        series[row["step"]] += row["ns"]
    return Track(gpu=gpu, has_steps=rows["has_steps"][0], step_ns=step_ns, idle_ns=idle_ns)


def _place(row: Mapping[str, Any]) -> Place:
    cause = row["kind"]
    called = cause in _NAMED
    function = in_function(row["source"] or row["via"] or "") if called else ""
    return Place(row["phase"] or OUTSIDE, _GROUPS.get(cause, cause), function)


SCALE: Final = (1, 2, 5, 10, 20, 50, 100)
"""Shares of a step in percent. Neighbours are a factor of 2 to 2.5 apart: four times what host time
differs between captures of one program (docs/facts.md)."""

COARSE_SCALE: Final = (1, 10, 100)
"""The same for the sum of what is too small for a row of its own."""

LISTED_PER_MILLE: Final = 5
"""A row takes at least so much of a step."""

SURE_PER_MILLE: Final = 10
"""A row that takes less than this is listed only if its interval, too, is above the other limit:
else it would come and go from capture to capture."""


def rounded_pct(ns: float, step_ns: float, scale: tuple[int, ...] = SCALE) -> int:
    """The nearest figure of the scale, by ratio. A share in the middle of two takes the larger.

    Args:
        ns: the time.
        step_ns: the step that it is a part of.
        scale: the figures, in percent.
    """
    # whole and half ns: exact in these integers, which floats would not be
    share, whole = round(2 * ns) * 100, round(2 * step_ns)
    above = sum(share * share >= low * high * whole * whole for low, high in pairwise(scale))
    return scale[above]


def is_listed(ns: float, low_ns: float | None, step_ns: float) -> bool:
    """Whether a time has a row of its own.

    Args:
        ns: the time.
        low_ns: the lower end of its interval; None where it is not known.
        step_ns: the step that it is a part of.
    """
    at_least = ns if low_ns is None or 1000 * ns >= SURE_PER_MILLE * step_ns else low_ns
    return at_least > 0 and 1000 * at_least >= LISTED_PER_MILLE * step_ns


_Series = Mapping[Part, Sequence[int]]
"""By part, the idle time in each step."""


@dataclass(frozen=True, kw_only=True)
class GapReportRow:
    """Idle time of one cause at one place, on the GPU where it is the largest share of a step.

    Attributes:
        place: where and why; None of all that is too small for a row of its own.
        ns: how much of a step, the median.
        low_ns: the lower end of its interval; None where there are too few steps to say.
        high_ns: the upper end.
        step_ns: the step that it is a part of, the median.
        pct: its share of the step, rounded.
        parts: what it consists of, in ns over all steps.
    """

    place: Place | None
    ns: float
    low_ns: float | None
    high_ns: float | None
    step_ns: float
    pct: int
    parts: Mapping[Part, int]

    @property
    def share(self) -> float:
        """Its share of the step, 0 to 1."""
        return share_of(self.ns, self.step_ns)


@dataclass(frozen=True, kw_only=True)
class GapReport:
    """The idle time of a step.

    Attributes:
        gpus: the names of the GPUs, each once.
        tracks: how many processes and GPUs there are.
        has_steps: whether figures are per step, and not of whole windows.
        steps: how many typical steps the slowest process has.
        step_ns: what a typical step of it takes, as the page says it: the mean.
        idle_ns: how much of it the GPU is idle, the mean.
        rows: by place; the sum of what is small comes last.
    """

    gpus: tuple[str, ...]
    tracks: int
    has_steps: bool
    steps: int
    step_ns: float
    idle_ns: float
    rows: tuple[GapReportRow, ...]


def gap_report(tracks: Sequence[Track]) -> GapReport:
    """The gap report of a run."""
    places = sorted({place for track in tracks for place in track.idle_ns})
    rows = [
        _largest(place, [(track, track.idle_ns.get(place, {})) for track in tracks])
        for place in places
    ]
    listed = [row for row in rows if is_listed(row.ns, row.low_ns, row.step_ns)]
    small = {*places} - {row.place for row in listed}
    sum_of_others = (
        [_largest(None, [(track, _summed(track, small)) for track in tracks])] if tracks else []
    )
    slowest = max(tracks, key=lambda track: fmean(track.step_ns), default=None)
    return GapReport(
        gpus=tuple(dict.fromkeys(track.gpu for track in tracks)),
        tracks=len(tracks),
        has_steps=any(track.has_steps for track in tracks),
        steps=len(slowest.step_ns) if slowest else 0,
        step_ns=fmean(slowest.step_ns) if slowest else 0,
        idle_ns=fmean(_sums(slowest, _summed(slowest, places))) if slowest else 0,
        rows=(*listed, *sum_of_others),
    )


def share_of(ns: float, step_ns: float) -> float:
    """The share of a step, 0 to 1; 0 of a step without length."""
    return ns / step_ns if step_ns else 0.0


def _summed(track: Track, places: Iterable[Place]) -> _Series:
    """The idle time at several places, as one row whose parts do not matter."""
    rows = [series for place in places for series in track.idle_ns.get(place, {}).values()]
    return {("", ""): [sum(step) for step in zip(*rows, strict=True)]} if rows else {}


def _largest(place: Place | None, idle_of_tracks: Iterable[tuple[Track, _Series]]) -> GapReportRow:
    """The row of the process and GPU where it is the largest share of a step: of a straggler, that
    others wait for, rather than of the middle one."""
    rows = [_row(track, place, series) for track, series in idle_of_tracks]
    return max(rows, key=lambda row: (row.share, row.low_ns or 0, row.ns))


def _row(track: Track, place: Place | None, series: _Series) -> GapReportRow:
    values = _sums(track, series)
    typical_ns, step_ns = median_step(values), median(track.step_ns)
    scale = (COARSE_SCALE,) if place is None else ()
    return GapReportRow(
        place=place,
        ns=typical_ns.value,
        low_ns=typical_ns.low,
        high_ns=typical_ns.high,
        step_ns=step_ns,
        pct=rounded_pct(typical_ns.value, step_ns, *scale),
        parts={part: sum(steps) for part, steps in series.items()},
    )


def _sums(track: Track, series: _Series) -> list[int]:
    """The idle time in each step, of all parts."""
    return [sum(step) for step in zip(*series.values(), strict=True)] or [0] * len(track.step_ns)


CSV_FILE: Final = "gap-report.csv"
MARKDOWN_FILE: Final = "gap-report.md"

COLUMNS: Final = ("place", "cause", "function", "step_pct")
"""The columns of the CSV, without what differs from capture to capture: reports, times, ranks."""

REST: Final = "(all smaller ones)"
"""The place of the sum of what is too small for a row of its own."""

_LISTED: Final = percent(LISTED_PER_MILLE / 10)


def write_gap_report(report: GapReport, folder: Path) -> None:
    """The CSV and the Markdown, into an existing folder."""
    (folder / CSV_FILE).write_text(as_csv(report), encoding="utf-8")
    (folder / MARKDOWN_FILE).write_text(as_markdown(report), encoding="utf-8")


def as_csv(report: GapReport) -> str:
    """The CSV: a row per place and cause, with its rounded share of a step."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in report.rows:
        place = row.place
        what = (place.phase, place.cause, place.function) if place else (REST, "", "")
        writer.writerow((*map(csv_text, what), row.pct))
    return text.getvalue()


def as_markdown(report: GapReport) -> str:
    """The Markdown: the same rows with their times and intervals, and how to read them."""
    if not report.tracks:
        return "# No GPU work was recorded\n"
    return "\n".join([*_head(report), *table_lines(_table(report)), "", *_footnotes(report)]) + "\n"


def _head(report: GapReport) -> Iterator[str]:
    gpus = escaped(", ".join(report.gpus))
    of = "of a typical step of" if report.has_steps else "of a window of"
    share = percent(100 * share_of(report.idle_ns, report.step_ns))
    yield from (f"# {gpus}: idle {share} {of} {duration(round(report.step_ns))}", "")
    yield from (f"{_basis(report)}", "")


def _basis(report: GapReport) -> str:
    """Of what the figures are."""
    if not report.has_steps:
        return "No steps are known: these are the idle times of the whole window."
    steps = f"Per step, the median of {report.steps} typical steps."
    if report.tracks == 1:
        return steps
    return f"{steps} Of {report.tracks} ranks, each row has the one where it is the largest share."


def _table(report: GapReport) -> Block:
    columns = (
        words("place"),
        words("cause"),
        figure("time"),
        figure("95 % interval"),
        figure("of a step" if report.has_steps else "of the window"),
        figure("in the CSV"),
    )
    rows = tuple(
        (
            _where(row),
            _why(row),
            duration(round(row.ns)),
            _interval(row) if report.has_steps else "",
            percent(100 * row.share) or "0 %",
            f"{row.pct} %",
        )
        for row in report.rows
    )
    return Block(title="", columns=columns, rows=rows)


def _where(row: GapReportRow) -> str:
    if row.place is None:
        return REST
    return f"{row.place.phase}, {row.place.function}" if row.place.function else row.place.phase


def _why(row: GapReportRow) -> str:
    """The cause, and what it consists of, the largest part first."""
    if row.place is None:
        return ""
    whole = sum(row.parts.values())
    parts = sorted(row.parts.items(), key=lambda part: (-part[1], part[0]))
    parts_in_words = [
        f"{call or CAUSES[cause].label} {percent(100 * ns / whole)}"
        for (cause, call), ns in parts
        if 100 * ns >= whole
    ]
    return f"{row.place.cause}: {', '.join(parts_in_words)}"


def _interval(row: GapReportRow) -> str:
    if row.low_ns is None or row.high_ns is None:
        return ""
    return f"{duration(round(row.low_ns))} to {duration(round(row.high_ns))}"


def _footnotes(report: GapReport) -> Iterator[str]:
    whole = "a step" if report.has_steps else "the window"
    yield (
        "A row is the idle time of the GPU while the host was at one place. During"
        f" `{LAUNCHING}`, the GPU waits for host code and launch calls, or starts the work. During"
        f" `{WAITING}`, the host waits in a sync or a copy. An interval is empty if there are too"
        f" few steps to tell. The last row sums what is below {_LISTED} of {whole}, or may be."
    )
    yield ""
    yield (
        f"To compare: commit `{CSV_FILE}` and read its diff. Its shares are rounded to 1, 2, 5, 10,"
        " 20, 50 or 100 %, so that two captures of one program differ in few lines."
        " `nsysflow diff BASE NEW` says how much faster a step became, and why."
    )
