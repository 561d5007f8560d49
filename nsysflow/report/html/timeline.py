"""What the timeline of the page draws: `about.timeline`, its columns as blobs, and where in it a
finding is.

Times are ns on the page's axis. It starts where the first report does. The clocks of ranks are
aligned by the collectives that they have in common, as in the table `ranks`.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import polars as pl

from nsysflow.analysis.analyze import Analysis, Tables
from nsysflow.analysis.causes import CAUSES, WITH_CULPRIT
from nsysflow.analysis.concepts import causes_in_full
from nsysflow.analysis.findings.explanation import explanation_of
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.frames.intervals import merge
from nsysflow.analysis.schema import STEP_KIND, os_pid
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.explain.finding import at_its_place
from nsysflow.report.html.columns import Blobs, Columns
from nsysflow.report.pictures import Clock, clocks_of, end_of
from nsysflow.report.results import Results

SCHEMA: Final = 1


def timeline(results: Results, blobs: Blobs) -> dict[str, Any]:
    """`about.timeline`. Adds its columns to `blobs`."""
    tracks = [each.tracks for each in results.analyses]
    clocks = clocks_of(results, tracks)
    classes = _classes(tracks)
    reports = [
        _about(each, clock, Columns(each.tracks, clock.zero_ns, classes, blobs))
        for each, clock in zip(results.analyses, clocks, strict=True)
    ]
    ends = [
        clock.origin_ns + end_of(each) - clock.zero_ns
        for each, clock in zip(tracks, clocks, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "start_ns": 0,
        "end_ns": max(ends, default=0),
        "reports": reports,
        "causes": [
            {
                "name": cause.name,
                "label": cause.label,
                "meaning": cause.meaning,
                "blames": cause.name in WITH_CULPRIT or cause.name == "dependency",
                "usual": causes_in_full()[cause.name].usual,
                "remedies": causes_in_full()[cause.name].remedies,
            }
            for cause in CAUSES.values()
        ],
        "classes": [{"name": name, "label": name, "group": group_of(name)} for name in classes],
        "call_classes": [{"name": cause.name, "label": cause.label} for cause in CAUSES.values()],
        "step_kinds": STEP_KIND.categories.to_list(),
    }


def _about(analysis: Analysis, clock: Clock, columns: Columns) -> dict[str, Any]:
    """One report of the timeline."""
    judged_ns = _judged_ns(analysis)
    return {
        "name": analysis.trace.report,
        "origin_ns": clock.origin_ns,
        "zero_ns": str(clock.zero_ns),  # may be more than a JavaScript number holds exactly
        "clock_known": clock.known,
        "selection": _on_page(analysis.selected_ns, clock),
        "judged": _on_page(judged_ns, clock),
        "lanes": _lanes(analysis, columns, judged_ns),
        "tables": columns.tables(),
        "paths": analysis.tracks.paths["name"].to_list(),
        **columns.strings(),
    }


def _classes(tracks: Sequence[Tracks]) -> list[str]:
    """The classes of operations in a run, by name."""
    found = pl.concat([each.operations["class"].unique().cast(pl.String) for each in tracks])
    return found.drop_nulls().unique().sort().to_list()


def _lanes(
    analysis: Analysis, columns: Columns, judged_ns: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """The lanes, each with whether it has operations in the judged part."""
    judged = pl.DataFrame(judged_ns, {"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    worked = {*within(analysis.tracks.operations[["lane", "start_ns"]], judged)["lane"]}
    return [{**lane, "judged": at in worked} for at, lane in enumerate(columns.lanes())]


MOST_WINDOWS: Final = 1_000


def _judged_ns(analysis: Analysis) -> Sequence[tuple[int, int]]:
    """The judged parts of the report's time; as one where the page would grow by so many."""
    windows = analysis.judged.view.windows
    parts = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
    spans = merge(parts).rows()
    return spans if len(spans) <= MOST_WINDOWS else [(spans[0][0], spans[-1][1])]


def _on_page(spans: Sequence[tuple[int, int]], clock: Clock) -> list[list[int]]:
    """Stretches of a report's time as stretches of the page's axis."""
    shift = clock.origin_ns - clock.zero_ns
    return [[start + shift, end + shift] for start, end in spans]


Place: TypeAlias = tuple[int, int, int]
"""The report's number, and start and end in ns."""

_Span: TypeAlias = tuple[int, int]

_SPAN: Final = ("start_ns", "end_ns")
_LENGTH: Final = pl.col("end_ns") - pl.col("start_ns")


def places_of(results: Results) -> list[Place | None]:
    """For each finding the gap, kernel or phase that it is about, in a judged step that has it: the
    longest. Of a rank that holds up the others the step in which it does so most, if the page has
    that rank. Without any the first judged step; None where no step is known. Times are on the
    page's axis."""
    longest = _longest_gaps(results)
    clocks = clocks_of(results, [each.tracks for each in results.analyses])
    places: list[Place | None] = []
    for number, one in enumerate(results.found.valued):
        late = _late_step(results, one.finding)
        report = results.reports.index(one.finding.culprit if late else one.report)
        span = late or longest.get(number) or _beside_gaps(one.finding, results.analyses[report])
        ahead_ns = clocks[report].origin_ns - clocks[report].zero_ns
        places.append(span and (report, span[0] + ahead_ns, span[1] + ahead_ns))
    return places


