"""report.html: the timeline, what is found, and all tables."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import number
from nsysflow.report.document import judged_part_json, shown_json
from nsysflow.report.flamegraph import LEGEND, Box, Kind, boxes, own_files
from nsysflow.report.html.columns import Blobs, deflated
from nsysflow.report.html.document import PageKind, around, blob_data, json_data
from nsysflow.report.html.tables import (
    MOST_ROWS,
    FindingShown,
    TableShown,
    findings_shown,
    heat_shown,
    tables_shown,
)
from nsysflow.report.html.timeline import timeline
from nsysflow.report.ledger import loop_rows, slowest_ledger
from nsysflow.report.page import Page, opening
from nsysflow.report.results import Results
from nsysflow.report.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A line of the verdict.

    Attributes:
        text: what holds the GPUs back, or why that cannot be said.
        advice: what to do next; may be empty.
        valid: whether it is a verdict.
    """

    text: str
    advice: str
    valid: bool


@dataclass(frozen=True, kw_only=True)
class Flame:
    """A box of the idle flame graph.

    Attributes:
        name: of the phase, cause or function.
        file: of the function; may be empty.
        line: the line with most of its idle time.
        kind: `report`, `phase`, `cause`, `own`, `library` or `unknown`.
        ns: its idle time, with that of its children.
        children: the boxes below it, the widest first.
    """

    name: str
    file: str
    line: int | None
    kind: str
    ns: int
    children: "tuple[Flame, ...]"


@dataclass(frozen=True, kw_only=True)
class JudgedPart:
    """What the page says of the steps of one loop.

    Attributes:
        steps: how many steps there are and how long they take; empty without.
        headlines: what the ranks tell, if anything, and the verdict.
        remarks: what to keep in mind about it.
        caption: what savings are of.
        findings: what to change, in the order in which to act.
        sentences: what else is worth a line.
        flame: the idle flame graph of the judged steps; None where no stacks were sampled.
        flame_steps: how many steps its times are of.
    """

    steps: str
    headlines: tuple[Headline, ...]
    remarks: tuple[str, ...]
    caption: str
    findings: tuple[FindingShown, ...]
    sentences: tuple[str, ...]
    flame: Flame | None
    flame_steps: int


