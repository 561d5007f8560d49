"""What changes would give: step and window before and after, and the idle time left (spec §14)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import greatest, repeated, scatter_table
from nsysflow.analysis.frames.intervals import Axis, last_at_or_before
from nsysflow.analysis.frames.parallel import computed_once, side_by_side
from nsysflow.analysis.idle.gaps import find_gaps
from nsysflow.analysis.idle.gil import has_gil
from nsysflow.analysis.idle.run_ahead import GapCauses, find_causes
from nsysflow.analysis.replay.apply import Baseline, Names, changed
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.collectives import stated_collectives
from nsysflow.analysis.replay.curve import Collectives
from nsysflow.analysis.replay.disturbance import (
    PlainFeed,
    extremes,
    plain_feed,
    undisturbed,
    with_faster_host,
)
from nsysflow.analysis.replay.replay import (
    Lengths,
    Program,
    Recorded,
    Times,
    busy_of,
    lengths,
    recorded,
    replay,
    slowest_steps,
)
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.steps.kinds import require_steps
from nsysflow.analysis.trace import Note, NoteKind


def retimed(events: Events, recorded: Recorded, program: Program, times: Times) -> Events:
    """`events` at the times of a replay, with the calls and launches of the program replayed.

    Args:
        events: as recorded.
        recorded: their program.
        program: what was replayed.
        times: its replay.
    """
    clock = _Clock(events.axis, recorded.program.calls, times.calls)
    calls = _calls(events.calls, recorded, program, times, clock)
    overhead = clock.moved(events.overhead).sort("start_ns", -pl.col("end_ns"), maintain_order=True)
    ops = _ops(events.ops, recorded, program, times, calls)
    spans = [frame.select("start_ns", "end_ns") for frame in (ops, calls, overhead)]
    extent = pl.concat(spans).select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    axis = _axis_of(events.axis, *extent)
    place = axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    ops = ops.with_columns(place).sort("place", maintain_order=True)
    ops = ops.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("op"))
    return replace(
        events, axis=axis, ops=ops, calls=calls, overhead=overhead, last_ns=extent[1] or 0
    )


def _axis_of(axis: Axis, first_ns: int | None, last_ns: int | None) -> Axis:
    """An axis long enough for the times of the replay, with the tracks as far apart."""
    first = min(axis.origin_ns, first_ns if first_ns is not None else axis.origin_ns)
    last = last_ns if last_ns is not None else first
    return Axis(origin_ns=first, stride_ns=max(axis.stride_ns, last - first + axis.stride_ns))


class _Clock:
    """When what lies between the calls of a thread, or inside one, happens in a replay."""

    def __init__(self, axis: Axis, calls: pl.DataFrame, times: pl.DataFrame) -> None:
        """Set the clock by the start and end of every call of the program."""
        self.axis = axis
        thread = calls["thread_no"]
        sides = [
            pl.DataFrame({"thread_no": thread, "was_ns": calls[side], "is_ns": times[side]})
            for side in ("start_ns", "end_ns")
        ]
        place = axis.at(pl.col("thread_no"), pl.col("was_ns")).alias("place")
        marks = pl.concat(sides).drop_nulls("thread_no").with_columns(place)
        marks = marks.sort("place", maintain_order=True)
        same = pl.col("thread_no").shift(-1) == pl.col("thread_no")
        room = pl.when(same).then(pl.col("is_ns").shift(-1) - pl.col("is_ns"))
        self.marks = marks.with_columns(room.clip(lower_bound=0).alias("room_ns"))
        last_to_first = self.marks.reverse()
        numbers = last_to_first["thread_no"]
        moved_ns = last_to_first["is_ns"] - last_to_first["was_ns"]
        self.first_moved_ns = scatter_table(greatest(numbers) + 1, numbers, moved_ns)

    def moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of threads with the `start_ns` and `end_ns` of the replay."""
        start, end = (self._time(rows["thread_no"], rows[side]) for side in ("start_ns", "end_ns"))
        end = pl.select(pl.max_horizontal(start, end)).to_series()
        return rows.with_columns(start.alias("start_ns"), end.alias("end_ns"))

    def _time(self, thread: pl.Series, time_ns: pl.Series) -> pl.Series:
        asked = pl.DataFrame({"thread_no": thread, "time_ns": time_ns})
        place = asked.select(self.axis.at(pl.col("thread_no"), pl.col("time_ns"))).to_series()
        mark = last_at_or_before(self.marks["place"], place)
        marks = self.marks.select(pl.all().gather(mark)).rename({"thread_no": "of"})
        since = pl.min_horizontal(pl.col("time_ns") - pl.col("was_ns"), "room_ns")
        moved = pl.when(pl.col("of") == pl.col("thread_no")).then(pl.col("is_ns") + since)
        # what lies before a thread's first call keeps its distance from that
        early = self.first_moved_ns.gather(thread, null_on_oob=True).fill_null(0)
        return asked.hstack(marks).select(moved.fill_null(pl.col("time_ns") + early)).to_series()


