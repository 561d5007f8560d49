"""The tools but `table`: open a report, its findings, explain, what-if and diff."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsysflow.agents.folder import WIDTH, Answer, Reports, plain_text
from nsysflow.analysis.analyze import replay_and_next
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.errors import SelectionError
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared, over_time
from nsysflow.report.diff import page, require_comparable, rows, table
from nsysflow.report.diff_document import diff_json
from nsysflow.report.document import about, plain, step_times, steps_about, verdict
from nsysflow.report.explain.finding import numbered_finding, pages_asked_for
from nsysflow.report.explain.pages import Explained, contents, set_explained
from nsysflow.report.findings import suggestions
from nsysflow.report.page import compose
from nsysflow.report.results import Results
from nsysflow.report.text import set_block, set_page, suggestion_lines
from nsysflow.report.whatif import whatif_json, whatif_lines
from nsysflow.runs.captures import sides_of
from nsysflow.runs.sources import single_report


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A report as a whole.

    Attributes:
        reports: its names in tables, one per rank.
        gpus: what it ran on.
        steps: as in report.json, without its rows: `name` of the range, `inferred`,
            `unprofiled_step_ns`.
        judged: what the verdict is of, as in report.json: `of_steps` and how many `steps`.
        time: what a step takes, as in report.json; null without steps.
        run: the parts of all recorded time, rows of the table `run` as in report.json; of many, the
            longest. Other loops have the part `loop`.
        verdict: as in report.json: `valid`, `why`, `bound`, `bound_pct`, `phase`, `source`, `text`.
        notes: what the reader should know; each has `kind` and `text`.
        findings: how many there are.
    """

    reports: tuple[str, ...]
    gpus: str
    steps: dict[str, Any]
    judged: dict[str, Any]
    time: dict[str, Any] | None
    run: tuple[dict[str, Any], ...]
    verdict: dict[str, Any]
    notes: tuple[dict[str, Any], ...]
    findings: int


@dataclass(frozen=True, kw_only=True)
class FindingRows:
    """What to change, in the order in which to act.

    Attributes:
        total: how many findings there are.
        findings: rows of the table `findings`, as in report.json.
    """

    total: int
    findings: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One thing explained.

    Attributes:
        kind: what it is: a finding, a cause of idle time, a bound, a table, a column.
        title: its name, or a sentence.
        text: what is said of it.
    """

    kind: str
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Explanations:
    """What was found under a name; several things may have one."""

    explained: tuple[Explanation, ...]


def open_report(reports: Reports, typed: Sequence[str]) -> Answer[Opened]:
    """The page of a report: verdict, first findings, largest losses."""
    results = reports.open(typed)
    page = compose(results, "page", top=None, at_least_ns=0)
    data = Opened(
        reports=results.reports,
        gpus=page.gpus,
        steps=steps_about(results),
        judged={"of_steps": results.judged.of_steps, "steps": results.judged.step_count},
        time=step_times(results),
        run=_longest_parts(results),
        verdict=verdict(results),
        notes=tuple(about(results)["notes"]),
        findings=len(results.found.valued),
    )
    return Answer(text=plain_text(set_page(page, WIDTH)), data=data)


_MOST_PARTS: Final = 16
"""A rank has four or five parts; the table `run` has those of all."""


def _longest_parts(results: Results) -> tuple[dict[str, Any], ...]:
    """The rows of `run` that take longest, in their order."""
    rows = plain(results.table("run")).with_row_index("row")
    longest = rows.sort("time_ns", "row", descending=[True, False]).head(_MOST_PARTS)
    return tuple(longest.sort("row").drop("row").rows(named=True))


def findings(reports: Reports, typed: Sequence[str], limit: int) -> Answer[FindingRows]:
    """What to change in a report, at most `limit` findings."""
    results = reports.open(typed)
    rows = plain(results.table("findings").head(limit)).rows(named=True)
    text = plain_text(suggestion_lines(suggestions(results, limit), WIDTH))
    return Answer(
        text=text or "No change is known that would save 1 % of a step or more",
        data=FindingRows(total=len(results.found.valued), findings=tuple(rows)),
    )


def explain(reports: Reports, what: str, typed: Sequence[str]) -> Answer[Explanations]:
    """A finding by its number in a report, or the pages on a name; without a name, all names.

    Raises:
        SelectionError: a number was given without a report.
        UnknownName: there is no such finding, or nothing is called so.
    """
    if not what:
        return _explained([contents()])
    if what.isdecimal():
        if not typed:
            raise SelectionError(f"finding {what} of which report?", "Name the report, too")
        return _explained([numbered_finding(reports.open(typed), int(what), WIDTH)])
    return _explained(pages_asked_for(what))


def _explained(pages: Iterable[Explained]) -> Answer[Explanations]:
    explained = tuple(
        Explanation(kind=page.kind, title=page.title, text=plain_text(set_explained(page, WIDTH)))
        for page in pages
    )
    return Answer(
        text="\n\n".join(page.text for page in explained), data=Explanations(explained=explained)
    )


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A report replayed with changes, as `nsysflow whatif --json` prints it.

    Attributes:
        window_before_ns: the recorded window.
        window_after_ns: the same in the replay.
        step_before_ns: the mean step; null where none is known.
        step_after_ns: the same in the replay.
        steps: how many steps that mean is of.
        undisturbed: whether both are without the profiler's share.
        estimated: whether they are so by estimate, as no plain step is known.
        idle_before: idle time by cause, of all GPUs together, in ns.
        idle_after: the same in the replay.
        step_idle_before: idle time by cause of a step, in ns; null where no step is known.
        step_idle_after: the same in the replay.
        then: the finding that is then the largest; null where none is.
        limits: what the replay cannot know of this report.
    """

    window_before_ns: int
    window_after_ns: int
    step_before_ns: int | None
    step_after_ns: int | None
    steps: int
    undisturbed: bool
    estimated: bool
    idle_before: Mapping[str, int]
    idle_after: Mapping[str, int]
    step_idle_before: Mapping[str, int] | None
    step_idle_after: Mapping[str, int] | None
    then: dict[str, Any] | None
    limits: tuple[str, ...]


