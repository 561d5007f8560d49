"""A small timeline: what each GPU did and waited for in the first judged steps.

A place of a lane is as high as it is full: of many short operations in it, few pixels are left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.base.units import duration
from nsysflow.report import palette
from nsysflow.report.about import gpu_label
from nsysflow.report.analysed import Analysed
from nsysflow.report.notebook.cells import CELLS, LEVELS, Run, runs
from nsysflow.report.notebook.svg import LABEL, WIDTH, Box, box, key, label, picture
from nsysflow.report.results import Results

STEPS: Final = 2
"""How many steps are shown: more would be too narrow to read."""

GPUS: Final = 4
STREAMS: Final = 3
"""How many GPUs, and streams of each, are shown."""

_LANE: Final = 16
_BAR: Final = 12
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
    windows = windows_of(results)[:GPUS]
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
    height = _BAR * run.level / LEVELS
    x, width = LABEL + run.first * _CELL, run.count * _CELL
    below = top + _BAR - height
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
