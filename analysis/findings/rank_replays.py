"""The judged steps of one report of a run, replayed with those of the others (spec §16.15)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Self

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.idle.gaps import find_gaps
from nsysflow.analysis.idle.run_ahead import find_causes
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.disturbance import RecordingCost
from nsysflow.analysis.replay.replay import Program, Times, busy_of
from nsysflow.analysis.replay.whatif import idle_of_steps, retimed
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.errors import UnknownName

RANK: Final = ["process", "device"]
"""What a rank is, in one report."""

_FIRST_NS: Final = {"first_ns": pl.col("start_ns").min()}


class RankReplays(Replays):
    """The judged steps of one report of a run: the ones that are replayed of all reports.

    Attributes:
        chosen: how many they are.
    """

    def __init__(
        self,
        subject: JudgedReport,
        chosen: pl.Series,
        *,
        whole: bool,
        cost: RecordingCost | None = None,
        like: "RankReplays | None" = None,
    ) -> None:
        """Take the report, the numbers of the steps, whether all of the report is replayed, and
        what recording costs."""
        super().__init__(subject, cost, like)
        self.chosen = len(chosen)
        self._numbers = chosen
        self._chosen = chosen.implode()
        self._whole = whole

    def at(self, cost: RecordingCost) -> Self:
        """The same replays where recording costs so much."""
        return type(self)(self.subject, self._numbers, whole=self._whole, cost=cost, like=self)

    def _cut_out(self) -> Timeline:
        """All of the report, or these steps and their neighbours."""
        if self._whole:
            return self.subject.timeline
        return self.around(self.measured.filter(pl.col("step").is_in(self._chosen)))

    @property
    def feed(self) -> None:
        """None: which rank's batches hold up the others is not known."""

    @computed_once
    def _kept(self) -> pl.DataFrame:
        """The steps that are measured, of all ranks in the report."""
        steps = self.subject.judged_steps
        begun = self.subject.timeline.with_inferred.ranges["start_ns"][steps["range"]]
        kept = steps.with_columns(begun.alias("begun_ns"))
        return kept.filter(pl.col("step").is_in(self._chosen))

    def measured_at(self, ops: pl.DataFrame) -> pl.DataFrame:
        """`process`, `device`, `step_ns`, `busy_ns`, `steps`, `earlier_ns`: the means of the
        measured steps of each rank with operations at these times, and how long its GPU computes
        or copies in one; how many they are, and how much earlier than recorded the first begins."""
        steps = self._steps_at(ops)
        devices, own = self.part.events.ops["device_no"], self.ops["part"] != "comm"
        ranks = [
            rows.with_columns(
                busy_of(ops.filter(own & (devices == device)))
                .between(rows["start_ns"], rows["end_ns"])
                .alias("busy_ns")
            )
            for (device,), rows in steps.partition_by("device_no", as_dict=True).items()
        ]
        length = (pl.col("end_ns") - pl.col("start_ns")).mean()
        every = pl.concat(ranks or [steps.with_columns(pl.lit(0, pl.Int64).alias("busy_ns"))])
        means = (
            every.group_by(RANK)
            .agg(length.alias("step_ns"), pl.col("busy_ns").mean(), steps=pl.len(), **_FIRST_NS)
            .join(self._recorded_first, on=RANK, how="left", nulls_equal=True)
            .with_columns(earlier_ns=pl.col("recorded_ns") - pl.col("first_ns"))
        )
        return means.drop("recorded_ns", "first_ns").with_columns(
            os_pid(pl.col("process")).alias("process")
        )

    @computed_once
    def _recorded_first(self) -> pl.DataFrame:
        """`process`, `device`, `recorded_ns`: when each rank begins its first measured step."""
        steps = self._steps_at(self.part.events.ops)
        first = steps.group_by(RANK).agg(**_FIRST_NS)
        return first.rename({"first_ns": "recorded_ns"})

    def _steps_at(self, ops: pl.DataFrame) -> pl.DataFrame:
        """The measured steps of all ranks in the report with operations at these times."""
        key = [*RANK, "begun_ns"]
        steps = self.part.steps_with(ops).join(self._kept, on=key, how="semi")
        return steps.filter(~pl.col("cut"))

    def idle_at(
        self, program: Program, times: Times, rank: Mapping[str, Any], *, profiler: bool
    ) -> dict[str, int] | None:
        """Idle time by cause in a measured step of a rank, in the mean; None without steps.

        Args:
            program: what was replayed of the report.
            times: its replay.
            rank: `process` (the system's id) and `device`.
            profiler: whether the profiler's own work is still there.
        """
        events = self.part.events
        if not profiler:
            events = replace(events, overhead=events.overhead.clear())
        events = retimed(events, self.recording, program, times)
        gaps = find_gaps(events, self.part.lacking_launches)
        reach_ns = self.part.options.framework_gap_ns
        explained = find_causes(events, gaps, framework_gap_ns=reach_ns).causes
        mine = os_pid(pl.col("process")).eq_missing(rank["process"]) & (
            pl.col("device") == rank["device"]
        )
        return idle_of_steps(self._steps_at(times.ops).filter(mine), explained)

    @computed_once
    def ops(self) -> pl.DataFrame:
        """The operations that are replayed: `process` (the system's id), `device`, `stream`,
        `start_ns`, `end_ns`, `part`, `op`."""
        ops = self.part.events.ops
        return ops.select(
            os_pid(pl.col("process")).alias("process"),
            *("device", "stream", "start_ns", "end_ns", "part"),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("op"),
        )

    def known(self, changes: Changes) -> Changes:
        """What of the changes this report has a place for."""
        names, here = self.names, self.kernels
        return replace(
            changes,
            removed=tuple(one for one in changes.removed if _is_there(names.stalls, one)),
            removed_calls=changes.removed_calls * _is_there(names.calls, changes.removed_calls),
            graphs=tuple(one for one in changes.graphs if _is_there(names.instances, one)),
            scaled=tuple(one for one in changes.scaled if one[0] in here),
            faster_host=tuple(
                one for one in changes.faster_host if _is_there(names.time_in, one[0])
            ),
        )


def _is_there(find: Callable[[Any], object], what: object) -> bool:
    try:
        find(what)
    except UnknownName:
        return False
    return True