def what_if(reports: Reports, typed: str, changes: Changes) -> Answer[Replayed]:
    """What changes to a program would save, by replaying its report.

    Args:
        reports: those in the folder.
        typed: the path of one report.
        changes: all that is different.

    Raises:
        NotAReport: the run has several ranks.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    results = reports.open([typed])
    single_report(reports.folder.inside(typed))
    (analysis,) = results.analyses
    result, then = replay_and_next(analysis, changes)
    data = Replayed(**json.loads(whatif_json(result, then)))
    return Answer(text="\n".join(whatif_lines(analysis.trace.report, result, then)), data=data)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changed between two sides, as `nsysflow diff --json` prints it.

    Attributes:
        comparison: `text` is the verdict. `bridge.parts` say what changed in the mean step, the
            largest change first; of each part, its first `rows` and `phases`.
    """

    comparison: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class History:
    """Captures in a row, as `nsysflow diff --json` prints more than two.

    Attributes:
        captures: a row each, with its steps, and the change since the first and the one before.
    """

    captures: tuple[dict[str, Any], ...]


def diff(
    reports: Reports, base: Sequence[str], new: Sequence[str], *, limit: int, force: bool
) -> Answer[Difference]:
    """Compare captures from before and after a change.

    Raises:
        SelectionError: a side has no capture, or the sides should not be compared.
    """
    if not base or not new:
        seen = f"{'base' if not base else 'new'} names no capture"
        raise SelectionError(seen, "Name at least one capture on each side")
    before, after = _sides(reports, (base, new))
    comparison = compared(before, after)
    require_comparable([comparison], force=force)
    document = _shortened(json.loads(diff_json(comparison)), limit)
    text = plain_text(page(comparison, width=WIDTH, full=False))
    return Answer(text=text, data=Difference(comparison=document))


def diff_over_time(reports: Reports, captures: Sequence[str], *, force: bool) -> Answer[History]:
    """Compare each of several captures with the first and the one before.

    Raises:
        SelectionError: there are fewer than two captures, or they should not be compared.
    """
    (alone,) = _sides(reports, (captures,))
    if len(alone) < 2:
        raise SelectionError("this is one capture", "Name two or more captures")
    stages = over_time(alone)
    require_comparable((stage.since_first for stage in stages), force=force)
    text = plain_text(set_block(table(stages), WIDTH))
    return Answer(text=text, data=History(captures=tuple(rows(stages))))


def _sides(reports: Reports, sides: Sequence[Sequence[str]]) -> list[list[Capture]]:
    """The captures of each side."""
    paths = [[reports.folder.inside(path) for path in side] for side in sides]
    every = [path for side in paths for path in side]
    counts = tuple(len(side) for side in paths)
    return reports.once(("captures", counts), every, lambda: sides_of(paths))


def _shortened(document: dict[str, Any], limit: int) -> dict[str, Any]:
    """The document of a comparison with the first rows and phases of each part."""
    bridge = document["bridge"]
    parts = [
        {**part, "rows": part["rows"][:limit], "phases": part["phases"][:limit]}
        for part in bridge["parts"]
    ]
    return {**document, "bridge": {**bridge, "parts": parts, "phases": bridge["phases"][:limit]}}
