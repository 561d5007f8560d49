"""What a change saves: the judged steps replayed with it (spec §14, §16)."""

from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.intervals import last_at_or_before
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.replay.apply import Baseline, Names, changed
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.disturbance import (
    FASTEST_HOST,
    PlainFeed,
    RecordingCost,
    Shares,
    behind_backtraces,
    cost_between,
    cost_shown_by,
    extreme_costs,
    fed_as_plain,
    have_backtraces,
    plain_feed,
    recorded_pct,
    shares_of,
    with_batches_ready,
    with_faster_host,
    without_cost,
)
from nsysflow.analysis.replay.replay import (
    Program,
    Recorded,
    busy_of,
    part_of,
    recorded,
    replay,
)
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.errors import UnknownName

MOST_OPS: Final = 40_000
"""A replay of so many operations takes 0.05 s. Of a longer report the middle steps are replayed."""

REPLAYED_OPS: Final = 2_000_000
"""So many operations are replayed in all, which takes 3 s. That leaves findings unreplayed only
where no steps are judged, or single ones are very long."""

HOST_BOUND: Final = 0.95
"""Does a step show how fast its host is? It does if a host twice as fast would make it shorter than
this share of it. A step of 14.1 ms did not: it waited for its GPU while the host took 13.4 ms."""

FEWEST_STEPS: Final = 2
"""A mean of fewer steps says little."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is judged, in a replay, per step.

    Attributes:
        step_ns: how long it takes.
        busy_ns: how long its GPU runs something meanwhile: no change of the host saves that.
    """

    step_ns: int
    busy_ns: int


WIDE: Final = 1.1
"""An estimate of a plain step is wide if its ends are this far apart."""


@dataclass(frozen=True, kw_only=True)
class PlainEstimate:
    """A step without the profiler, where none was timed.

    Attributes:
        low_ns: it takes as much at least, where recording costs most.
        high_ns: it takes as much at most, where recording costs least.
        calibrated: whether the costs are those of earlier recordings on this machine.
    """

    low_ns: int
    high_ns: int
    calibrated: bool

    @property
    def is_wide(self) -> bool:
        """Whether it says little of what a change saves."""
        return self.high_ns > WIDE * self.low_ns

    @property
    def source(self) -> Literal["machine", "usual"]:
        """Whose cost of recording it is by."""
        return "machine" if self.calibrated else "usual"


