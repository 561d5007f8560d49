"""What all pictures share: what they say of the run, its one time line, the parts of GPU time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.trace import gpu_names
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.base.names import some_of
from nsysflow.base.units import duration, share
from nsysflow.report import palette
from nsysflow.report.layout import shorten_middle
from nsysflow.report.palette import Colour
from nsysflow.report.results import Results, gpu_name, names_of_gpus
from nsysflow.report.step_times import steps_sentence

_LETTERS: Final = 20
"""So long a name of a report leaves the axes enough room."""

_NAMED: Final = 3
"""How many reports have room in the small print."""


def about_run(results: Results, *more: str) -> str:
    """The reports, their GPUs, what is selected and how many steps there are, as on the page.

    Args:
        results: the whole run.
        more: what else the reader must know.
    """
    only = f"only {results.selection}" if results.selection else ""
    gpus = gpu_names(names_of_gpus(results))
    parts = [
        some_of(results.every_report, _NAMED),
        gpus,
        only,
        steps_sentence(results.typical),
        *more,
    ]
    return " · ".join(filter(None, parts))


def gpu_label(results: Results, report: str, device: int) -> str:
    """A GPU as axes name it."""
    short = shorten_middle(report, _LETTERS)
    return gpu_name(short, device, several=len(results.every_report) > 1)


def track_labels(results: Results, tracks: Sequence[tuple[str, int, int]]) -> list[str]:
    """The processes and GPUs as axes name them: by the GPU, unless several processes share it."""
    names = [gpu_label(results, report, device) for report, _, device in tracks]
    return [
        name if names.count(name) == 1 else f"{name}, process {process}"
        for name, (_, process, _) in zip(names, tracks, strict=True)
    ]


def time_label(results: Results) -> str:
    """What an axis of times shows: of a step, or of the whole window."""
    return "time per step" if results.judged.of_steps else "time in the window"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a report lies on the common time line.

    Attributes:
        zero_ns: the report's time from which its columns count.
        origin_ns: where that is on the time line.
        known: whether the clock is aligned with that of the first report.
    """

    zero_ns: int
    origin_ns: int
    known: bool


def clocks_of(results: Results, tracks: Sequence[Tracks]) -> list[Clock]:
    """Where each report lies on the time line, which starts where the first one does."""
    ahead = _ahead(results)
    names = results.reports
    known = [name in ahead or index == 0 for index, name in enumerate(names)]
    begun = [start_of(each) for each in tracks]
    aligned = [start - ahead.get(name, 0) for name, start in zip(names, begun, strict=True)]
    first = min(start for start, is_known in zip(aligned, known, strict=True) if is_known)
    return [
        Clock(zero_ns=start, origin_ns=place - first if is_known else 0, known=is_known)
        for start, place, is_known in zip(begun, aligned, known, strict=True)
    ]


def _ahead(results: Results) -> dict[str, int]:
    """How far the clocks of the reports are ahead of the first one's, where that is known."""
    ranks = results.table("ranks").drop_nulls("clock_ns")
    return dict(ranks[["report", "clock_ns"]].unique("report", keep="first").rows())


_TIMED: Final = (
    "operations",
    "calls",
    "ranges",
    "steps",
    "gaps",
    "profiler",
    "batches",
    "host_stacks",
)


def start_of(tracks: Tracks) -> int:
    """The first time of a report."""
    times = [getattr(tracks, name)["start_ns"].min() for name in _TIMED]
    return min((t for t in (*times, tracks.counters["time_ns"].min()) if t is not None), default=0)


def end_of(tracks: Tracks) -> int:
    """The last time of a report."""
    times = [getattr(tracks, name)["end_ns"].max() for name in _TIMED]
    return max((t for t in (*times, tracks.counters["time_ns"].max()) if t is not None), default=0)


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """An entry of a legend."""

    label: str
    colour: Colour


@dataclass(frozen=True, kw_only=True)
class Part(LegendEntry):
    """A part of a GPU's time, and its entry in legends.

    Attributes:
        column: of the tables, in ns.
    """

    column: str


WORK: Final = (
    Part(column="compute_ns", label="compute", colour=palette.CLASSES["compute"]),
    Part(
        column="comm_exposed_ns",
        label="exposed communication",
        colour=palette.CLASSES["communication"],
    ),
    Part(column="copy_exposed_ns", label="exposed copies", colour=palette.CLASSES["copy"]),
)
"""What a GPU does, in the order of the accounting."""

IDLE: Final = tuple(
    Part(column=f"{name}_ns", label=cause.label, colour=palette.CAUSES[name])
    for name, cause in CAUSES.items()
)
"""Why it idles, in the order of spec §3."""

ALL: Final = (*WORK, *(replace(part, label=f"idle: {part.label}") for part in IDLE))
"""All of its time."""


def part_figures(part: Part, row: Mapping[str, Any], steps: int) -> str:
    """A part with its figures: `compute 3.24 ms, 84 %`.

    Args:
        part: the part.
        row: of the accounting.
        steps: how many steps it is of, so that the time is given per step.
    """
    time = duration(round(row[part.column] / steps))
    return f"{part.label} {time}, {share(row[part.column], row['window_ns'])}"


def parts_with_time(parts: Iterable[Part], rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The parts of which any row has time."""
    return [part for part in parts if any(row[part.column] for row in rows)]


CREATOR: Final = "nsysflow"
"""What the files say of who made them."""

FIGURE_FORMS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "svg": {"Creator": CREATOR, "Date": None},  # a date would make each file another one
    "png": {"Software": CREATOR},
}
"""The endings of the files, with what they say of themselves."""


def figure_files(name: str) -> list[str]:
    """The files of a figure, by its name."""
    return [f"{name}.{form}" for form in FIGURE_FORMS]


@dataclass(frozen=True, kw_only=True)
class DrawnFigures:
    """The figures that were drawn. It stands here, where matplotlib is not needed.

    Attributes:
        files: their files, by name.
        empty: why the others were not, by the figure's name.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    empty: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The figures that were drawn, in order."""
        return list(dict.fromkeys(name.rpartition(".")[0] for name in self.files))

    @property
    def not_there(self) -> list[str]:
        """The files of the others."""
        return [file for name in self.empty for file in figure_files(name)]
