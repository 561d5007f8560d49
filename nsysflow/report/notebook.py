"""What a notebook shows of a run: the verdict, what to change, and two small pictures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.base.names import printable
from nsysflow.base.units import duration
from nsysflow.report import palette
from nsysflow.report.analysed import Analysed
from nsysflow.report.findings import suggestions
from nsysflow.report.palette import Colour
from nsysflow.report.pictures import (
    ALL,
    Part,
    about_run,
    gpu_label,
    part_figures,
    parts_with_time,
    time_label,
)
from nsysflow.report.results import Results
from nsysflow.report.verdict import judge

WIDTH: Final = 760
LABEL: Final = 160
"""The room for the name of a row, on the left."""

_DARK: Final = (
    'body[data-jp-theme-light="false"]',  # Jupyter
    "body.vscode-dark",
    'html[theme="dark"]',  # Colab
    ".dark",  # marimo
)
"""How notebooks say that their theme is dark."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A coloured box.

    Attributes:
        x: its left edge.
        y: its upper edge.
        width: how wide it is.
        height: how high it is.
        colour: its colour in both themes.
        title: what a mouse that rests on it says; empty for nothing.
    """

    x: float
    y: float
    width: float
    height: float
    colour: Colour
    title: str = ""


def text_of(text: str) -> str:
    """A text as HTML and SVG take it."""
    return escape(printable(text))


def picture(height: float, parts: Iterable[str], title: str) -> str:
    """A picture as wide as a notebook's cell.

    Args:
        height: how high it is.
        parts: what is in it.
        title: what it shows, for those who cannot see it.
    """
    return (
        f'<svg role="img" aria-label="{text_of(title)}" width="{WIDTH}" height="{height:g}"'
        f' viewBox="0 0 {WIDTH} {height:g}">{"".join(parts)}</svg>'
    )


def box(of: Box) -> str:
    """A box. Its colour is an attribute, which stays where a viewer removes styles."""
    title = f"<title>{text_of(of.title)}</title>" if of.title else ""
    return (
        f'<rect class="{class_of(of.colour)}" x="{of.x:g}" y="{of.y:g}" width="{of.width:g}"'
        f' height="{of.height:g}" fill="{of.colour.light}">{title}</rect>'
    )


def label(text: str, x: float, y: float, *, to_the_left: bool = False) -> str:
    """A text that begins, or ends, at `x`."""
    anchor = ' text-anchor="end"' if to_the_left else ""
    return (
        f'<text x="{x:g}" y="{y:g}"{anchor} font-size="11" fill="currentColor">'
        f"{text_of(text)}</text>"
    )


def key(colour: Colour, text: str) -> str:
    """An entry of a legend, as HTML."""
    patch = box(Box(x=0, y=0, width=12, height=10, colour=colour))
    return (
        f'<span class="key"><svg width="12" height="10" viewBox="0 0 12 10">{patch}</svg>'
        f" {text_of(text)}</span>"
    )


def class_of(colour: Colour) -> str:
    """The class of what has that colour, by which a dark theme finds it."""
    return f"nsf{colour.light[1:]}"


def dark_rules() -> str:
    """CSS that gives each colour its shade of dark themes."""
    colours = {*palette.CAUSES.values(), *palette.CLASSES.values()}
    return "\n".join(
        f"{', '.join(f'{dark} .{class_of(each)}' for dark in _DARK)} {{ fill: {each.dark}; }}"
        for each in sorted(colours, key=lambda each: each.light)
    )


_ROW: Final = 22
_BAR: Final = 16

GPUS: Final = 16
"""How many have a bar."""


def bars(results: Results) -> str:
    """A bar per GPU, of a judged step's mean, and the legend; empty without GPU work."""
    judged = results.judged
    rows = [row for row in judged.table("accounting").iter_rows(named=True) if row["window_ns"]]
    rows = rows[:GPUS]
    if not rows:
        return ""
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    parts = parts_with_time(ALL, rows)
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    drawn: list[str] = []
    for at, (row, count) in enumerate(zip(rows, steps, strict=True)):
        name = gpu_label(results, row["report"], row["device"])
        drawn.append(label(name, LABEL - 6, _ROW * at + 12, to_the_left=True))
        drawn += _bar(at, parts, row, count, longest_ns)
    title = f"{time_label(results)} of each GPU, by what it does or waits for"
    return picture(_ROW * len(rows), drawn, title) + _legend(parts, rows, steps)


