"""What a change saves a run: all its ranks replayed together (spec §14.18, §16.15)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rank_replays import RANK, RankReplays
from nsysflow.analysis.findings.saving import (
    MOST_OPS,
    REPLAYED_OPS,
    Measured,
    Replays,
    middle_of,
)
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.ranks.joint_replay import MEETINGS, JointReplay, RunChange, outlines_of
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.apply import Baseline, changed
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.disturbance import RecordingCost, Shares
from nsysflow.analysis.replay.replay import Program
from nsysflow.analysis.selection.timeline import Timeline


class RunReplays(Replays):
    """The judged steps of the ranks of a run, to be replayed together with changes. A change is
    made on every rank that has what it names; the step is that of the slowest rank.

    Attributes:
        each: of the reports whose programs are known.
        ranks: of the whole run.
    """

    def __init__(
        self,
        subjects: Sequence[JudgedReport],
        ranks: Ranks,
        each: Sequence[RankReplays],
        shares: Shares | None = None,
    ) -> None:
        """Take the reports of a run, and what share of the host's time recording takes; None if
        that is not known yet."""
        super().__init__(max(subjects, key=lambda subject: subject.run_step_ns))
        self.subjects = subjects
        self.each = tuple(each)
        self.ranks = ranks
        self._shares = shares

    def at(self, cost: RecordingCost) -> Self:
        """The same replays where recording costs so much on each rank."""
        return type(self)(self.subjects, self.ranks, [one.at(cost) for one in self.each])

    @classmethod
    def of(cls, subjects: Sequence[JudgedReport], ranks: Ranks) -> Self | None:
        """Of the reports of a run; None where these have no collectives together in steps."""
        if not ranks.met or not all(subject.of_steps for subject in subjects):
            return None
        kept = [subject.judged_steps[["step", *RANK]] for subject in subjects]
        numbers = [
            {*of["step"]} for frame in kept for of in frame.partition_by(RANK, include_key=False)
        ]
        common = pl.DataFrame({"step": sorted(set.intersection(*numbers))}, {"step": pl.Int64})
        if common.is_empty():
            return None
        ops = max(len(subject.timeline.events.ops) for subject in subjects)
        most = MOST_OPS // len(subjects)
        chosen = common if ops <= most else middle_of(common, ops, most)
        each = [RankReplays(one, chosen["step"], whole=ops <= most) for one in subjects]
        run = cls(subjects, ranks, each)
        if run._meetings.is_empty():
            return None
        cost = run.likely_cost()
        known = run.part.options.unrecorded_step_ns is not None
        return cls(subjects, ranks, [one.at(cost) for one in each], None if known else run.shares)

    @computed_once
    def shares(self) -> Shares:
        return self._shares or super().shares

    def _step_without(self, cost: RecordingCost) -> int:
        programs = [one.without_cost(cost) for one in self.each]
        return self.step_of(programs, RunChange(compute={})).step_ns

    @property
    def feed(self) -> None:
        """None, as for each rank."""

    @computed_once
    def part(self) -> Timeline:
        """What is replayed of the slowest report."""
        return self._slowest.part

    @property
    def added_ns(self) -> int:
        """How much longer recording makes a step; at most, where that is estimated."""
        estimate = self.plain_estimate
        plain_ns = estimate.low_ns if estimate is not None else self.step_ns
        return max(0, self.subject.run_step_ns - plain_ns)

    @property
    def steps(self) -> int:
        """How many steps are measured."""
        return self._slowest.chosen

    @property
    def most(self) -> int:
        """How many replays are worth their time."""
        return max(2, REPLAYED_OPS // max(1, sum(len(one.ops) for one in self.each)))

    @property
    def _slowest(self) -> RankReplays:
        return next(one for one in self.each if one.subject is self.subject)

    @computed_once
    def baseline(self) -> Baseline:
        """That of the slowest report; each report has its own."""
        return self._slowest.baseline

    @computed_once
    def with_fastest_host(self) -> Baseline:
        """The same with a fast host."""
        return self._slowest.with_fastest_host

    @computed_once
    def _programs_of(self) -> dict[int, int]:
        """By the number of a report in the run, its place in `each`."""
        names = [digest.report for digest in self.ranks.matched.digests]
        return {names.index(one.subject.report): at for at, one in enumerate(self.each)}

    @computed_once
    def _kernels(self) -> pl.DataFrame:
        """The kernels of collectives of all ranks, with the `program` of their report."""
        rows = self.ranks.matched.rows
        of_report = pl.col("report_no").replace_strict(
            self._programs_of, default=None, return_dtype=pl.Int64
        )
        return rows.with_columns(of_report.alias("program"))

    @computed_once
    def _meetings(self) -> pl.DataFrame:
        """MEETINGS of the replayed parts: of collectives that are in the parts of all ranks whose
        programs are known, two or more of which there are in the run."""
        key = [*RANK, "stream", "start_ns", "end_ns"]
        rows = self._kernels.drop_nulls("program").with_columns(
            start_ns="own_start_ns", end_ns="own_end_ns"
        )
        parts = [
            rows.filter(pl.col("program") == at).join(one.ops, on=key, nulls_equal=True)
            for at, one in enumerate(self.each)
        ]
        met = pl.concat(parts).unique(["collective", "rank"], keep="first")
        wanted = rows.group_by("collective").agg(pl.len().alias("wanted"))
        met = met.join(wanted, on="collective")
        complete = pl.len().over("collective") == pl.col("wanted")
        return met.filter(complete).select([*MEETINGS]).match_to_schema(MEETINGS)

    @computed_once
    def _outlines(self) -> pl.DataFrame:
        """OUTLINES of the ranks without a program."""
        met = self._meetings[["collective"]].unique()
        rows = self._kernels.filter(pl.col("program").is_null())
        return outlines_of(rows.join(met, on="collective", how="semi"))

    @computed_once
    def joint(self) -> JointReplay:
        """The recorded programs, and where they meet."""
        ahead = (pl.col("own_start_ns") - pl.col("start_ns")).first()
        clocks = dict(self._kernels.group_by("program").agg(ahead).iter_rows())
        return JointReplay(
            [one.recording.program for one in self.each],
            [clocks.get(at, 0) for at in range(len(self.each))],
            self._meetings,
            self._outlines,
        )

    @computed_once
    def _before(self) -> Measured:
        """A step without changes."""
        return self._replayed(Changes(), self.baseline) or Measured(step_ns=0, busy_ns=0)

    @computed_once
    def as_recorded(self) -> Measured:
        """A step as it was recorded."""
        return self._longest([one.part.events.ops for one in self.each], RunChange(compute={}))

    def _step_of_fastest_host_ns(self) -> int:
        """A step of all ranks with a fast host."""
        programs = [one.with_fastest_host.program for one in self.each]
        return self.step_of(programs, RunChange(compute={})).step_ns

    def _replayed(self, changes: Changes, baseline: Baseline) -> Measured | None:
        made = self._changed(changes, baseline)
        return None if made is None else self.step_of(*made)

    def _changed(
        self, changes: Changes, baseline: Baseline
    ) -> tuple[list[Program], RunChange] | None:
        """The programs of the reports with changes, and what else is different; None where no
        report has what they name."""
        programs, known = [], False
        for one in self.each:
            own = one.baseline if baseline is self.baseline else one.with_fastest_host
            mine = one.known(changes)
            known |= mine != Changes() or changes == Changes()
            programs.append(changed(own, mine))
        if not known:
            return None
        shorter = self._compute_left(programs)
        if changes.even_ranks:
            programs = [self._evened(at, program) for at, program in enumerate(programs)]
        change = RunChange(
            unawaited=frozenset(changes.unawaited),
            compute={
                rank: shorter * (factor if changes.even_ranks else 1)
                for rank, factor in self._evening.items()
            },
        )
        return programs, change

    def idle_by_cause(self, changes: Changes) -> dict[str, int] | None:
        """Idle time by cause in a step of the rank that is the slowest with the changes: the one
        whose step `step_of` measures. None where no report has what they name."""
        made = self._changed(changes, self.baseline)
        if made is None:
            return None
        programs, change = made
        times = self.joint.replay(programs, change)
        steps = self._awaited([of.ops for of in times], change).sort(
            "step_ns", "rank", descending=[True, False]
        )
        if steps.is_empty():
            return None
        slowest = steps.row(0, named=True)
        at = self._programs_of[slowest["report_no"]]
        return self.each[at].idle_at(
            programs[at], times[at], slowest, profiler=not changes.no_profiler
        )

    def step_of(self, programs: Sequence[Program], change: RunChange) -> Measured:
        """The mean step of the slowest rank, of those that are awaited; and the longest that one of
        them computes or copies in it.

        Args:
            programs: of the reports in `each`.
            change: what is different beside them.
        """
        times = self.joint.replay(programs, change)
        return self._longest([of.ops for of in times], change)

    def _longest(self, ops_of: Sequence[pl.DataFrame], change: RunChange) -> Measured:
        """The same with the operations of the reports at these times."""
        steps = self._awaited(ops_of, change)
        longest = steps.select(pl.col("step_ns", "busy_ns").max().round().cast(pl.Int64))
        step_ns, busy_ns = longest.row(0) if len(steps) else (0, 0)
        return Measured(step_ns=step_ns or 0, busy_ns=busy_ns or 0)

    def _awaited(self, ops_of: Sequence[pl.DataFrame], change: RunChange) -> pl.DataFrame:
        """The mean steps of the ranks that are awaited, or of all if none is: as `measured_at`,
        with `report_no` and `rank`."""
        steps = pl.concat(
            [
                one.measured_at(ops).with_columns(report_no=pl.lit(number, pl.Int64))
                for number, one, ops in zip(self._programs_of, self.each, ops_of, strict=True)
            ]
        )
        ranks = self.ranks.matched.ranks[["rank", "report_no", *RANK]]
        steps = steps.join(ranks, on=["report_no", *RANK], nulls_equal=True, how="left")
        awaited = steps.filter(~pl.col("rank").is_in([*change.unawaited]).fill_null(value=False))
        steps = steps if awaited.is_empty() else awaited
        # A rank that begins earlier than before waits for the one that does not: no step is longer.
        waits_ns = pl.col("earlier_ns") - pl.col("earlier_ns").min()
        return steps.with_columns(step_ns=pl.col("step_ns") - waits_ns / pl.col("steps"))

    def _compute_left(self, programs: Sequence[Program]) -> float:
        """The share of their compute that the programs have left."""
        now_ns = was_ns = 0
        for one, program in zip(self.each, programs, strict=True):
            computes = one.ops["part"] == "compute"
            was = one.baseline.program.ops["length_ns"]
            now_ns += int(program.ops["length_ns"].filter(computes).sum())
            was_ns += int(was.filter(computes).sum())
        return now_ns / was_ns if was_ns else 1.0

    @computed_once
    def _evening(self) -> dict[int, float]:
        """By rank the factor that makes its compute the mean of all."""
        return {
            rank: mean / own if own else 1.0
            for rank, own, mean in self.ranks.computing.select(
                "rank", "compute_ns", pl.col("compute_ns").mean().alias("mean")
            ).iter_rows()
        }

    def _evened(self, at: int, program: Program) -> Program:
        """A program whose ranks compute as long as all do in the mean."""
        ranks = self.ranks.matched.ranks.filter(
            pl.col("report_no") == [*self._programs_of][at]
        ).select("rank", *RANK)
        of_rank = self.each[at].ops.join(
            ranks, on=RANK, how="left", nulls_equal=True, maintain_order="left"
        )
        factor = pl.col("rank").replace_strict(self._evening, default=1.0, return_dtype=pl.Float64)
        computes = pl.col("part") == "compute"
        factors = of_rank.select(pl.when(computes).then(factor).otherwise(1.0)).to_series()
        length = (pl.col("length_ns") * factors).round().cast(pl.Int64).alias("length_ns")
        return replace(program, ops=program.ops.with_columns(length))


@dataclass(frozen=True, kw_only=True)
class RunWhatIf:
    """A run before and after changes on all its ranks.

    Attributes:
        before_ns: the mean step of the slowest rank without the changes. Of long reports, some
            steps are replayed.
        after_ns: the same with them.
        steps: how many steps that is the mean of.
        ranks: how many ranks the run has.
        estimated: whether the profiler's share is taken out of both by estimate, as no plain step
            is known.
        idle_before: idle time by cause in that step without the changes.
        idle_after: the same with them, of the rank that is the slowest then.
    """

    before_ns: int
    after_ns: int
    steps: int
    ranks: int
    estimated: bool
    idle_before: dict[str, int]
    idle_after: dict[str, int]


def whatif_of_run(
    subjects: Sequence[JudgedReport], ranks: Ranks, changes: Changes
) -> RunWhatIf | None:
    """Replay the ranks of a run together with changes; None where they cannot be.

    Raises:
        UnknownName: no rank has what is to be changed.
    """
    run = RunReplays.of(subjects, ranks)
    if run is None:
        return None
    saved_ns = run.saving_ns(changes)
    if saved_ns is None:
        changed(run.baseline, changes)  # says what is missing
    idle_before = run.idle_by_cause(Changes()) or {}
    return RunWhatIf(
        before_ns=run.before_ns,
        after_ns=run.before_ns - (saved_ns or 0),
        steps=run.steps,
        ranks=len(ranks.matched.ranks),
        estimated=run.part.options.unrecorded_step_ns is None,
        idle_before=idle_before,
        idle_after=run.idle_by_cause(changes) or idle_before,
    )
