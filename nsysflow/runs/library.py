"""`nsysflow.analyze` and `nsysflow.open`: from a trace, a report, or the ranks of a run."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Final, TypedDict, TypeVar, Unpack, overload

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.analyze import analyze as analyze_trace
from nsysflow.analysis.options import Options, StepPart, require_valid
from nsysflow.analysis.trace import Displayable, Trace
from nsysflow.base.errors import SelectionError
from nsysflow.report.notebook import notebook_html
from nsysflow.report.results import Results
from nsysflow.runs.analyze import analyze_reports
from nsysflow.runs.engine import Choice
from nsysflow.runs.sources import single_report, sources_of

Analyzed = TypeVar("Analyzed", bound=Displayable)

_COMPUTED: Final = ("kernels",)
"""With this table, the grid and block of each kernel are read too."""

_IN_THREADS: Final = Choice(executor="threads")
"""Processes would run a script once more that has no `if __name__ == "__main__":`."""


class Named(TypedDict, total=False):
    """Options as keywords, as the command line takes them."""

    step: str
    steps: str | Sequence[str]
    range: str


def with_named(options: Options, named: Named) -> Options:
    """The options with those that were given by name."""
    changed = replace(
        options,
        step=named.get("step", options.step),
        range=named.get("range", options.range),
    )
    if "steps" not in named:
        return changed
    typed = named["steps"]
    parts = [typed] if isinstance(typed, str) else typed
    return replace(changed, steps=tuple(map(StepPart.parse, parts)))


@overload  # a str is a sequence of str too
def analyze(  # type: ignore[overload-overlap]
    report: Trace | str | PathLike[str], options: Options | None = None, **named: Unpack[Named]
) -> Analysis: ...
@overload
def analyze(
    report: Sequence[str | PathLike[str]], options: Options | None = None, **named: Unpack[Named]
) -> Results: ...
def analyze(
    report: Trace | str | PathLike[str] | Sequence[str | PathLike[str]],
    options: Options | None = None,
    **named: Unpack[Named],
) -> Analysis | Results:
    """Where each GPU waited, and why.

        analysis = nsysflow.analyze("report.sqlite")
        analysis.gap_summary
        nsysflow.analyze("report.sqlite", range="forward", steps="2:5")
        run = nsysflow.analyze(["rank0.sqlite", "rank1.sqlite"])
        run.ranks

    Args:
        report: a report's path or trace; or a list with the path of each rank's report, or of the
            run's folder.
        options: what to narrow the analysis to; None takes the whole report.
        named: `step`, `steps` and `range` by name, which go before those of `options`.

    Returns:
        The tables as attributes: an `Analysis` of one report, or the `Results` of a run.

    Raises:
        ReportError: a report cannot be read.
        SelectionError: an option has a wrong value, or names something that is not there.
    """
    chosen = with_named(options or Options(), named)
    require_valid(chosen)
    if isinstance(report, Trace):
        return _with_page(analyze_trace(report, chosen))
    if isinstance(report, str | PathLike):
        single_report(Path(report))  # a run of several ranks is asked for as a list
        (analysis,) = analyze_reports([Path(report)], chosen, tables=_COMPUTED).analyses
        return _with_page(analysis)
    if not report:
        raise SelectionError("no report was given", "Give a path, or a list with one per rank")
    paths = [Path(path) for path in report]
    return _with_page(analyze_reports(paths, chosen, tables=_COMPUTED, choice=_IN_THREADS))


def open(  # named as one says it: nsysflow.open("run")
    run: Trace | str | PathLike[str] | Sequence[str | PathLike[str]], options: Options | None = None
) -> Analysis | Results:
    """What `analyze` returns, also for the folder of a run with several ranks.

        nsysflow.open("report.sqlite")
        nsysflow.open("run1")

    Args:
        run: a report, the folder of a run, or a list with one report per rank.
        options: what to narrow the analysis to; None takes the whole report.

    Returns:
        An `Analysis` of one report, or the `Results` of several ranks. Both have the tables as
        attributes, and a notebook shows both by verdict, findings and pictures.

    Raises:
        ReportError: a report cannot be read.
        SelectionError: an option has a wrong value, or names something that is not there.
    """
    if isinstance(run, str | PathLike) and len([*sources_of([Path(run)])]) > 1:
        return analyze([run], options)
    return analyze(run, options)


def _with_page(analyzed: Analyzed) -> Analyzed:
    """The same, which notebooks show by verdict, findings and pictures."""
    analyzed.page = notebook_html
    return analyzed