_LOST: Final = {"rank_groups": "cost_ns", "rank_steps": "compute_ns"}
"""By the table of a finding about a rank: which of its steps is worst."""


def _late_step(results: Results, finding: Finding) -> _Span | None:
    """The worst judged step of the rank that a finding blames; None if the page has none such."""
    if finding.table not in _LOST or finding.culprit not in results.reports:
        return None
    analysis = results.analyses[results.reports.index(finding.culprit)]
    key = ["report", "process", "device", "step"]
    steps = analysis.judged.view.steps.with_columns(
        os_pid(pl.col("process")), report=pl.lit(finding.culprit)
    )
    mine = (
        pl.col("process").eq_missing(pl.lit(finding.process, pl.Int64)),
        pl.col("device") == finding.device,
    )
    ranked = results.judged.table("rank_steps").select(*key, _LOST[finding.table])
    found = steps.filter(*mine).join(ranked, on=key)
    worst = found.sort(_LOST[finding.table], "start_ns", descending=[True, False])
    spans: list[_Span] = worst.select(_SPAN).head(1).rows()
    return next(iter(spans), None)


def _longest_gaps(results: Results) -> dict[int, _Span]:
    """The longest gap of each finding that is about idle time, on its report's clock. All findings
    of a report share one pass over its gaps; those about pauses look at the pausing steps, too."""
    found: dict[int, _Span] = {}
    for analysis in results.analyses:
        for beside in (False, True):
            wanted = [
                (number, one.finding, explanation_of(one.finding.rule).causes)
                for number, one in enumerate(results.found.valued)
                if one.report == analysis.trace.report
                and one.finding.beside == beside
                and explanation_of(one.finding.rule).causes
            ]
            for gaps in _tables(analysis, beside=beside).gap_slices(0) if wanted else ():
                for number, finding, causes in wanted:
                    mine = at_its_place(finding, gaps.filter(pl.col("cause").is_in([*causes])))
                    _keep_longest(found, number, mine)
    return found


def _tables(analysis: Analysis, *, beside: bool) -> Tables:
    return analysis.run_steps if beside else analysis.judged


def _keep_longest(found: dict[int, _Span], number: int, rows: pl.DataFrame) -> None:
    for start_ns, end_ns in rows.top_k(1, by=_LENGTH).select(_SPAN).rows():
        start, end = found.get(number, (0, 0))
        if end_ns - start_ns > end - start:
            found[number] = start_ns, end_ns


def _beside_gaps(finding: Finding, analysis: Analysis) -> _Span | None:
    """Where to look if no gap tells: at its longest operation, else at its longest range."""
    steps = _tables(analysis, beside=finding.beside).view.steps.sort("start_ns")
    if finding.beside:
        steps = steps.sort(_LENGTH, descending=True)
    spans: list[_Span] = steps.select(_SPAN).head(1).rows()
    for rows in (_operations(finding, analysis), _ranges(finding, analysis)):
        spans = within(rows, steps).top_k(1, by=_LENGTH).select(_SPAN).rows() or spans
        if rows.height:
            break
    return next(iter(spans), None)


def _operations(finding: Finding, analysis: Analysis) -> pl.DataFrame:
    """The operations that a finding names, with the columns by which its place is known."""
    scaled = [] if finding.changes is None else [name for name, _ in finding.changes.scaled]
    names = scaled or [finding.culprit] * bool(finding.culprit)
    named = [pl.col(name).cast(pl.String).is_in(names) for name in ("name", "full_name", "class")]
    if finding.table == "comm":
        named = [pl.col("class").cast(pl.String) == "communication"]
    tracks = analysis.tracks
    rows = tracks.operations.filter(pl.any_horizontal(named))
    lanes, paths = tracks.lanes[["lane", "process", "device"]], tracks.paths
    rows = rows.drop("name").rename({"phase": "number"}).join(lanes, on="lane", how="left")
    phases = paths.select(pl.col("path").alias("number"), pl.col("name").alias("phase"))
    return at_its_place(finding, rows.join(phases, on="number", how="left"))


def _ranges(finding: Finding, analysis: Analysis) -> pl.DataFrame:
    """The ranges of the phase of a finding."""
    inner = finding.phase.rpartition("/")[2]
    return analysis.tracks.ranges.filter(pl.col("name").cast(pl.String) == inner, inner != "")


def within(rows: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The rows that begin in one of the stretches, which do not overlap."""
    ends = stretches.sort("start_ns").select("start_ns", pl.col("end_ns").alias("until_ns"))
    held = rows.sort("start_ns").join_asof(ends, on="start_ns")
    return held.filter(pl.col("start_ns") < pl.col("until_ns"))
