"""The part of a timeline that is judged: its typical steps (spec §8.16)."""

import polars as pl

from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.steps.chosen import judged_steps
from nsysflow.analysis.view.view import NarrowedView, View, view_of
from nsysflow.analysis.view.windows import intersect, lying_inside, whole_windows


def judged_view(timeline: Timeline) -> View:
    """The steps that are judged, of those that lie in the selection as a whole; the selection
    itself where there are none, or with `--whole`.

    Raises:
        SelectionError: an option names something that the report lacks.
    """
    selected = view_of(timeline)
    options = timeline.options
    if options.whole:
        return selected
    steps = judged_steps(timeline.steps, options.steps)
    steps = lying_inside(steps, selected.windows, timeline.events.axis)
    return selected if steps.is_empty() else JudgedView(timeline, steps)


class JudgedView(NarrowedView):
    """Some steps of a timeline, each as a whole."""

    def __init__(self, timeline: Timeline, steps: pl.DataFrame) -> None:
        super().__init__(timeline)
        self._steps = steps

    @computed_once
    def windows(self) -> pl.DataFrame:
        """The time of the steps; of several processes on a device, of any of them."""
        return intersect(whole_windows(self.events.ops), self._steps, self.events.axis)

    @computed_once
    def steps(self) -> pl.DataFrame:
        """These steps."""
        return self._steps

    @property
    def of_steps(self) -> bool:
        """Yes."""
        return True
