"""The idle flame graph: what Python ran while the GPU waited, as a picture and for speedscope."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.source_files import is_own, shown_frames
from nsysflow.analysis.idle.samples import has_host_stacks
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.errors import SelectionError
from nsysflow.base.names import OUTSIDE, printable, printable_json
from nsysflow.base.units import duration, share
from nsysflow.report.fields import gpus_together
from nsysflow.report.results import Results

Kind = Literal["report", "phase", "cause", "own", "library", "unknown"]
"""What a box stands for: of functions, whether they are the program's own, and whether any sample
says what ran."""

_FRAME: Final = re.compile(r"(?P<function>.+) \((?P<file>.+):(?P<line>\d+)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One level of a stack, which has a box of its own.

    Attributes:
        name: what is written in its box: a function, an operator, a phase, …
        file: the function's file; empty for what has none.
        kind: what it stands for.
    """

    name: str
    file: str = ""
    kind: Kind


@dataclass(kw_only=True)
class Box:
    """A place below another one, and all idle time in it.

    Attributes:
        place: what it stands for.
        ns: its idle time, with that of its children.
        lines: the idle time of each line that was running in it.
        children: the boxes below it.
    """

    place: Place
    ns: int = 0
    lines: Counter[int] = field(default_factory=Counter)
    children: "dict[Place, Box]" = field(default_factory=dict)

    @property
    def line(self) -> int | None:
        """The line with most of its idle time."""
        return max(self.lines, key=lambda line: (self.lines[line], -line), default=None)

    @property
    def widest_first(self) -> "list[Box]":
        """Its children, those with most idle time first."""
        return sorted(self.children.values(), key=lambda each: (-each.ns, each.place.name))


def boxes(idle_stacks: pl.DataFrame, own: Collection[str] = ()) -> Box:
    """The tree. Its root is all of the idle time; reports have boxes where there are several.

    Args:
        idle_stacks: `IDLE_STACKS`.
        own: the files of the program itself, as the stacks name them.
    """
    root = Box(place=Place(name="all idle time of host code and launches", kind="report"))
    several = idle_stacks["report"].n_unique() > 1
    for row in idle_stacks.iter_rows(named=True):
        report = [(Place(name=row["report"], kind="report"), None)] if several else []
        _add(root, [*report, *_levels(row, own)], row["idle_ns"])
    return root


def _levels(row: dict[str, Any], own: Collection[str]) -> Iterator[tuple[Place, int | None]]:
    """The levels of a row of `IDLE_STACKS`, outermost first, each with its line."""
    yield Place(name=row["phase"] or OUTSIDE, kind="phase"), None
    yield Place(name=CAUSES[row["cause"]].label, kind="cause"), None
    yield from (_level(frame, own) for frame in row["stack"])


def _level(frame: str, own: Collection[str]) -> tuple[Place, int | None]:
    """A frame of a stack. Lines of one function share a box, which is what people look for."""
    parts = _FRAME.fullmatch(frame)
    if parts is None:
        kind: Kind = "unknown" if frame == NOT_SAMPLED else "library"
        return Place(name=frame, kind=kind), None
    kind = "own" if parts["file"] in own else "library"
    return Place(name=parts["function"], file=parts["file"], kind=kind), int(parts["line"])


def _add(root: Box, path: Iterable[tuple[Place, int | None]], ns: int) -> None:
    box = root
    box.ns += ns
    for place, line in path:
        box = box.children.setdefault(place, Box(place=place))
        box.ns += ns
        if line is not None:
            box.lines[line] += ns


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
    placed = list(_placed_boxes(root))
    height = _TOP + ROW * (1 + max(box.depth for box in placed)) + MARGIN
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
        *(_box_svg(box, root.ns, heading) for box in placed),
        f"<script><![CDATA[\n{_file('use.js')}]]></script>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class _PlacedBox:
    """A box and where it lies: `left_ns` of all idle time are to its left."""

    box: Box
    left_ns: int
    depth: int


def _placed_boxes(root: Box) -> Iterator[_PlacedBox]:
    """Every box that is wide enough to be seen, each before those below it."""
    least_ns = root.ns * _NARROWEST
    waiting = [_PlacedBox(box=root, left_ns=0, depth=0)]
    while waiting:
        placed = waiting.pop()
        yield placed
        left_ns = placed.left_ns
        for child in placed.box.widest_first:
            if child.ns >= least_ns:
                waiting.append(_PlacedBox(box=child, left_ns=left_ns, depth=placed.depth + 1))
            left_ns += child.ns


