"""A timeline with another range as its step: what does not depend on steps is shared."""

from dataclasses import replace
from typing import Annotated

import polars as pl

from nsysflow.analysis.events.activity import (
    BlockingCalls,
    BusyTime,
    Copies,
    Launches,
)
from nsysflow.analysis.events.graphs import CapturedNodes, NodeOrigins, WrongTimes
from nsysflow.analysis.events.lost_launches import LostLaunches
from nsysflow.analysis.events.producers import Producers
from nsysflow.analysis.events.waits import WaitPieces
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.idle.gaps import BareGaps
from nsysflow.analysis.idle.places import IdleParts
from nsysflow.analysis.idle.run_ahead import ExplainedGaps
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.phases.stacks import OpenRanges
from nsysflow.analysis.phases.work import Work
from nsysflow.analysis.selection.timeline import Communication, Timeline
from nsysflow.analysis.steps.kinds import STEPS


class LoopTimeline(Timeline):
    """A timeline with another range as its step. What does not depend on steps is the other's, so
    that it takes little beside it.

    Attributes:
        trace: as of the other.
        options: those of the other, with this range as `step`.
    """

    def __init__(
        self, whole: Timeline, step: str, steps: Annotated[pl.DataFrame | None, STEPS] = None
    ) -> None:
        """Take a timeline and the range that is a step; `steps` if they are known."""
        super().__init__(
            whole.trace,
            replace(whole.options, step=step, unrecorded_step_ns=None),
            events=whole.events,
            steps=steps,
            lacking=whole.lacking_launches,
        )
        self._whole = whole
        self._step = step

    @computed_once
    def busy(self) -> BusyTime:
        return self._whole.busy

    @computed_once
    def bare_gaps(self) -> BareGaps:
        return self._whole.bare_gaps

    @computed_once
    def _explained_gaps(self) -> ExplainedGaps:
        return self._whole._explained_gaps

    @computed_once
    def open_ranges(self) -> OpenRanges:
        return self._whole.open_ranges

    @computed_once
    def attribution(self) -> Attribution:
        return self._whole.attribution

    @computed_once
    def node_origins(self) -> NodeOrigins:
        return self._whole.node_origins

    @computed_once
    def captured_nodes(self) -> CapturedNodes:
        return self._whole.captured_nodes

    @computed_once
    def ops(self) -> PlacedOps:
        return self._whole.ops

    @computed_once
    def idle_parts(self) -> dict[str, IdleParts]:
        return self._whole.idle_parts

    @computed_once
    def work(self) -> Work:
        return self._whole.work

    @computed_once
    def launches(self) -> Launches:
        return self._whole.launches

    @computed_once
    def lost_launches(self) -> LostLaunches:
        return self._whole.lost_launches

    @computed_once
    def wrong_times(self) -> WrongTimes:
        return self._whole.wrong_times

    @computed_once
    def copies(self) -> Copies:
        return self._whole.copies

    @computed_once
    def communication(self) -> Communication:
        return self._whole.communication

    @computed_once
    def producers(self) -> Producers:
        return self._whole.producers

    @computed_once
    def waited(self) -> WaitPieces:
        return self._whole.waited

    @computed_once
    def stalls(self) -> BlockingCalls:
        return self._whole.stalls

    @computed_once
    def without_unwaited(self) -> Timeline:
        other = self._whole.without_unwaited
        return self if other is self._whole else LoopTimeline(other, self._step, self.steps)
