"""The idle flame graph as one SVG file that needs nothing else."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Final

import polars as pl

from nsysflow.base.units import duration, share
from nsysflow.report.flamegraph.boxes import Box, Kind, boxes
from nsysflow.report.layout import printable

TITLE: Final = "What the host ran while the GPU waited"
WIDTH: Final = 1200
ROW: Final = 18
MARGIN: Final = 10
_TOP: Final = 84
"""Above the boxes: the title, how to read it, and what the colours mean."""

_LETTER: Final = 6.6
"""The width of a letter of the boxes' font: 0.6 of its 11 px."""

_NARROWEST: Final = 1 / 2000
"""A box with a smaller share of all is left out: it would be half a pixel wide."""

LEGEND: Final[dict[Kind, str]] = {
    "phase": "phase",
    "cause": "cause",
    "own": "your code",
    "library": "libraries",
    "unknown": "not sampled",
}


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What stands above the boxes.

    Attributes:
        about: which reports and what part of them.
        steps: how many steps the idle time is of, so that it is given per step; None for a window.
    """

    about: str
    steps: int | None

    def time(self, ns: int) -> str:
        """An idle time as it is shown: `3.92 ms per step`."""
        per_step = " per step" if self.steps else ""
        return f"{duration(round(ns / (self.steps or 1)))}{per_step}"


def svg(idle_stacks: pl.DataFrame, own: Collection[str], heading: Heading) -> str:
    """The picture.

    Args:
        idle_stacks: `IDLE_STACKS`, with at least a row.
        own: the files of the program itself, as the stacks name them.
        heading: what it is of.
    """
    root = boxes(idle_stacks, own)
    laid = list(_laid(root))
    height = _TOP + ROW * (1 + max(each.depth for each in laid)) + MARGIN
    about = f"{heading.about} · {heading.time(root.ns)} idle in host code and launches"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}">',
        f"<title>{_text(f'{TITLE}: {about}')}</title>",
        f"<style>{_file('look.css')}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{MARGIN}" y="22">{TITLE}</text>',
        f'<text class="about" x="{MARGIN}" y="40">{_text(about)}</text>',
        f'<text class="about" x="{MARGIN}" y="57">Width: idle time. From the top: phase, cause,'
        " functions, the caller first. Click a box to enlarge it, the top one to go back.</text>",
        *_legend(),
        *(_drawn(each, root.ns, heading) for each in laid),
        f"<script><![CDATA[\n{_file('use.js')}]]></script>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Laid:
    """A box and where it lies: `left_ns` of all idle time are to its left."""

    box: Box
    left_ns: int
    depth: int


def _laid(root: Box) -> Iterator[_Laid]:
    """Every box that is wide enough to be seen, each before those below it."""
    least_ns = root.ns * _NARROWEST
    waiting = [_Laid(box=root, left_ns=0, depth=0)]
    while waiting:
        laid = waiting.pop()
        yield laid
        left_ns = laid.left_ns
        for child in laid.box.widest_first:
            if child.ns >= least_ns:
                waiting.append(_Laid(box=child, left_ns=left_ns, depth=laid.depth + 1))
            left_ns += child.ns


def _drawn(laid: _Laid, all_ns: int, heading: Heading) -> str:
    """A box: an inner SVG, which cuts off what sticks out of it."""
    box, inner = laid.box, WIDTH - 2 * MARGIN
    x, width = (inner * ns / all_ns for ns in (laid.left_ns, box.ns))
    name = _name(box)
    time = f"{heading.time(box.ns)}, {share(box.ns, all_ns)}"
    return (
        f'<svg class="box {box.place.kind}" x="{MARGIN + x:.3f}" y="{_TOP + ROW * laid.depth}"'
        f' width="{width:.3f}" height="{ROW - 1}"><title>{_text(name)}\n{_text(time)}</title>'
        f'<rect width="100%" height="100%"/>'
        f'<text x="3" y="12.5">{_text(_cut(name, int((width - 6) / _LETTER)))}</text></svg>'
    )


def _name(box: Box) -> str:
    """`tokenize (train.py:88)`, with the line that has most of the time."""
    place = box.place
    if not place.file:
        return place.name
    line = "" if box.line is None else f":{box.line}"
    return f"{place.name} ({place.file}{line})"


def _cut(name: str, letters: int) -> str:
    """As much of a name as there is room for; its start says most."""
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}…" if letters > 3 else ""


def _legend() -> Iterator[str]:
    x = MARGIN
    for kind, label in LEGEND.items():
        yield f'<g class="{kind}"><rect x="{x}" y="65" width="11" height="11"/></g>'
        yield f'<text class="about" x="{x + 16}" y="75">{label}</text>'
        x += 16 + 8 * len(label) + 20


def _text(text: str) -> str:
    """Text as XML takes it, which knows no control characters."""
    return escape(printable(text), quote=False)


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