def _box_svg(placed: _PlacedBox, all_ns: int, heading: Heading) -> str:
    """A box: an inner SVG, which cuts off what sticks out of it."""
    box, inner = placed.box, WIDTH - 2 * MARGIN
    x, width = (inner * ns / all_ns for ns in (placed.left_ns, box.ns))
    name = _name(box)
    time = f"{heading.time(box.ns)}, {share(box.ns, all_ns)}"
    return (
        f'<svg class="box {box.place.kind}" x="{MARGIN + x:.3f}" y="{_TOP + ROW * placed.depth}"'
        f' width="{width:.3f}" height="{ROW - 1}"><title>{_text(name)}\n{_text(time)}</title>'
        f'<rect width="100%" height="100%"/>'
        f'<text x="3" y="12.5">{_text(_shortened(name, int((width - 6) / _LETTER)))}</text></svg>'
    )


def _name(box: Box) -> str:
    """`tokenize (train.py:88)`, with the line that has most of the time."""
    place = box.place
    if not place.file:
        return place.name
    line = "" if box.line is None else f":{box.line}"
    return f"{place.name} ({place.file}{line})"


def _shortened(name: str, letters: int) -> str:
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
    return (files("nsysflow.report") / "flamegraph" / name).read_text(encoding="utf-8")


SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def speedscope(idle_stacks: pl.DataFrame, name: str) -> str:
    """The document: a profile for each report, whose weights are idle ns.

    Args:
        idle_stacks: `IDLE_STACKS`.
        name: the document's name.
    """
    frames: dict[tuple[Place, int | None], int] = {}
    profiles = [
        _profile(str(report), boxes(rows), frames)
        for (report,), rows in idle_stacks.group_by("report", maintain_order=True)
    ]
    document = {
        "$schema": SCHEMA,
        "name": name,
        "exporter": f"nsysflow {nsysflow.__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*key) for key in frames]},
        "profiles": profiles,
    }
    return printable_json(json.dumps(document, ensure_ascii=False)) + "\n"


def _profile(name: str, root: Box, frames: dict[tuple[Place, int | None], int]) -> dict[str, Any]:
    """A profile of one report, which adds its frames to those of the document."""
    samples, weights = [], []
    waiting: list[tuple[Box, list[int]]] = [(root, [])]
    while waiting:
        box, above = waiting.pop()
        own_ns = box.ns - sum(each.ns for each in box.children.values())
        if own_ns:
            samples.append(above)
            weights.append(own_ns)
        for child in reversed(box.widest_first):
            index = frames.setdefault((child.place, child.line), len(frames))
            waiting.append((child, [*above, index]))
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": root.ns,
        "samples": samples,
        "weights": weights,
    }


def _frame(place: Place, line: int | None) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": place.name}
    if place.file:
        frame["file"] = place.file
    if line is not None:
        frame["line"] = line
    return frame


def draw(results: Results, file: Path) -> str:
    """What the host ran while the GPU waited in the judged steps, as the text of `file`.

    Args:
        results: the run.
        file: it ends in `.svg`, a picture for a browser, or in `.json`, for speedscope.app.

    Raises:
        SelectionError: no report says what the host ran, or the GPU never waited for it.
    """
    judged = results.judged
    stacks = judged.table("idle_stacks")
    if stacks.is_empty():
        raise _nothing_to_draw(results)
    about = " · ".join(filter(None, [", ".join(results.reports), results.selection]))
    if file.suffix == ".json":
        return speedscope(stacks, about)
    steps = judged.step_count if judged.of_steps else None
    heading = Heading(about=f"{about}{gpus_together(results)}", steps=steps)
    return svg(stacks, own_files(results), heading)


def own_files(results: Results) -> set[str]:
    """The files of the program itself, as stacks name them."""
    return {
        shown
        for each in results.analyses
        for file, shown in shown_frames(each.trace.frames["file"].drop_nulls().unique()).items()
        if is_own(file, each.options.own)
    }


def _nothing_to_draw(results: Results) -> SelectionError:
    names = ", ".join(results.reports)
    if any(has_host_stacks(each.trace) for each in results.analyses):
        return SelectionError(
            f"in {names} no GPU waits for host code or launches; there is nothing to draw",
            "See what it does instead",
            f"nsysflow analyze {results.again}",
        )
    return SelectionError(
        f"{names} has no Python samples, so what the host ran is not known",
        "Record the program again, with samples",
        "nsysflow profile --sample-python 1000 -- COMMAND",
    )
