"""`analyze`: a trace in, every declared table out, each computed when it is first asked for."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from operator import attrgetter
from typing import Final

import polars as pl

from nsysflow.analysis.findings.findings import Findings, find_of_run, findings_table
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.intervals import merge
from nsysflow.analysis.frames.parallel import computed_once, kept_with, side_by_side
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import Digest, digest
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.bound import device_parts
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View, judged_view, run_view, view_of
from nsysflow.analysis.selection.windows import whole_windows
from nsysflow.analysis.short_repr import Displayable, facts_of
from nsysflow.analysis.steps.kinds import steps_of_run
from nsysflow.analysis.tables.gaps import count_gaps, gap_slices, longest_gaps
from nsysflow.analysis.tables.index import ABOUT, TablesOfReport, declaration
from nsysflow.analysis.tables.validity import FailedCheck, failed_checks, notes_on_graphs
from nsysflow.analysis.tables.view_bound import ViewBound, bound_of_view
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.tracks.tracks import Tracks

_FIRST: Final = ("gap_causes", "gap_places", "stalls", "copies")
"""Pieces of a timeline that need little of each other: computed side by side before any table."""

_FIRST_OF_LAUNCHES: Final = ("launches",)
"""Another such piece, which the table of that name alone needs."""


def analyze(trace: Trace, options: Options | None = None) -> "Analysis":
    """Everything the spec defines about `trace`.

    Args:
        trace: a report, as `load` returns it.
        options: what to narrow the analysis to; None takes it whole.

    Returns:
        The tables, each computed when it is first read.

    Raises:
        SelectionError: (when a table is read) an option names a range, domain or device
            that is not there.
    """
    return Analysis(trace, options or Options())


def pieces_of(names: Collection[str]) -> int:
    """How many pieces of work `Analysis.compute` does for these tables."""
    return len(_first(names)) + len(names)


def _first(names: Collection[str]) -> tuple[str, ...]:
    """The pieces to compute before these tables."""
    return (*_FIRST, *(_FIRST_OF_LAUNCHES if "launches" in names else ()))


class Tables(TablesOfReport):
    """The tables of a view: each is a property, e.g. `tables.gap_summary`.

    Attributes:
        timeline: the whole trace, taken apart.
    """

    def __init__(self, timeline: Timeline, view: Callable[[Timeline], View]) -> None:
        """Take a timeline, and what makes the view of it when the first table is read."""
        self.timeline = timeline
        self._make_view = view

    @computed_once
    def view(self) -> View:
        """The part of the timeline that the tables are of."""
        return self._make_view(self.timeline)

    @computed_once
    def judged(self) -> "Tables":
        """The same tables of what is judged of it: here of all."""
        return self

    @computed_once
    def run_steps(self) -> "Tables":
        """The same tables of all steps after start-up: here of all."""
        return self

    @computed_once
    def subject(self) -> JudgedReport:
        """What rules look at to find what could be changed."""
        return JudgedReport(self)

    @computed_once
    def found(self) -> Findings:
        """What to change, the largest saving first, with all that is known of it."""
        return find_of_run([self.subject])

    def table(self, name: str) -> pl.DataFrame:
        """The table of that name, made when it is first asked for."""
        return kept_with(self, name, partial(self._make, name))

    def _make(self, name: str) -> pl.DataFrame:
        make = declaration(name).make
        if make is None:
            return findings_table(self.found)
        return self._titled(name, make(self.view))

    @property
    def trace(self) -> Trace:
        """What the report says of itself; its rows are let go once they are in order."""
        return self.timeline.trace

    @property
    def scratch(self) -> Scratch | None:
        """Where large pieces are kept; None for memory."""
        return self.timeline.scratch

    @property
    def options(self) -> Options:
        """What the analysis was narrowed to."""
        return self.timeline.options

    @property
    def is_one_rank(self) -> bool:
        """Whether this is one process on one GPU, which communicates with nobody."""
        return len(self.timeline.events.users) <= 1 and self.timeline.communication.is_empty()

    @computed_once
    def digest(self) -> Digest:
        """What the run needs of this report."""
        return digest(self)

    @computed_once
    def tracks(self) -> Tracks:
        """The picture of the whole report: what lies on which lane, whatever is selected."""
        return Tracks.of(self.timeline)

    @property
    def selected_ns(self) -> tuple[tuple[int, int], ...]:
        """The selected parts of the report's time; none where all of it is."""
        windows = self.view.windows
        if windows.equals(whole_windows(self.timeline.events.ops)):
            return ()
        parts = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
        return tuple(merge(parts).rows())

    @computed_once
    def step_name(self) -> str | None:
        """The path of the range that is one step (several if processes differ); None where nothing
        repeats."""
        names = self.timeline.step_paths["joined"].unique(maintain_order=True)
        return ", ".join(names) or None

    @computed_once
    def step_names(self) -> pl.DataFrame:
        """`report`, `process`, `name`: what `step_name` says, process by process."""
        return (
            self.timeline.step_paths.group_by("process", maintain_order=True)
            .agg(pl.col("joined").str.join(", ").alias("name"))
            .select(
                pl.lit(self.trace.report).alias("report"),
                os_pid(pl.col("process")).alias("process"),
                "name",
            )
        )

    @property
    def step_keys(self) -> pl.DataFrame:
        """`report`, `process`, `device`, `step` of each row of `steps`, without their times."""
        report = pl.lit(self.trace.report).alias("report")
        return self.view.steps.select(report, os_pid(pl.col("process")), "device", "step")

    @computed_once
    def step_counts(self) -> dict[tuple[str, int], int]:
        """How many judged steps each GPU has, by report and device; empty where none are judged."""
        if not self.view.of_steps:
            return {}
        steps = self.view.steps.group_by("process", "device").len().group_by("device").max()
        report = self.trace.report
        return {(report, device): count for device, count in steps.select("device", "len").rows()}

    @computed_once
    def bound(self) -> ViewBound:
        """What bounds the selected part, and the largest loss beside it."""
        return bound_of_view(self.view)

    @computed_once
    def parts(self) -> pl.DataFrame:
        """Of what each GPU's time consists, as far as it can bound it: `report`, `device` and the
        parts of spec §15.7."""
        devices = self.timeline.events.devices
        report = pl.lit(self.trace.report).alias("report")
        of = device_parts(self.view).join(devices, on="device_no", maintain_order="left")
        return of.select(report, "device", pl.exclude("device_no", "device"))

    @computed_once
    def failed_checks(self) -> tuple[FailedCheck, ...]:
        """What makes the recording unfit to be judged, the weightiest first; empty for a sound one.
        The tables are computed all the same."""
        return failed_checks(self.view)

    @property
    def notes(self) -> tuple[Note, ...]:
        """The loader's notes, and those on waits and graphs."""
        return (
            *self.trace.notes,
            *_unknown_waits(self.timeline),
            *_unknown_graphs(self.timeline),
            *notes_on_graphs(self.judged.view),
        )

    def gap_slices(self, at_least_ns: int = 0) -> Iterator[pl.DataFrame]:
        """`gaps` in slices, only those that last `at_least_ns` or longer; never no slice."""
        for rows in gap_slices(self.view, at_least_ns):
            yield self._titled("gaps", rows)

    def longest_gaps(self, limit: int, at_least_ns: int = 0) -> pl.DataFrame:
        """The longest `limit` rows of `gaps`, longest first, without making the others."""
        return self._titled("gaps", longest_gaps(self.view, limit, at_least_ns))

    def count_gaps(self, at_least_ns: int = 0) -> int:
        """How many gaps, or parts of them in the windows, last `at_least_ns` or longer."""
        return count_gaps(self.view, at_least_ns)

    def compute(self, *names: str, done: Callable[[], object] = lambda: None) -> None:
        """Compute these tables now, on all cores; reading them one by one uses about one. Where
        memory is short, one table is computed at a time.

        Args:
            names: of tables; `judged.kernels` is that of what is judged.
            done: called after each of the `pieces_of(names)`.
        """
        first = [partial(getattr, self.timeline, piece) for piece in _first(names)]
        work = [*first, *(partial(attrgetter(name), self) for name in names)]
        side_by_side(work, done, at_once=None if self.scratch is None else 1)

    def _titled(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` with the columns of the table called `name`, the report's name in front."""
        report = pl.lit(self.timeline.trace.report).alias("report")
        schema = declaration(name).schema
        return rows.with_columns(report).select(schema.names()).match_to_schema(schema)


class Analysis(Displayable, Tables):
    """The tables of one report: each is a property, e.g. `analysis.gap_summary`."""

    def __init__(self, trace: Trace, options: Options) -> None:
        super().__init__(Timeline(trace, options), view_of)

    @computed_once
    def judged(self) -> Tables:
        """The same tables of what is judged: of the typical steps (spec §8.16)."""
        return Tables(self.timeline, judged_view)

    @computed_once
    def run_steps(self) -> Tables:
        """The same tables of all steps after start-up, the long ones too (spec §8.17)."""
        steps = self.judged.view.steps
        if not self.judged.view.of_steps or len(steps_of_run(self.timeline.steps)) == len(steps):
            return self.judged
        return Tables(self.timeline, run_view)

    def _name(self) -> str:
        return self.trace.report

    def _facts(self) -> list[str]:
        return facts_of(self.accounting, self.steps)


def _unknown_waits(timeline: Timeline) -> Iterator[Note]:
    """A note where streams waited for events that the report does not name (spec §15.6)."""
    if missing := timeline.events.event_waits.missing:
        yield Note(
            NoteKind.EVENTS_NOT_RECORDED,
            f"{missing} waits of a stream name no event in this report; what compute waited for is"
            " judged by streams alone",
        )


def _unknown_graphs(timeline: Timeline) -> Iterator[Note]:
    """A note where graphs were captured before the recording began, and nothing lists their ranges
    (spec §7.16)."""
    if unknown := timeline.captured_before:
        yield Note(
            NoteKind.CAPTURES_NOT_RECORDED,
            f"the phases inside CUDA graphs are unknown ({unknown:,} operations): the graphs were"
            " captured before the recording began; record the program from its start, or a window"
            " with `nsysflow profile --capture`, which notes the ranges of earlier captures",
        )


Analysis.__doc__ = "\n".join(
    [
        f"{Analysis.__doc__}",
        "    Tables, each with its columns in the docstring of `Analysis.NAME`:",
        *(f"        {name}: {ABOUT[name]}." for name in ABOUT if hasattr(Analysis, name)),
    ]
)
