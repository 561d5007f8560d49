"""The tables of one report, or of its judged part, each made when it is first read."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import polars as pl

from nsysflow.analysis.events.graphs import capturing_time
from nsysflow.analysis.frames.intervals import merge
from nsysflow.analysis.frames.parallel import computed_once, kept_with
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.options import Options
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.bound import ViewBound, bound_of_view, device_parts
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.selection.windows import whole_windows
from nsysflow.analysis.steps.kinds import by_turns, growing
from nsysflow.analysis.tables.gaps import count_gaps, gap_slices, longest_gaps
from nsysflow.analysis.tables.index import TablesOfReport, declaration
from nsysflow.analysis.tables.validity import FailedCheck, failed_checks, notes_on_graphs
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.units import share


class ReportTables(TablesOfReport):
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
    def judged(self) -> "ReportTables":
        """The same tables of what is judged of it: here of all."""
        return self

    @computed_once
    def run_steps(self) -> "ReportTables":
        """The same tables of all steps after start-up: here of all."""
        return self

    def table(self, name: str) -> pl.DataFrame:
        """The table of that name, made when it is first asked for."""
        return kept_with(self, name, partial(self._make, name))

    def _make(self, name: str) -> pl.DataFrame:
        make = declaration(name).make
        return self._findings() if make is None else self._titled(name, make(self.view))

    @abstractmethod
    def _findings(self) -> pl.DataFrame:
        """FINDINGS, the one table that rules make from the others."""

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

    @property
    def steps_inferred(self) -> bool:
        """Whether the steps are inferred from repeating kernels, as no range is one."""
        return not self.timeline.inferred_steps.is_empty()

    @property
    def growth_ns(self) -> tuple[int, int] | None:
        """How long the first and the last step take where steps grow from one to the next; None
        where none do, and where some were chosen."""
        grown = growing(self.timeline.steps).sort("last_ns").select("first_ns", "last_ns").rows()
        return grown[-1] if grown and not self.timeline.options.steps else None

    @property
    def turns_ns(self) -> tuple[int, int] | None:
        """How long steps of both kinds take where two kinds take turns, on the GPU where they
        differ most; None where none do, and where some steps were chosen."""
        kinds = by_turns(self.timeline.steps).select("shorter_ns", "longer_ns").rows()
        if self.timeline.options.steps:
            return None
        return max(kinds, key=lambda kind: kind[1] - kind[0], default=None)

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
        return {(report, device): count for device, count in steps[["device", "len"]].rows()}

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
            *_mostly_captures(self.timeline),
            *_backtraces_of_launches(self.timeline),
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

    def _titled(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` with the columns of the table called `name`, the report's name in front."""
        report = pl.lit(self.timeline.trace.report).alias("report")
        schema = declaration(name).schema
        columns = [report if name == "report" else pl.col(name) for name in schema.names()]
        titled = rows.select(columns)
        return titled if titled.schema == schema else titled.match_to_schema(schema)


def _unknown_waits(timeline: Timeline) -> Iterator[Note]:
    """A note where streams waited for events that the report does not name (spec §15.6)."""
    if missing := timeline.event_waits.missing:
        yield Note(
            NoteKind.EVENTS_NOT_RECORDED,
            f"{missing:,} stream waits cannot be matched to events; causes there are guesses",
        )


MOST_TRACED_PCT: Final = 50
"""From here on most launches wait for their backtrace: 132 ms for 44 ms of a program that launches
all the time."""


def _backtraces_of_launches(timeline: Timeline) -> Iterator[Note]:
    """A note where the recorder took the call chain of most launches, which slows the host (spec
    §12.10). Captures of `nsysflow profile` say how long a step took before."""
    trace, events = timeline.trace, timeline.events
    unrecorded = timeline.options.unrecorded_step_ns
    if trace.backtraces.is_empty() or len(trace.captures) or unrecorded is not None:
        return
    threads = events.threads[["thread_no", "thread"]]
    launches = events.ops.filter("first", pl.col("call").is_not_null())
    called = launches.select("thread_no", start_ns="launch_start_ns").join(threads, on="thread_no")
    traced = called.join(trace.backtraces, on=["start_ns", "thread"], how="semi")
    if 100 * len(traced) >= MOST_TRACED_PCT * len(called) > 0:
        yield Note(
            NoteKind.BACKTRACES_OF_LAUNCHES,
            f"{len(traced):,} of {len(called):,} launches have a backtrace:"
            " --cudabacktrace=none slows the host less",
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


def _mostly_captures(timeline: Timeline) -> Iterator[Note]:
    """A note where graphs were being captured for most of the time (spec §12.11)."""
    capturing = capturing_time(timeline.events)
    if capturing.is_most:
        yield Note(
            NoteKind.MOSTLY_CAPTURES,
            f"graphs were being captured {share(capturing.part_ns, capturing.whole_ns)} of the"
            " time: what is launched then does not run yet, and the time is start-up's; record"
            " steps that launch these graphs",
        )
