"""The gap report as files: CSV to compare, Markdown to read."""

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.units import duration, percent
from nsysflow.report.gap_report.rows import GapReport, Row, share_of
from nsysflow.report.gap_report.scale import LISTED_PER_MILLE
from nsysflow.report.gap_report.series import LAUNCHING, WAITING
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.markdown import escaped, table_lines

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
        writer.writerow((*what, row.pct))
    return text.getvalue()


def as_markdown(report: GapReport) -> str:
    """The Markdown: the same rows with their times and intervals, and how to read them."""
    if not report.tracks:
        return "# No GPU work was recorded\n"
    return "\n".join([*_head(report), *table_lines(_table(report)), "", *_foot(report)]) + "\n"


def _head(report: GapReport) -> Iterator[str]:
    gpus = escaped(", ".join(report.gpus))
    of = "of a step of" if report.has_steps else "of a window of"
    share = percent(100 * share_of(report.idle_ns, report.step_ns))
    yield from (f"# {gpus}: idle {share} {of} {duration(round(report.step_ns))}", "")
    yield from (f"{_what(report)}", "")


def _what(report: GapReport) -> str:
    """Of what the figures are."""
    if not report.has_steps:
        return "No steps are known: these are the idle times of the whole window."
    of = f"Per step, the median of {report.steps} typical steps."
    if report.tracks == 1:
        return of
    return f"{of} Of {report.tracks} ranks, each row has the one where it is the largest share."


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


def _where(row: Row) -> str:
    if row.place is None:
        return REST
    return f"{row.place.phase}, {row.place.function}" if row.place.function else row.place.phase


def _why(row: Row) -> str:
    """The cause, and what it consists of, the largest part first."""
    if row.place is None:
        return ""
    whole = sum(row.parts.values())
    parts = sorted(row.parts.items(), key=lambda part: (-part[1], part[0]))
    shown = [
        f"{call or CAUSES[cause].label} {percent(100 * ns / whole)}"
        for (cause, call), ns in parts
        if 100 * ns >= whole
    ]
    return f"{row.place.cause}: {', '.join(shown)}"


def _interval(row: Row) -> str:
    if row.low_ns is None or row.high_ns is None:
        return ""
    return f"{duration(round(row.low_ns))} to {duration(round(row.high_ns))}"


def _foot(report: GapReport) -> Iterator[str]:
    of = "a step" if report.has_steps else "the window"
    yield (
        "A row is the idle time of the GPU while the host was at one place. During"
        f" `{LAUNCHING}`, the GPU waits for host code and launch calls, or starts the work. During"
        f" `{WAITING}`, the host waits in a sync or a copy. An interval is empty if there are too"
        f" few steps to tell. The last row sums what is below {_LISTED} of {of}, or may be."
    )
    yield ""
    yield (
        f"To compare: commit `{CSV_FILE}` and read its diff. Its shares are rounded to 1, 2, 5, 10,"
        " 20, 50 or 100 %, so that two captures of one program differ in few lines."
        " `nsysflow diff BASE NEW` says how much faster a step became, and why."
    )
