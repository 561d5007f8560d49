"""Load the reports of a run and analyse them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from nsysflow.analysis.analyze import analyze, pieces_of
from nsysflow.analysis.declared.notes import Note, NoteKind
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.load.nsys_export.tables import Shapes
from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.view.selection import named_domains, require_domains
from nsysflow.errors import SelectionError
from nsysflow.loading import load
from nsysflow.progress import SILENT, Progress
from nsysflow.report.results import Origin, Results
from nsysflow.runs.manifest import Manifest
from nsysflow.runs.notes import expected_notes, run_notes
from nsysflow.runs.sources import Source, distinct_sources

DEMO: Final = "nan_check-sync.sqlite.xz"
"""The report that `nsysflow demo` analyses."""

PAGE: Final = (
    "findings",
    *(
        f"judged.{name}" if table.judged else name
        for name, table in TABLES.items()
        if table.page_rows is not None and table.of == "report"
    ),
)
"""What the page reads of each report: the tables of what is judged, and those that are not."""

_NEED_SHAPES: Final[Mapping[str, Shapes]] = {
    "kernels": True,
    "findings": "grid",
    "step_parts": "grid",
}
"""With these tables, it is read too how each kernel was launched: findings judge small grids, and
comparisons match kernels by name and grid."""


def analyze_reports(
    paths: Sequence[Path],
    options: Options,
    *,
    tables: Sequence[str] = PAGE,
    progress: Progress = SILENT,
) -> Results:
    """Load and analyse reports, the ranks of one run.

    Args:
        paths: report files, or folders of runs.
        options: what to narrow the analysis to. Of several reports, those that lack the step, range
            or time are left out with a note, and those without work on `device` without one.
        tables: what to compute now, on all cores: of `Analysis.compute`. Others are computed when
            they are read.
        progress: hears of each piece of work.

    Raises:
        ReportError: a report cannot be read.
        SelectionError: a report was given twice, or no report has what an option names.
    """
    sources = distinct_sources(paths)
    asked = dict.fromkeys(tables)
    names = [name for name in asked if _at_once(name, alone=len(sources) == 1)]
    pieces = pieces_of(names)
    shapes = next((need for name, need in _NEED_SHAPES.items() if name in tables), False)
    progress.expect(2 * pieces * len(sources))  # half of the time is loading
    analyses = []
    left_out: dict[str, SelectionError] = {}
    domains: set[str] = set()
    for source in sources:
        progress.stage(f"loading {source.name}")
        trace = _load(source, shapes=shapes)
        progress.done(pieces)
        progress.stage(f"analysing {source.name}")
        domains |= named_domains(trace.ranges)
        if len(sources) > 1 and _ran_elsewhere(trace, options.device):
            continue
        wanted = with_run(source.manifest, options)
        if len(sources) > 1:
            wanted = _with_domains_of(trace, wanted)
        analysis = analyze(trace, wanted)
        del trace  # frees its rows: the analysis has its own, in order
        try:
            analysis.compute(*names, done=progress.done)
        except SelectionError as error:  # evaluation, for one, is often a single rank's work
            left_out[source.name] = error
        else:
            analyses.append(analysis)
    if not analyses:
        raise next(iter(left_out.values()), _no_such_device(sources, options.device))
    require_domains(domains, options, f"any of {_names(sources)}")
    notes = [
        Note(NoteKind.LEFT_OUT, f"{name} is left out: {error.seen}")
        for name, error in left_out.items()
    ]
    return Results(analyses, origin=origin_of(sources, paths), notes=notes)


def _at_once(name: str, *, alone: bool) -> bool:
    """Whether to compute a table beforehand; findings only where they are of this report alone."""
    return alone if name == "findings" else TABLES[name.removeprefix("judged.")].at_once


def analyze_demo() -> Results:
    """Analyse the report that comes with nsysflow."""
    with as_file(files("nsysflow") / "samples" / DEMO) as report:
        return analyze_reports([report], Options())


def _has_ranks(manifest: Manifest) -> bool:
    """Whether a run has several ranks, or is the part of one node."""
    return manifest.processes is not None or len(manifest.reports) > 1


def with_run(manifest: Manifest | None, options: Options) -> Options:
    """`options`, with what was said of the program when the run was profiled: its FLOPs, unless
    given now, and what is its own."""
    if manifest is None:
        return options
    return replace(
        options,
        flops_per_step=options.flops_per_step or manifest.flops_per_step,
        flops_dtype=options.flops_dtype or manifest.flops_dtype,
        own=tuple(dict.fromkeys((*manifest.own, *options.own))),
    )


def _load(source: Source, *, shapes: Shapes) -> Trace:
    """The trace under its report's name, with the notes on its run."""
    trace = load(source.path, shapes=shapes)
    if source.manifest is not None:
        notes = (*expected_notes(source.manifest, trace), *run_notes(source.manifest, trace))
        trace = replace(trace, notes=notes)
    return replace(trace, report=source.name)


def _with_domains_of(trace: Trace, options: Options) -> Options:
    """`options` with only the NVTX domains that this rank has: another one may have the rest."""
    there = named_domains(trace.ranges)
    return replace(
        options,
        domains_added=tuple(name for name in options.domains_added if name in there),
        domains_removed=tuple(name for name in options.domains_removed if name in there),
    )


def _no_such_device(sources: Sequence[Source], device: int | None) -> SelectionError:
    return SelectionError(
        f"no device {device} in any of {_names(sources)}",
        "--table accounting lists the devices",
    )


def origin_of(sources: Sequence[Source], typed: Sequence[Path]) -> Origin:
    """Where the reports come from, by their manifests."""
    manifests = [source.manifest for source in sources]
    known = [each for each in manifests if each is not None]
    return Origin(
        paths={source.name: source.path for source in sources},
        on_cpu=all(each is not None and each.on == "cpu" for each in manifests),
        ranks=all(each is not None and _has_ranks(each) for each in manifests),
        killed=any(each.killed for each in known),
        typed=tuple(typed),
        versions=known[0].versions if known else {},
        started=known[0].started if known else "",
    )


def _ran_elsewhere(trace: Trace, device: int | None) -> bool:
    """Whether none of this rank's work ran on the one GPU to look at."""
    return device is not None and device not in trace.ops["device"]


def _names(sources: Sequence[Source]) -> str:
    return ", ".join(source.name for source in sources)