def _calls(
    calls: pl.DataFrame, recorded: Recorded, program: Program, times: Times, clock: _Clock
) -> pl.DataFrame:
    """All calls: those of the program as replayed, others by the clock. A call in one that was
    changed is of the class that that one is of now."""
    node = recorded.node_of_call
    was, now = (run.calls["class"][node] for run in (recorded.program, program))
    changed = (was != now).fill_null(value=False)
    known = program.calls["call"]
    others = repeated(value=True, length=len(calls)).scatter(known, values=False)
    moved = clock.moved(calls.filter(others).select("call", "thread_no", "start_ns", "end_ns"))
    return calls.with_columns(
        pl.when(pl.lit(changed)).then(pl.lit(now)).otherwise("class").alias("class"),
        *(
            calls[side].scatter(known, times.calls[side]).scatter(moved["call"], moved[side])
            for side in ("start_ns", "end_ns")
        ),
    )


def _ops(
    ops: pl.DataFrame, recorded: Recorded, program: Program, times: Times, calls: pl.DataFrame
) -> pl.DataFrame:
    """All operations as replayed, with the calls that launch them now."""
    node = program.ops["node"]
    moved = (node != recorded.program.ops["node"]).fill_null(value=False)
    call = pl.select(
        pl.when(pl.lit(moved)).then(program.calls["call"][node]).otherwise(ops["call"])
    ).to_series()
    return ops.with_columns(
        call.alias("call"),
        calls["thread_no"][call],
        calls["start_ns"][call].alias("launch_start_ns"),
        calls["end_ns"][call].alias("launch_end_ns"),
        times.ops["start_ns"],
        times.ops["end_ns"],
    )


@dataclass(frozen=True)
class Sent:
    """Collectives of one size in a step.

    Attributes:
        operation: NCCL's name.
        bytes: of each message.
        count: how many there are.
        gpu_ns: how long they take, all together.
    """

    operation: str
    bytes: int
    count: float
    gpu_ns: float


@dataclass(frozen=True, kw_only=True)
class OnRanks:
    """A step on more ranks.

    Attributes:
        ranks: how many.
        step_low_ns: what a step takes at least.
        step_high_ns: what it takes at most.
        speed_low: how many times the work of one rank all do in the same time, where work beside
            collectives is delayed most.
        speed_high: the same where it is delayed least.
        sent: its collectives, by operation and size.
    """

    ranks: int
    step_low_ns: int
    step_high_ns: int
    speed_low: float
    speed_high: float
    sent: tuple[Sent, ...]


STEPS_DIFFER: Final = 0.02
"""So much do steps of a program differ from process to process, and from GPU to GPU."""

