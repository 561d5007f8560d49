"""What a notebook shows of a run: the verdict, what to change, and two pictures."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.tables.index import ABOUT, TablesOfReport
from nsysflow.base.names import printable
from nsysflow.report import palette
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


def svg_picture(height: float, parts: Iterable[str], title: str) -> str:
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


def rect(box: Box) -> str:
    """A box as SVG. Its colour is an attribute, which stays where a viewer removes styles."""
    title = f"<title>{text_of(box.title)}</title>" if box.title else ""
    return (
        f'<rect class="{class_of(box.colour)}" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}"'
        f' height="{box.height:g}" fill="{box.colour.light}">{title}</rect>'
    )


def label(text: str, x: float, y: float) -> str:
    """A text as SVG that ends at `x`."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="end" font-size="11" fill="currentColor">'
        f"{text_of(text)}</text>"
    )


def legend_key(colour: Colour, text: str) -> str:
    """An entry of a legend, as HTML."""
    patch = rect(Box(x=0, y=0, width=12, height=10, colour=colour))
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
        f"{', '.join(f'{dark} .{class_of(colour)}' for dark in _DARK)} {{ fill: {colour.dark}; }}"
        for colour in sorted(colours, key=lambda colour: colour.light)
    )


_ROW: Final = 22
_BAR: Final = 16

GPUS: Final = 16
"""How many have a bar."""


def gpu_time_bars(results: Results) -> str:
    """A bar per GPU, of a judged step's mean, and the legend; empty without GPU work."""
    judged = results.judged
    rows = [row for row in judged.table("accounting").iter_rows(named=True) if row["window_ns"]]
    rows = rows[:GPUS]
    if not rows:
        return ""
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    parts = parts_with_time(ALL, rows)
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    svg: list[str] = []
    for at, (row, count) in enumerate(zip(rows, steps, strict=True)):
        name = gpu_label(results, row["report"], row["device"])
        svg.append(label(name, LABEL - 6, _ROW * at + 12))
        svg += _bar(at, parts, row, count, longest_ns)
    title = f"{time_label(results)} of each GPU, by what it does or waits for"
    return svg_picture(_ROW * len(rows), svg, title) + _legend(parts, rows, steps)


def _bar(
    at: int, parts: Sequence[Part], row: Mapping[str, Any], steps: int, longest_ns: float
) -> Iterator[str]:
    scale = (WIDTH - LABEL) / longest_ns
    left_ns = 0.0
    for part in parts:
        ns = row[part.column] / steps
        if ns:
            yield rect(
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
    """The legend, with figures where there is one GPU."""
    alone = len(rows) == 1
    texts = [part_figures(part, rows[0], steps[0]) if alone else part.label for part in parts]
    keys = (legend_key(part.colour, text) for part, text in zip(parts, texts, strict=True))
    return f"<p>{''.join(keys)}</p>"


def steps_picture(results: Results) -> str:
    """The figure `idle-over-steps`; empty without matplotlib, or where no step has idle time."""
    if find_spec("matplotlib") is None:
        return ""
    from nsysflow.report.figures.drawing import screen_png
    from nsysflow.report.figures.steps import draw_idle_over_steps

    png = screen_png(draw_idle_over_steps, results)
    if png is None:
        return ""
    return (
        '<img alt="idle time of each step, by cause"'
        f' src="data:image/png;base64,{b64encode(png).decode()}"/>'
    )


FINDINGS: Final = 3
"""How many findings are shown, as on the page."""


def notebook_html(shown: Results | Analysis) -> str:
    """The verdict, what to change, where the time goes, and idle time over the steps.

    Args:
        shown: a run, or the analysis of one report.
    """
    results = shown if isinstance(shown, Results) else Results([shown])
    parts = (
        f"<style>{_style()}</style>",
        f'<p class="quiet">{text_of(about_run(results))}</p>',
        *_verdict(results),
        *_findings(results),
        *_titled("GPU time", results.judged.per_step.removeprefix("; "), gpu_time_bars(results)),
        *_titled("Steps", "", steps_picture(results)),
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
    findings = suggestions(results, FINDINGS)
    if not findings.rows:
        return
    items = (
        f"<li>{text_of(row.saving)} <b>{text_of(row.title)}</b><br>"
        f"<small>{text_of(' '.join(filter(None, [row.change, row.steps])))}</small></li>"
        for row in findings.rows
    )
    yield from _titled("Findings", findings.caption, f"<ol>{''.join(items)}</ol>")


def _titled(title: str, caption: str, content: str) -> Iterator[str]:
    """A heading above what is not empty."""
    if content:
        yield f"<h4>{text_of(title)} <small>{text_of(caption)}</small></h4>{content}"


def _tables(of_run: bool) -> str:
    """The tables that it has as attributes."""
    listed = (
        f"<li><code>{name}</code>: {text_of(about)}</li>"
        for name, about in ABOUT.items()
        if of_run or hasattr(TablesOfReport, name)
    )
    return f"<details><summary>Tables</summary><ul>{''.join(listed)}</ul></details>"


def _style() -> str:
    css = (files("nsysflow.report") / "notebook" / "style.css").read_text(encoding="utf-8")
    return f"{css}\n{dark_rules()}"