@dataclass(frozen=True, kw_only=True)
class LoopShown:
    """Another loop that the reader can choose.

    Attributes:
        label: its range, and how many steps it has.
        blob: where its `JudgedPart` is, and its part of report.json.
    """

    label: str
    blob: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the page shows beside the timeline, in its order.

    Attributes:
        version: of nsysflow.
        reports: the reports' names.
        facts: what they ran on, with which versions, and when.
        selection: the options that narrow the window; empty without any.
        loop: what the steps are called, where there are other loops to choose.
        loops: these, the longest first.
        judged: what is said of the steps.
        tables: the tables with rows, in the declared order.
        without_rows: the names of the others, and what fills them.
        flame_legend: what the kinds of the boxes of a flame graph are.
        causes: each cause's label and meaning.
        notes: what the reader should know about the reports.
        again: the run as it is typed after a command, to see more of it.
    """

    version: str
    reports: str
    facts: tuple[str, ...]
    selection: str
    loop: str
    loops: tuple[LoopShown, ...]
    judged: JudgedPart
    tables: tuple[TableShown, ...]
    without_rows: dict[str, str]
    flame_legend: Mapping[Kind, str]
    causes: dict[str, tuple[str, str]]
    notes: tuple[str, ...]
    again: str


MOST_LOOPS: Final = 3
"""So many other loops can be chosen, the longest ones: each is judged in full, which takes time and
bytes. The others have their line and command."""


def contents(results: Results, loops: Sequence[LoopShown] = ()) -> Contents:
    """What the page shows of a run.

    Args:
        results: the run.
        loops: the other loops that can be chosen.
    """
    page = opening(results, "full")
    tables = tables_shown(results)
    name = results.step_name or "steps"
    return Contents(
        version=nsysflow.__version__,
        reports=page.reports,
        facts=tuple(filter(None, [page.gpus, *page.recorded])),
        selection=page.selection,
        loop=_loop_label(name, slowest_ledger(results).steps) if loops else "",
        loops=tuple(loops),
        judged=_judged_part(results, page),
        tables=tuple(table for table in tables if table.total),
        without_rows={table.name: table.filled_by for table in tables if not table.total},
        flame_legend=LEGEND,
        causes={cause.name: (cause.label, cause.meaning) for cause in CAUSES.values()},
        notes=page.notes,
        again=results.again,
    )


def _judged_part(results: Results, page: Page) -> JudgedPart:
    stacks = results.judged.table("idle_stacks")
    return JudgedPart(
        steps=page.steps,
        headlines=_headlines(page),
        remarks=(*page.told.more, *page.remarks),
        caption=page.suggestions.caption,
        findings=findings_shown(results, page.suggestions),
        sentences=tuple(filter(None, [page.ledger, *page.loops, *page.sentences])),
        flame=None if stacks.is_empty() else _flame(boxes(stacks, own_files(results))),
        flame_steps=results.judged.step_count,
    )


def loops_to_choose(results: Results) -> list[tuple[str, LoopShown]]:
    """The longest other loops that all reports of the run have: the range of each, and how it is
    shown. Of many ranks none, as only some of them are here."""
    if results.many:
        return []
    rows = [row for row in loop_rows(results) if row["phase"] in results.loops_of_all]
    return [
        (
            row["phase"],
            LoopShown(label=_loop_label(row["phase"], row["count"]), blob=f"loop{at}"),
        )
        for at, row in enumerate(rows[:MOST_LOOPS])
    ]


def _loop_label(name: str, count: int) -> str:
    return f"{name}, {number(count)} step{'' if count == 1 else 's'}"


def _loop_data(loop: Results) -> bytes:
    """What the page shows of the steps of a loop: words, and their figures."""
    part = msgspec.json.encode(_judged_part(loop, opening(loop, "full")))
    return b'{"judged":%b,"report":%b}' % (part, judged_part_json(loop, MOST_ROWS).encode())


def _headlines(page: Page) -> tuple[Headline, ...]:
    told = [Headline(text=page.told.first, advice="", valid=True)] if page.told.first else []
    verdict = (
        Headline(text=each.sentence, advice=each.advice, valid=isinstance(each, Verdict))
        for each in page.headlines
    )
    return (*told, *verdict)


def _flame(box: Box) -> Flame:
    place = box.place
    return Flame(
        name=place.name,
        file=place.file,
        line=box.line,
        kind=place.kind,
        ns=box.ns,
        children=tuple(_flame(child) for child in box.widest_first),
    )


COMMON: Final = (
    "units.js",
    *(
        f"page/{name}.js"
        for name in ("dom", "plain_table", "colours", "figures", "theme", "tips", "verdict", "ways")
    ),
    *(
        f"page/tables/{name}.js"
        for name in ("source", "filter", "order", "csv", "grid", "panel", "tabs")
    ),
    "page/print.js",
)
"""What pages of reports and of comparisons share."""

_TIMELINE: Final = {
    "rows": (
        *("decode", "reports", "lanes", "gaps", "pyramid", "groups", "arranged", "contents"),
        *("marks", "links", "load"),
    ),
    "picture": (
        *("theme", "raster", "bars", "axis", "labels", "layout", "titles", "surface"),
        *("overview", "arrows", "paint"),
    ),
    "use": (
        *("area", "area_tables", "opening", "moving", "facts", "details", "hover", "search"),
        *("legend", "arrange", "keys", "pointer"),
    ),
}
"""The scripts of the timeline: what is drawn, how, and what a reader does with it."""

PAGE: Final = PageKind(
    body="page.html",
    scripts=(
        "state.js",
        *COMMON,
        *(
            f"page/{name}.js"
            for name in (
                *("places", "explained", "findings", "ranks", "gpu_time", "phases", "steps"),
                *("flame", "loops", "start"),
            )
        ),
        *(f"timeline/{part}/{name}.js" for part, names in _TIMELINE.items() for name in names),
        "timeline/start.js",
    ),
)


def write_html(results: Results, file: Path) -> None:
    """Write the run as a page for a browser.

    Args:
        results: the run.
        file: what to write.
    """
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        blobs = Blobs(pool)
        drawn = timeline(results, blobs)
        loops = loops_to_choose(results)
        page = contents(results, [shown for _, shown in loops])
        heat = heat_shown(results, blobs)
        head, tail = around(PAGE, f"nsysflow: {page.reports}")
        with file.open("wb") as out:
            out.write(head)
            about = {"timeline": drawn, "page": page, "heat": heat}
            out.write(json_data("about", msgspec.json.encode(about)))
            out.write(blob_data("report", deflated(shown_json(results, MOST_ROWS).encode())))
            for step, shown in loops:
                out.write(blob_data(shown.blob, deflated(_loop_data(results.of_loop(step)))))
            for name, text in blobs:
                out.write(blob_data(name, text))
            out.write(tail)
