"""What changes would give: step and window before and after, and the idle time left (spec §14)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.notes import Note, NoteKind
from nsysflow.analysis.frames.parallel import computed_once, side_by_side
from nsysflow.analysis.gaps.find import find_gaps
from nsysflow.analysis.gaps.run_ahead import Explained, explain
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.replay.changes.apply import changed
from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.analysis.replay.changes.names import Names
from nsysflow.analysis.replay.dependencies.program import Program, Recorded, recorded
from nsysflow.analysis.replay.lengths import Lengths, lengths
from nsysflow.analysis.replay.replay import Times, replay
from nsysflow.analysis.replay.retimed import retimed
from nsysflow.analysis.steps.chosen import require_steps


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A trace before and after changes. All times are as recorded, under the profiler.

    Attributes:
        before: lengths as recorded.
        after: lengths in the replay.
        idle_before: idle time by cause, of all devices together.
        idle_after: the same in the replay.
        notes: what the replay cannot know of this report.
    """

    before: Lengths
    after: Lengths
    idle_before: dict[str, int]
    idle_after: dict[str, int]
    notes: tuple[Note, ...]


def whatif(timeline: Timeline, changes: Changes) -> WhatIf:
    """Replay a trace with changes.

    Args:
        timeline: the trace.
        changes: what is different.

    Raises:
        SelectionError: there is no step of those that the options select.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    if timeline.options.steps:
        require_steps(timeline.steps, timeline.options.steps, timeline.trace.report)
    run = _Run(timeline, changes)
    sides: list[Callable[[], object]] = [lambda: run.before, lambda: run.explained]
    side_by_side(sides)
    return WhatIf(
        before=run.before,
        after=lengths(timeline, run.times.ops),
        idle_before=_by_cause(timeline.explained),
        idle_after=_by_cause(run.explained),
        notes=tuple(_limits(timeline, run.recording)),
    )


class _Run:
    """One replay of a trace. Each piece is computed once, when it is first read."""

    def __init__(self, timeline: Timeline, changes: Changes) -> None:
        self.timeline = timeline
        self.changes = changes

    @computed_once
    def before(self) -> Lengths:
        """The lengths as recorded."""
        return lengths(self.timeline)

    @computed_once
    def recording(self) -> Recorded:
        """The program as recorded."""
        return recorded(self.timeline.events)

    @computed_once
    def program(self) -> Program:
        """The program with the changes."""
        return changed(Names(timeline=self.timeline, recorded=self.recording), self.changes)

    @computed_once
    def times(self) -> Times:
        """When everything happens in the replay."""
        return replay(self.program)

    @computed_once
    def explained(self) -> Explained:
        """The gaps that the replay leaves, with their causes."""
        events = self.timeline.events
        if self.changes.no_profiler:
            events = replace(events, overhead=events.overhead.clear())
        events = retimed(events, self.recording, self.program, self.times)
        gap_ns = self.timeline.options.framework_gap_ns
        return explain(events, find_gaps(events), framework_gap_ns=gap_ns)


def lengths_after(timeline: Timeline, recording: Recorded, changes: Changes) -> Lengths:
    """The lengths after changes alone, for those who value many changes of one trace.

    Args:
        timeline: the trace.
        recording: of `recorded`, which serves for any changes.
        changes: what is different.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    names = Names(timeline=timeline, recorded=recording)
    return lengths(timeline, replay(changed(names, changes)).ops)


def _by_cause(explained: Explained) -> dict[str, int]:
    sums = explained.gaps.select(f"{cause}_ns" for cause in CAUSES).sum().row(0)
    return dict(zip(CAUSES, sums, strict=True))


def _limits(timeline: Timeline, recording: Recorded) -> Iterator[Note]:
    """What makes the replay of this report less certain."""
    if recording.missing:
        yield Note(
            NoteKind.EVENTS_NOT_RECORDED,
            f"{recording.missing} waits of a stream name no event in this report; whom they waited"
            " for is judged by time alone",
        )
    launching = recording.program.calls[recording.program.ops["node"].drop_nulls().unique()]
    competing = launching.group_by("process_no").agg(pl.col("team").n_unique())["team"].max()
    if isinstance(competing, int) and competing > 1:
        yield Note(
            NoteKind.SEVERAL_THREADS,
            "several threads launch work side by side; that they compete for the GPU in another"
            " order after a change is not replayed",
        )
    if (timeline.events.ops["part"] == "comm").any():
        yield Note(
            NoteKind.OTHER_RANKS,
            "communication kernels keep their length; that other ranks come sooner or later is not"
            " replayed",
        )
