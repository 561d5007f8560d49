"""`analyze`: a trace in, every declared table out, each computed when it is first asked for."""

from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import polars as pl

from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import Findings, find_of_run, findings_table, largest_after
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.other_loop import largest_loop, with_other_loop
from nsysflow.analysis.frames.parallel import computed_once, side_by_side
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import WhatIf, whatif
from nsysflow.analysis.selection.loop_timeline import LoopTimeline
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import judged_view, run_view, view_of
from nsysflow.analysis.steps.kinds import steps_of_run
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.analysis.trace import Displayable, Trace, facts_of

if TYPE_CHECKING:
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


class Tables(ReportTables):
    """The tables of a view, and what was found in it."""

    @computed_once
    def found(self) -> Findings:
        """What to change, the largest saving first, with all that is known of it."""
        return find_of_run([JudgedReport(self)])

    def _findings(self) -> pl.DataFrame:
        return findings_table(self.found)


class Analysis(Displayable, Tables):
    """The tables of one report: each is a property, e.g. `analysis.gap_summary`."""

    def __init__(self, trace: Trace, options: Options) -> None:
        super().__init__(Timeline(trace, options), view_of)

    @computed_once
    def found(self) -> Findings:
        """What to change, also in another loop that takes much of the time."""
        found = find_of_run([JudgedReport(self)])
        return with_other_loop(found, largest_loop(self.run), lambda name: self.of_loop(name).found)

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

    @computed_once
    def tracks(self) -> "Tracks":
        """The picture of the whole report: what lies on which lane, whatever is selected."""
        from nsysflow.analysis.tracks.tracks import Tracks  # a page has none

        return Tracks.of(self.timeline)

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

    def of_loop(self, step: str) -> "Analysis":
        """The same report with another range as its step. What does not depend on steps is not
        computed again.

        Raises:
            SelectionError: no range is called `step`.
        """
        return _LoopAnalysis(self.timeline, step)

    def _name(self) -> str:
        return self.trace.report

    def _facts(self) -> list[str]:
        return facts_of(self.accounting, self.steps)


class _LoopAnalysis(Analysis):
    """An analysis of another loop of a report."""

    def __init__(self, whole: Timeline, step: str) -> None:
        Tables.__init__(self, LoopTimeline(whole, step), view_of)

    @computed_once
    def found(self) -> Findings:
        """What to change in the loop."""
        return find_of_run([JudgedReport(self)])


_MOST_OPS: Final = 500_000
"""Of a longer report the finding that is then the largest is not looked for: it takes seconds."""


def replay_and_next(analysis: Analysis, changes: Changes) -> tuple[WhatIf, Valued | None]:
    """What changes give, and the finding that saves most beside them; None where none does, and of
    a long report.

    Raises:
        SelectionError: there is no step of those that the options select.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    replayed = whatif(analysis.timeline, changes)
    if len(analysis.timeline.events.ops) > _MOST_OPS:
        return replayed, None
    return replayed, largest_after(JudgedReport(analysis), analysis.found, changes)


Analysis.__doc__ = "\n".join(
    [
        f"{Analysis.__doc__}",
        "    Tables, each with its columns in the docstring of `Analysis.NAME`:",
        *(f"        {name}: {ABOUT[name]}." for name in ABOUT if hasattr(Analysis, name)),
    ]
)