def _bar(
    at: int, parts: Sequence[Part], row: Mapping[str, Any], steps: int, longest_ns: float
) -> Iterator[str]:
    scale = (WIDTH - LABEL) / longest_ns
    left_ns = 0.0
    for part in parts:
        ns = row[part.column] / steps
        if ns:
            yield box(
                Box(
                    x=round(LABEL + left_ns * scale, 2),
                    y=_ROW * at,
                    width=round(ns * scale, 2),
                    height=_BAR,
                    colour=part.colour,
                    title=part_figures(part, row, steps),
                )
            )
        left_ns += ns


def _legend(parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> str:
    """The legend, with figures where parts_with_time is one GPU."""
    alone = len(rows) == 1
    texts = [part_figures(part, rows[0], steps[0]) if alone else part.label for part in parts]
    keys = (key(part.colour, text) for part, text in zip(parts, texts, strict=True))
    return f"<p>{''.join(keys)}</p>"


CELLS: Final = 300
"""How many places a lane has: one for two units of the picture's width."""


LEVELS: Final = 4
"""A place is drawn as high as it is full, in this many levels."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Neighbouring places that show the same.

    Attributes:
        first: the first of them, from 0.
        count: how many they are.
        kind: what they show.
        level: how full they are, 1 to `LEVELS`.
    """

    first: int
    count: int
    kind: str
    level: int


def runs(rows: pl.DataFrame, start_ns: int, end_ns: int) -> list[Run]:
    """What to draw of a lane between two times; at least one place of whatever is there.

    Args:
        rows: `start_ns`, `end_ns`, `kind`; they may overlap.
        start_ns: the left edge of the picture.
        end_ns: its right edge, later than the left one.
    """
    span_ns = end_ns - start_ns
    first, end = pl.col("start_ns") - start_ns, pl.col("end_ns") - start_ns
    seen = rows.filter((end > 0) & (first < span_ns)).select(
        first.clip(0).alias("first_ns"),
        end.clip(upper_bound=span_ns).alias("past_ns"),
        pl.col("kind").cast(pl.String),
    )
    begun = pl.col("first_ns") * CELLS // span_ns
    past = pl.max_horizontal(-(-pl.col("past_ns") * CELLS // span_ns), begun + 1)
    cells = seen.with_columns(pl.int_ranges(begun, past).alias("cell")).explode("cell")
    width_ns = span_ns / CELLS
    edge_ns = pl.col("cell") * width_ns
    covered = pl.min_horizontal("past_ns", edge_ns + width_ns) - pl.max_horizontal(
        "first_ns", edge_ns
    )
    full = pl.col("ns").sum().over("cell") / width_ns
    level = (full * LEVELS).ceil().clip(1, LEVELS).cast(pl.Int64).alias("level")
    most = (
        cells.group_by("cell", "kind")
        .agg(covered.sum().alias("ns"))
        .with_columns(level)
        .sort("cell", "ns", "kind", descending=[False, True, False])
        .unique("cell", keep="first", maintain_order=True)
    )
    same = (pl.struct("kind", "level") == pl.struct("kind", "level").shift()) & (
        pl.col("cell").diff() == 1
    )
    run = (~same.fill_null(value=False)).cum_sum().alias("run")
    joined = most.group_by(run, maintain_order=True).agg(
        pl.col("cell").first(), pl.len(), pl.col("kind", "level").first()
    )
    found = joined.select("cell", "len", "kind", "level").rows()
    return [Run(first=at, count=count, kind=kind, level=level) for at, count, kind, level in found]


STEPS: Final = 2
"""How many steps are shown: more would be too narrow to read."""

MOST_GPUS: Final = 4
STREAMS: Final = 3
"""How many GPUs, and streams of each, are shown."""

_LANE: Final = 16
_TIMELINE_BAR: Final = 12
_HEAD: Final = 16
"""Above the lanes of a GPU: its name and its steps."""

_CELL: Final = (WIDTH - LABEL) / CELLS


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is shown of a GPU.

    Attributes:
        report: the report's name.
        device: the GPU.
        start_ns: where it begins.
        end_ns: where it ends.
        steps: the number and start of each step in it; empty where no step is judged.
    """

    report: str
    device: int
    start_ns: int
    end_ns: int
    steps: Sequence[tuple[int, int]]


def timeline(results: Results) -> str:
    """The lanes of the first GPUs and the legend; empty without GPU work."""
    windows = windows_of(results)[:MOST_GPUS]
    if not windows:
        return ""
    by_name = {each.trace.report: each for each in results.analyses}
    longest_ns = max(each.end_ns - each.start_ns for each in windows)
    drawn: list[str] = []
    seen: set[str] = set()
    top = 0
    for window in windows:
        drawn += _head(results, window, longest_ns, top)
        top += _HEAD
        for name, rows in _lanes(by_name[window.report], window):
            drawn.append(label(name, LABEL - 6, top + 10, to_the_left=True))
            for each in runs(rows, window.start_ns, window.start_ns + longest_ns):
                drawn.append(_box(each, top))
                seen.add(each.kind)
            top += _LANE
    keys = [key(*shown) for kind, shown in _SHOWN.items() if kind in seen]
    about = "what each GPU did and waited for over time; as high as it was busy or idle"
    return picture(top, drawn, about) + f"<p>{''.join(keys)}</p>"


_SHOWN: Final = {
    **{name: (colour, name) for name, colour in palette.CLASSES.items()},
    **{name: (palette.CAUSES[name], f"idle: {cause.label}") for name, cause in CAUSES.items()},
}
"""By class of work and cause: the colour and what it is called."""


def _box(run: Run, top: int) -> str:
    """What neighbouring places of a lane show."""
    colour, title = _SHOWN[run.kind]
    height = _TIMELINE_BAR * run.level / LEVELS
    x, width = LABEL + run.first * _CELL, run.count * _CELL
    below = top + _TIMELINE_BAR - height
    return box(Box(x=x, y=below, width=width, height=height, colour=colour, title=title))


def windows_of(results: Results) -> list[Window]:
    """The first judged steps of each GPU, or its window where none are judged."""
    judged = results.judged
    of = ["report", "process", "device", "step"]
    known = judged.step_keys if judged.of_steps else judged.step_keys.clear()
    steps = results.table("steps").join(known, on=of, how="semi")
    found = []
    for row in judged.table("accounting").iter_rows(named=True):
        here = _first_steps(steps, row["report"], row["device"])
        if here:
            start_ns, end_ns = here[0][1], here[-1][2]
        else:
            start_ns, end_ns = row["start_ns"], row["end_ns"]
        if end_ns > start_ns:
            found.append(
                Window(
                    report=row["report"],
                    device=row["device"],
                    start_ns=start_ns,
                    end_ns=end_ns,
                    steps=[(number, at_ns) for number, at_ns, _ in here],
                )
            )
    return found


def _first_steps(steps: pl.DataFrame, report: str, device: int) -> list[tuple[int, int, int]]:
    """Number, start and end of the first steps of a GPU that follow each other."""
    here = steps.filter((pl.col("report") == report) & (pl.col("device") == device))
    rows = here.filter(pl.col("process") == pl.col("process").first()).sort("step")
    found = rows.select("step", "start_ns", "end_ns").head(STEPS).rows()
    return [each for at, each in enumerate(found) if each[0] == found[0][0] + at]


def _lanes(analysis: Analysed, window: Window) -> Iterator[tuple[str, pl.DataFrame]]:
    """Idle time and the busiest streams of a GPU: names, and rows as `runs` takes them."""
    tracks = analysis.tracks
    gaps = tracks.gaps.filter(pl.col("device") == window.device)
    yield "idle", gaps.select("start_ns", "end_ns", pl.col("cause").alias("kind"))
    streams = tracks.lanes.filter(
        (pl.col("kind") == "stream") & (pl.col("device") == window.device)
    )
    groups = {name: group_of(name) for name in tracks.operations["class"].unique().to_list()}
    kind = pl.col("class").cast(pl.String).replace(groups).alias("kind")
    for lane, stream in streams.head(STREAMS).select("lane", "stream").rows():
        here = tracks.operations.filter(pl.col("lane") == lane)
        yield f"stream {stream}", here.select("start_ns", "end_ns", kind)


def _head(results: Results, window: Window, longest_ns: int, top: int) -> Iterator[str]:
    """The GPU's name, and its steps: their numbers at their starts."""
    name = gpu_label(results, window.report, window.device)
    yield label(name, LABEL - 6, top + 11, to_the_left=True)
    scale = (WIDTH - LABEL) / longest_ns
    if not window.steps:
        yield label(duration(window.end_ns - window.start_ns), LABEL, top + 11)
    for number, start_ns in window.steps:
        x = round(LABEL + (start_ns - window.start_ns) * scale, 2)
        yield f'<path d="M{x:g} {top + 2}V{top + _HEAD}" stroke="currentColor" opacity="0.5"/>'
        yield label(f"step {number}", x + 3, top + 11)


FINDINGS = 3
"""How many findings are shown, as on the page."""


def html_of(shown: Results | Analysed) -> str:
    """The verdict, what to change, where the time goes and a small timeline.

    Args:
        shown: a run, or the analysis of one report.
    """
    results = shown if isinstance(shown, Results) else Results([shown])
    parts = (
        f"<style>{_style()}</style>",
        f'<p class="quiet">{text_of(about_run(results))}</p>',
        *_verdict(results),
        *_findings(results),
        *_titled("GPU time", results.judged.per_step.removeprefix("; "), bars(results)),
        *_titled("Timeline", "", timeline(results)),
        _tables(results is shown),
    )
    return f'<div class="nsysflow">{"".join(parts)}</div>'


def _verdict(results: Results) -> Iterator[str]:
    judgement = judge(results)
    for headline in judgement.headlines:
        yield f"<p><b>{text_of(headline.sentence)}</b></p>"
        if headline.advice:
            yield f"<p>next: {text_of(headline.advice)}</p>"
    yield from (f"<p>{text_of(remark)}</p>" for remark in judgement.remarks)


def _findings(results: Results) -> Iterator[str]:
    found = suggestions(results, FINDINGS)
    if not found.rows:
        return
    items = (
        f"<li>{text_of(each.saving)} <b>{text_of(each.title)}</b><br>"
        f"<small>{text_of(' '.join(filter(None, [each.change, each.steps])))}</small></li>"
        for each in found.rows
    )
    yield from _titled("Findings", found.caption, f"<ol>{''.join(items)}</ol>")


def _titled(title: str, caption: str, content: str) -> Iterator[str]:
    """A heading above what is not empty."""
    if content:
        yield f"<h4>{text_of(title)} <small>{text_of(caption)}</small></h4>{content}"


def _tables(of_run: bool) -> str:
    """The tables that it has as attributes."""
    listed = (
        f"<li><code>{name}</code>: {text_of(table.about)}</li>"
        for name, table in TABLES.items()
        if of_run or table.of == "report" or name == "findings"
    )
    return f"<details><summary>Tables</summary><ul>{''.join(listed)}</ul></details>"


def _style() -> str:
    css = (files("nsysflow.report") / "notebook" / "style.css").read_text(encoding="utf-8")
    return f"{css}\n{dark_rules()}"