HOSTS_DIFFER: Final = 1.2
"""And so many times as long, or as short, is the host's time: of twelve programs that were timed
three times each, in another process (docs/facts.md)."""


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A trace before and after changes: without the profiler's share (spec §14.15, §14.16), or as
    recorded where there are no steps.

    Attributes:
        before: lengths without the changes.
        after: lengths in the replay.
        idle_before: idle time by cause, of all devices together.
        idle_after: the same in the replay.
        notes: what the replay cannot know of this report.
        undisturbed: whether the profiler's share is taken out of both sides.
        estimated: whether it is so by estimate, as no plain step is known.
        step_idle_before: idle time by cause in one of the steps that `before.step_ns` is the mean
            of, on their device; None where none is known.
        step_idle_after: the same in the replay.
        on_ranks: where the change is to more ranks, the bounds of the step, and what it sends.
    """

    before: Lengths
    after: Lengths
    idle_before: dict[str, int]
    idle_after: dict[str, int]
    notes: tuple[Note, ...]
    undisturbed: bool = False
    estimated: bool = False
    step_idle_before: dict[str, int] | None = None
    step_idle_after: dict[str, int] | None = None
    on_ranks: OnRanks | None = None


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
    sides: list[Callable[[], object]] = [
        lambda: (run.before, run.explained_before),
        lambda: run.explained,
    ]
    side_by_side(sides)
    return WhatIf(
        before=run.before,
        after=lengths(timeline, run.times.ops),
        idle_before=_by_cause(run.explained_before),
        idle_after=_by_cause(run.explained),
        notes=tuple(_limits(timeline, run.recording, changes)),
        undisturbed=run.undisturbed,
        estimated=run.undisturbed and timeline.options.unrecorded_step_ns is None,
        step_idle_before=idle_of_steps(run.steps_before, run.explained_before),
        step_idle_after=idle_of_steps(slowest_steps(timeline, run.times.ops), run.explained),
        on_ranks=run.on_ranks,
    )


class _Run:
    """One replay of a trace. Each piece is computed once, when it is first read."""

    def __init__(self, timeline: Timeline, changes: Changes) -> None:
        self.timeline = timeline
        self.changes = changes

    @computed_once
    def before(self) -> Lengths:
        """The lengths without the changes."""
        return lengths(self.timeline, self._times_before.ops if self.undisturbed else None)

    @computed_once
    def steps_before(self) -> pl.DataFrame:
        """The steps that are measured, without the changes."""
        return slowest_steps(self.timeline, self._times_before.ops if self.undisturbed else None)

    @computed_once
    def explained_before(self) -> GapCauses:
        """The gaps without the changes, with their causes."""
        if not self.undisturbed:
            return self.timeline.gap_causes
        return self._explain(self.timeline.events, self.recording.program, self._times_before)

    @computed_once
    def recording(self) -> Recorded:
        """The program as recorded, without the profiler's share where there are steps."""
        recording = recorded(self.timeline)
        if not self.undisturbed:
            return recording
        quiet = undisturbed(recording.program, self.timeline, self._feed, self._step_ns_of)
        return replace(recording, program=quiet)

    @computed_once
    def _feed(self) -> PlainFeed | None:
        """How batches hold up plain steps."""
        steps, ops = slowest_steps(self.timeline), self.timeline.events.ops
        here = ops.filter(pl.col("device_no") == steps["device_no"][0])
        busy_ns = busy_of(here).between(steps["start_ns"], steps["end_ns"])
        recorded_ns = lengths(self.timeline).step_ns or 0
        return plain_feed(self.timeline.options, recorded_ns, int(busy_ns.sum()) // len(steps))

    @computed_once
    def undisturbed(self) -> bool:
        """Whether the profiler's share is taken out: that of steps, where there are some."""
        return not slowest_steps(self.timeline).is_empty()

    def _step_ns_of(self, program: Program) -> int:
        return lengths(self.timeline, replay(program).ops).step_ns or 0

    @computed_once
    def _times_before(self) -> Times:
        return replay(self.recording.program)

    @computed_once
    def program(self) -> Program:
        """The program with the changes."""
        return changed(Baseline.as_recorded(self.timeline, self.recording), self.changes)

    @computed_once
    def times(self) -> Times:
        """When everything happens in the replay."""
        return replay(self.program)

    @computed_once
    def on_ranks(self) -> OnRanks | None:
        """The bounds of a step on more ranks: with the most and the least that recording costs, the
        least and the most delay of work beside collectives, and as much as steps and hosts differ
        from process to process. None where no step is known, or there are no more ranks."""
        collectives = self.changes.collectives
        if collectives is None or not self.undisturbed:
            return None
        quick, slow = self._extreme_programs()
        quick, slow = (
            with_faster_host(quick, 1 / HOSTS_DIFFER),
            with_faster_host(slow, HOSTS_DIFFER),
        )
        low_ns, high_ns = self._step_with(quick, delay=0.0), self._step_with(slow, delay=1.0)
        alone_ns = map(self._step_ns_of, (quick, slow))
        ranks = collectives.curve.ranks
        speeds = [
            ranks * one / (many or 1) for one, many in zip(alone_ns, (low_ns, high_ns), strict=True)
        ]
        return OnRanks(
            ranks=ranks,
            step_low_ns=round((1 - STEPS_DIFFER) * low_ns),
            step_high_ns=round((1 + STEPS_DIFFER) * high_ns),
            speed_low=min(speeds),
            speed_high=max(speeds),
            sent=self._sent(collectives),
        )

    def _extreme_programs(self) -> tuple[Program, Program]:
        """The program without the most and without the least that recording costs; the same one
        twice where a plain step is known."""
        if self.timeline.options.unrecorded_step_ns is not None:
            return self.recording.program, self.recording.program
        program = recorded(self.timeline).program
        return extremes(program, self.timeline, self._step_ns_of)

    def _step_with(self, program: Program, *, delay: float) -> int:
        """How long a step of a program takes with the changes, and collectives that delay others
        so much."""
        collectives = self.changes.collectives
        bound = None if collectives is None else replace(collectives, delay=delay)
        changes = replace(self.changes, collectives=bound)
        names = Names(timeline=self.timeline, recorded=self.recording)
        return self._step_ns_of(changed(Baseline(names=names, program=program), changes))

    def _sent(self, collectives: Collectives) -> tuple[Sent, ...]:
        """What a step sends, in the mean of the steps that are measured."""
        events = self.timeline.events
        stated = stated_collectives(events, collectives.curve)
        steps = slowest_steps(self.timeline)
        begun = stated.hstack(events.ops.select("device_no", "start_ns")[stated["op"]])
        sent = (
            _starting_in(steps, begun)
            .group_by("operation", "bytes")
            .len()
            .sort("operation", "bytes")
        )
        counts = ((name, size, count / len(steps)) for name, size, count in sent.rows())
        at = collectives.curve.at
        return tuple(
            Sent(name, size, count, count * at(name, size).gpu_ns) for name, size, count in counts
        )

    @computed_once
    def explained(self) -> GapCauses:
        """The gaps that the replay leaves, with their causes."""
        events = self.timeline.events
        if self.changes.no_profiler:
            events = replace(events, overhead=events.overhead.clear())
        return self._explain(events, self.program, self.times)

    def _explain(self, events: Events, program: Program, times: Times) -> GapCauses:
        """The gaps of a replay, with their causes."""
        events = retimed(events, self.recording, program, times)
        gap_ns = self.timeline.options.framework_gap_ns
        gaps = find_gaps(events, self.timeline.lacking_launches)
        return find_causes(events, gaps, framework_gap_ns=gap_ns).causes


def lengths_after(timeline: Timeline, recording: Recorded, changes: Changes) -> Lengths:
    """The lengths after changes alone, for those who value many changes of one trace.

    Args:
        timeline: the trace.
        recording: of `recorded`, which serves for any changes.
        changes: what is different.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    baseline = Baseline.as_recorded(timeline, recording)
    return lengths(timeline, replay(changed(baseline, changes)).ops)


def _by_cause(explained: GapCauses) -> dict[str, int]:
    sums = explained.gaps.select(f"{cause}_ns" for cause in CAUSES).sum().row(0)
    return dict(zip(CAUSES, sums, strict=True))


def idle_of_steps(steps: pl.DataFrame, explained: GapCauses) -> dict[str, int] | None:
    """Idle time by cause of a step, in the mean; None without steps.

    Args:
        steps: `device_no`, `start_ns`, `end_ns` of steps on one device.
        explained: all gaps with their causes.
    """
    if steps.is_empty():
        return None
    inside = _starting_in(steps, explained.gaps)
    sums = inside.select(f"{cause}_ns" for cause in CAUSES).sum().row(0)
    return {cause: round(ns / len(steps)) for cause, ns in zip(CAUSES, sums, strict=True)}


def _starting_in(steps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, of `device_no` and `start_ns`, that start in steps on one device."""
    step = steps.select("device_no", "start_ns", step_end_ns="end_ns").sort("start_ns")
    of_device = rows.filter(pl.col("device_no") == step["device_no"][0]).sort("start_ns")
    inside = of_device.join_asof(step.drop("device_no"), on="start_ns")
    return inside.filter(pl.col("start_ns") < pl.col("step_end_ns"))


def _limits(timeline: Timeline, recording: Recorded, changes: Changes) -> Iterator[Note]:
    """What makes the replay of this report less certain."""
    if changes.no_gil and not has_gil(timeline.trace):
        yield Note(
            NoteKind.LOCK_NOT_RECORDED,
            "nobody recorded who waits for Python's lock, so no such wait is taken away;"
            " nsysflow profile --gil records it",
        )
    if recording.missing:
        yield Note(
            NoteKind.EVENTS_NOT_RECORDED,
            f"{recording.missing:,} stream waits cannot be matched to events; what they wait for in"
            " the replay is a guess",
        )
    launching = recording.program.calls[recording.program.ops["node"].drop_nulls().unique()]
    competing = launching.group_by("process_no").agg(pl.col("team").n_unique())["team"].max()
    if isinstance(competing, int) and competing > 1:
        yield Note(
            NoteKind.SEVERAL_THREADS,
            "several threads launch work side by side; that they compete for the GPU in another"
            " order after a change is not replayed",
        )
    if changes.collectives is not None:
        yield Note(
            NoteKind.OTHER_RANKS,
            "each rank is taken to do what this one does; that they wait for a slower one is not"
            " replayed",
        )
    elif (timeline.events.ops["part"] == "comm").any():
        yield Note(
            NoteKind.OTHER_RANKS,
            "communication kernels keep their length; that other ranks come sooner or later is not"
            " replayed",
        )