class Replays:
    """A report's judged steps, to be replayed with changes. If none are judged, its judged
    windows: all of the trace is replayed then, and only what lies in them is measured."""

    def __init__(
        self,
        subject: JudgedReport,
        cost: RecordingCost | None = None,
        like: "Replays | None" = None,
    ) -> None:
        """Take the report, and what recording costs; None for what it most likely does. Replays
        that are alike but for that have the same part and recording."""
        self.subject = subject
        self.cost = cost
        self._like = like
        self._measured: dict[tuple[Changes, bool], Measured | None] = {}

    @computed_once
    def measured(self) -> pl.DataFrame:
        """The steps that are replayed and measured: neighbours, of the process and device whose
        steps take longest; with `begun_ns` and `ended_ns` of their ranges."""
        if self._like is not None:
            return self._like.measured
        judged = self.subject.judged_steps
        length = (pl.col("end_ns") - pl.col("start_ns")).mean()
        means = judged.group_by("process", "device_no").agg(length.alias("ns"))
        slowest = means.sort("ns", "process", "device_no").tail(1)
        steps = judged.join(slowest, on=["process", "device_no"], how="semi").sort("step")
        ranges = self.subject.timeline.with_inferred.ranges
        return steps.with_columns(
            ranges["start_ns"][steps["range"]].alias("begun_ns"),
            ranges["end_ns"][steps["range"]].alias("ended_ns"),
        )

    @computed_once
    def part(self) -> Timeline:
        """What is replayed: the same as of replays like these."""
        return self._cut_out() if self._like is None else self._like.part

    def _cut_out(self) -> Timeline:
        """All of the report, or of a long one some steps and their neighbours."""
        timeline = self.subject.timeline
        if not self.subject.of_steps or len(timeline.events.ops) <= MOST_OPS:
            return timeline
        return self.around(middle_of(self.measured, len(timeline.events.ops), MOST_OPS))

    def around(self, chosen: pl.DataFrame) -> Timeline:
        """The part of the report with these neighbouring steps, rows of `measured`."""
        timeline = self.subject.timeline
        every = timeline.steps.join(chosen, on=["process", "device_no"], how="semi")
        begun = timeline.with_inferred.ranges["start_ns"][every["range"]].sort()
        first, last = chosen.select(pl.min("begun_ns"), last=pl.max("begun_ns")).row(0)
        # a step before them, so that they do not begin on an idle host, and one behind them
        before = begun.filter(begun < first).tail(1).to_list()
        behind = begun.filter(begun > last).head(2).to_list()
        path = timeline.step_paths.join(chosen, on="process", how="semi").row(0, named=True)
        return part_of(
            timeline,
            before[0] if before else first,
            behind[1] if len(behind) > 1 else timeline.events.last_ns + 1,
            step=path["joined"],
        )

    @computed_once
    def window_of_ops(self) -> pl.Series:
        """Of each operation the judged window in which it lies, on the GPU where the windows take
        longest; null elsewhere."""
        ops, windows = self.part.events.ops, self.subject.view.windows
        length = (pl.col("end_ns") - pl.col("start_ns")).sum()
        longest = windows.group_by("device_no").agg(length.alias("ns")).sort("ns", "device_no")
        windows = windows.join(longest.tail(1), on="device_no", how="semi").sort("start_ns")
        window = last_at_or_before(windows["start_ns"], ops["start_ns"])
        inside = (
            pl.col("device_no").is_in(windows["device_no"].implode())
            & (pl.col("end_ns") <= pl.lit(windows["end_ns"][window]))
            & (pl.col("end_ns") > pl.col("start_ns"))
        )
        return ops.select(pl.when(inside).then(pl.lit(window))).to_series().alias("window")

    @property
    def most(self) -> int:
        """How many replays are worth their time."""
        return max(2, REPLAYED_OPS // max(1, len(self.part.events.ops)))

    @computed_once
    def names(self) -> Names:
        """What changes of the part may name."""
        if self._like is not None:
            return self._like.names
        return Names(timeline=self.part, recorded=self.recording)

    @computed_once
    def baseline(self) -> Baseline:
        """What is changed: the part, where steps are judged without the profiler's share."""
        program = self.recording.program
        if self.subject.of_steps:
            program = self.without_cost(self.cost or self.likely_cost())
            if self.feed is not None:
                program = fed_as_plain(program, self.feed)
        return Baseline(names=self.names, program=program)

    def likely_cost(self) -> RecordingCost:
        """What recording costs: what a timed step shows, else the middle of what is usual."""
        options, steps = self.part.options, (self._step_without, self._own_step_without)
        return cost_shown_by(options, self.feed, *steps) or cost_between(self.shares)

    @computed_once
    def feed(self) -> PlainFeed | None:
        """How batches hold up plain steps; None where they do not, or that is not known."""
        recorded = self.as_recorded
        return plain_feed(self.part.options, recorded.step_ns, recorded.busy_ns)

    @computed_once
    def recording(self) -> Recorded:
        """The program of the part, as recorded."""
        return recorded(self.part) if self._like is None else self._like.recording

    @computed_once
    def before_ns(self) -> int:
        """A step without changes, in the part."""
        return self._before.step_ns

    @computed_once
    def _before(self) -> Measured:
        if not self.subject.of_steps:
            return self.as_recorded
        return self._measure(replay(self.baseline.program).ops)

    @computed_once
    def as_recorded(self) -> Measured:
        """A step of the part as it was recorded."""
        return self._measure(self.part.events.ops)

    @computed_once
    def step_ns(self) -> int:
        """The step that savings are of: the mean after start-up without the profiler's share; the
        plain one where that is known and shorter (spec §16.7)."""
        recorded_ns, plain_ns = self.subject.run_step_ns, self.part.options.unrecorded_step_ns
        if not self.subject.of_steps:
            return recorded_ns
        if plain_ns is None:
            return recorded_ns - max(0, self.as_recorded.step_ns - self.before_ns)
        least_ns = self.before_ns + self.subject.recurring_ns
        return min(recorded_ns, max(plain_ns, least_ns))

    @computed_once
    def idle_left(self) -> float:
        """The share of a recorded step's idle time that is left without the profiler. A saving of
        idle time that no replay values is scaled by it."""
        idle_ns, left_ns = (one.step_ns - one.busy_ns for one in (self.as_recorded, self._before))
        return min(1.0, left_ns / idle_ns) if idle_ns > 0 else 1.0

    @computed_once
    def plain_estimate(self) -> PlainEstimate | None:
        """How long a step takes without the profiler, by the usual cost of recording or by this
        machine's (spec §14.16). None where a step was timed, and where no steps are judged."""
        options = self.part.options
        if not self.subject.of_steps or options.unrecorded_step_ns is not None:
            return None
        short_ns, long_ns = (each.before_ns for each in self.extremes)
        high_ns = self.subject.run_step_ns - max(0, self.as_recorded.step_ns - long_ns)
        low_ns = min(high_ns, short_ns + self.subject.recurring_ns)
        return PlainEstimate(
            low_ns=low_ns, high_ns=high_ns, calibrated=options.recording_pct is not None
        )

    @computed_once
    def shares(self) -> Shares:
        """What share of the host's time recording takes, at least and at most (spec §14.16)."""
        return shares_of(self.subject.timeline, self._step_without)

    def _step_without(self, cost: RecordingCost) -> int:
        """How long a step takes without what recording costs."""
        return self._step_ns_of(self.without_cost(cost))

    def _own_step_without(self, cost: RecordingCost) -> int:
        """How long a step takes without what recording costs, and without waits for batches."""
        return self._step_ns_of(with_batches_ready(self.without_cost(cost)))

    @computed_once
    def extremes(self) -> tuple[Self, Self]:
        """The same replays where recording costs most, and where it costs least."""
        most, least = extreme_costs(self.shares)
        return self.at(most), self.at(least)

    def at(self, cost: RecordingCost) -> Self:
        """The same replays where recording costs so much."""
        return type(self)(self.subject, cost, self)

    def without_cost(self, cost: RecordingCost) -> Program:
        """The program without what recording costs."""
        return without_cost(self.recording.program, cost, traced=self._behind_backtraces)

    @computed_once
    def _behind_backtraces(self) -> pl.Series:
        """Of each call of the program, whether it comes after one with a backtrace."""
        if self._like is not None:
            return self._like._behind_backtraces
        return behind_backtraces(self.recording.program, self.part.events)

    @computed_once
    def recorded_pct(self) -> int | None:
        """What share of the host's time recording took, where a step was timed without it and shows
        that (spec §14.17)."""
        plain_ns = self.part.options.unrecorded_step_ns
        traced = have_backtraces(self.part.events.calls)
        if plain_ns is None or self.feed or traced or not self.subject.of_steps:
            return None
        return recorded_pct(plain_ns, self._step_without)

    @property
    def longer_ns(self) -> int:
        """How much longer than a typical one the step is that savings are of."""
        return max(0, self.step_ns - self.before_ns)

    @computed_once
    def host_is_known(self) -> bool:
        """Whether the replayed host is as fast as without the profiler: only a plain step that
        waits for its host shows how fast that is."""
        plain_ns = self.part.options.unrecorded_step_ns
        if plain_ns is None or self.before_ns > plain_ns:
            return False
        if self.as_recorded.step_ns <= self.before_ns:
            return False
        return self._step_of_fastest_host_ns() <= HOST_BOUND * self.before_ns

    def _step_of_fastest_host_ns(self) -> int:
        """A step with a fast host."""
        return self._step_ns_of(self.with_fastest_host.program)

    def saving_ns(self, changes: Changes) -> int | None:
        """What a step takes less with the changes; negative where it takes more. None where only a
        part of the report is replayed, and something that changes is not in it.

        Raises:
            UnknownName: a phase, source line, kernel or call is not in the report.
        """
        after = self._after(changes, self.baseline)
        return None if after is None else self.before_ns - after.step_ns

    def busy_ns(self, changes: Changes) -> int:
        """How long the GPU runs something in a step with the changes, which no other change of the
        host saves; without them where they are not in the replayed part.

        Raises:
            UnknownName: a phase, source line, kernel or call is not in the report.
        """
        return (self._after(changes, self.baseline) or self._before).busy_ns

    def most_saved_ns(self, changes: Changes, made: Changes) -> int | None:
        """What a step takes less at most with the changes once others are made. Where the host's
        speed without the profiler is not known, it may take `FASTEST_HOST` of what was recorded: no
        slow host then hides what the GPU saves."""
        baseline = self.baseline if self.host_is_known else self.with_fastest_host
        before = self._after(made, baseline)
        after = self._after(Changes.together([made, changes]), baseline)
        return None if before is None or after is None else before.step_ns - after.step_ns

    @computed_once
    def with_fastest_host(self) -> Baseline:
        """The part with a host that takes `FASTEST_HOST` of its time. Where no unrecorded step is
        known, that is of the recorded time."""
        known = self.part.options.unrecorded_step_ns is not None
        program = self.baseline.program if known else self.recording.program
        return Baseline(names=self.names, program=with_faster_host(program, FASTEST_HOST))

    def _after(self, changes: Changes, baseline: Baseline) -> Measured | None:
        """A step with changes."""
        key = (changes, baseline is self.baseline)
        if key not in self._measured:
            self._measured[key] = self._replayed(changes, baseline)
        return self._measured[key]

    def _replayed(self, changes: Changes, baseline: Baseline) -> Measured | None:
        if changes == Changes() and baseline is self.baseline:
            return self._before
        try:
            program = changed(baseline, self._in_part(changes))
        except UnknownName:
            if self.part is self.subject.timeline:
                raise
            return None
        return self._measure(replay(program).ops)

    def _in_part(self, changes: Changes) -> Changes:
        """The changes without kernels that the replayed steps do not have."""
        if self.part is self.subject.timeline:
            return changes
        return replace(
            changes, scaled=tuple(scaled for scaled in changes.scaled if scaled[0] in self.kernels)
        )

    @computed_once
    def kernels(self) -> frozenset[str]:
        """What the kernels and copies of the part are called, short and full."""
        ops = self.part.events.ops
        spelled = (ops[name].unique().cast(pl.String) for name in ("name", "short_name"))
        return frozenset(name for names in spelled for name in names)

    def _step_ns_of(self, program: Program) -> int:
        """The mean of the measured steps of a program."""
        return self._measure(replay(program).ops).step_ns

    def _measure(self, ops: pl.DataFrame) -> Measured:
        """The mean of the measured steps with operations at these times; else the windows."""
        if not self.subject.of_steps:
            return self._measure_windows(ops)
        key = ["process", "device", "begun_ns"]
        steps = self.part.steps_with(ops).join(self.measured, on=key, how="semi")
        steps = steps.filter(~pl.col("cut"))
        if steps.is_empty():
            return Measured(step_ns=0, busy_ns=0)
        here = self.part.events.ops["device_no"] == steps["device_no"][0]
        busy_ns = busy_of(ops.filter(here)).between(steps["start_ns"], steps["end_ns"])
        step_ns = steps["end_ns"] - steps["start_ns"]
        return Measured(
            step_ns=round(step_ns.sum() / len(steps)), busy_ns=int(busy_ns.sum()) // len(steps)
        )

    def _measure_windows(self, ops: pl.DataFrame) -> Measured:
        """From the first to the last operation of each judged window, together."""
        rows = ops.select("start_ns", "end_ns", self.window_of_ops).drop_nulls("window")
        ends = rows.group_by("window").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        busy = busy_of(rows).intervals
        return Measured(
            step_ns=int((ends["end_ns"] - ends["start_ns"]).sum()),
            busy_ns=int((busy["end"] - busy["start"]).sum()),
        )


def middle_of(steps: pl.DataFrame, ops: int, most_ops: int) -> pl.DataFrame:
    """Neighbouring steps from the middle, as many as have `most_ops` of the `ops`."""
    count = max(FEWEST_STEPS, most_ops * len(steps) // ops)
    first = max(0, (len(steps) - count) // 2)
    return steps.slice(first, count)
