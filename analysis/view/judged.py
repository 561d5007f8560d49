"""The part of a timeline that is judged (stub until the branch `steps` is merged)."""

import polars as pl

from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.view.view import NarrowedView, View, view_of
from nsysflow.analysis.view.windows import intersect


class JudgedView(NarrowedView):
    """The steady steps."""

    of_steps = True

    @computed_once
    def windows(self) -> pl.DataFrame:
        """The steady steps."""
        whole = view_of(self.timeline).windows
        steps = self.steps.select("device_no", "start_ns", "end_ns")
        return intersect(whole, steps, self.events.axis)

    @computed_once
    def steps(self) -> pl.DataFrame:
        """The steady steps."""
        from nsysflow.analysis.tables.steps import step_table

        of = view_of(self.timeline)
        steps = of.steps.sort("process", "device", "step")
        longest = (pl.col("end_ns") - pl.col("start_ns")) < 2 * (
            pl.col("end_ns") - pl.col("start_ns")
        ).median()
        keep = (
            pl.lit(step_table(of)["steady"]) if self.options.steps is None else pl.lit(value=True)
        )
        return steps.filter(keep & longest)


def judged_view(timeline: Timeline) -> View:
    """What is judged."""
    judged = JudgedView(timeline)
    return judged if len(judged.steps) else view_of(timeline)
