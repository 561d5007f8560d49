"""Reports in, results out, and the files beside them: what the commands are made of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import nsysflow
from nsysflow.analysis.load import report_name
from nsysflow.analysis.options import Options
from nsysflow.analysis.schema import RUN_TABLES
from nsysflow.analysis.trace import Trace
from nsysflow.errors import NotAReport, OutputError, SelectionError
from nsysflow.manifest import Manifest, read_manifest
from nsysflow.report.folder import check_folder, staged, staged_file
from nsysflow.report.markdown import summary
from nsysflow.report.results import Results
from nsysflow.report.tables import WHERE_THERE, write_files, write_gaps_csv
from nsysflow.run_notes import notes_on_run

DEMO = "nan_check-sync.sqlite.xz"
"""The report that `nsysflow demo` analyses."""


PAGE = (
    "gap_summary",
    "syncs",
    "phases",
    "starved",
    "steps",
    "accounting",
    "comm",
    "mfu",
    "integrity",
)
"""The tables that the page is made of, of each report."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A report to analyse, what to call it, and the manifest of the run that it is of."""

    path: Path
    name: str
    manifest: Manifest | None = None


def sources_of(reports: Sequence[Path]) -> Iterator[Source]:
    """The reports themselves; for a run's directory with several ranks, each rank's.

    Raises:
        Damaged: a manifest cannot be understood.
        NotAReport: a run left no report.
    """
    for report in reports:
        manifest = read_manifest(report)
        if manifest is not None and not manifest.reports:
            program = " ".join(manifest.command[:3])
            msg = (
                f"{report} is a run that left no report: {program} ended with"
                f" {manifest.exit_code}. What it printed:\n  cat {report / 'output.log'}"
            )
            raise NotAReport(msg)
        ranks = [report / file for file in manifest.reports] if manifest else [report]
        alone = len(ranks) < 2  # it is called what the run is called
        for path in ranks:
            yield Source(path=path, name=report_name(report if alone else path), manifest=manifest)


def the_report(path: Path) -> Path:
    """The one report that a path names: of a run's directory, the one that the run left.

    Raises:
        NotAReport: a run left none, or one for each of its ranks.
    """
    found = list(sources_of([path]))
    if len(found) > 1:
        msg = (
            f"{path} is a run of {len(found)} ranks, each with its report. Name one of them:\n"
            f"  {found[0].path}"
        )
        raise NotAReport(msg)
    return found[0].path


def analyze_reports(
    reports: Sequence[Path], options: Options, *, tables: Sequence[str] = PAGE
) -> Results:
    """Load and analyse reports, the ranks of one run.

    Args:
        reports: where they are: files, or the directories of runs.
        options: what to narrow the analysis to; of several reports those are left out, with a
            note, that do not hold it, and without one those that have no work on `device`.
        tables: what will be asked for: computed now, on all cores; others when they are read.

    Raises:
        ReportError: one of them cannot be read.
        SelectionError: one was given twice, or an option names what none of them holds.
    """
    sources = list(sources_of(reports))
    resolved = [source.path.resolve() for source in sources]
    for index, report in enumerate(resolved):
        if report in resolved[:index]:
            msg = f"{sources[index].path} was given twice; name each rank's report once"
            raise SelectionError(msg)
    names = distinct_names([source.name for source in sources], resolved)
    analyses = []
    left_out: dict[str, SelectionError] = {}
    for source, name in zip(sources, names, strict=True):
        trace = nsysflow.load(source.path, shapes="kernels" in tables)
        if len(sources) > 1 and _ran_elsewhere(trace, options.device):
            continue
        if source.manifest is not None:
            trace = replace(trace, notes=notes_on_run(source.manifest, trace))
        chosen = with_flops_of(source.manifest, options)
        analysis = nsysflow.analyze(replace(trace, report=name), chosen)
        del trace  # its rows, once the analysis has put them in order
        try:
            analysis.compute(*(table for table in tables if table not in RUN_TABLES))
        except SelectionError as error:  # evaluation, say, is often one rank's alone
            left_out[name] = error
        else:
            analyses.append(analysis)
    if not analyses and left_out:
        raise next(iter(left_out.values()))
    if not analyses:
        msg = (
            f"no device {options.device} in any of {', '.join(names)}; --table accounting lists"
            " those that are there"
        )
        raise SelectionError(msg)
    notes = [f"{name} is left out: {error}" for name, error in left_out.items()]
    on_cpu = all(_on_cpu(source.manifest) for source in sources)
    return Results(analyses, on_cpu=on_cpu, notes=notes)


def _on_cpu(manifest: Manifest | None) -> bool:
    return manifest is not None and manifest.on == "cpu"


def _ran_elsewhere(trace: Trace, device: int | None) -> bool:
    """Whether none of this rank's work is on the one GPU to look at."""
    return device is not None and device not in trace.ops["device"]


def with_flops_of(manifest: Manifest | None, options: Options) -> Options:
    """`options`, with what was said of a step's FLOPs when it was profiled and is not said now."""
    if manifest is None:
        return options
    return replace(
        options,
        flops_per_step=options.flops_per_step or manifest.flops_per_step,
        flops_dtype=options.flops_dtype or manifest.flops_dtype,
    )


def analyze_demo() -> Results:
    """Analyse the report that comes with nsysflow."""
    with as_file(files("nsysflow") / "samples" / DEMO) as report:
        return analyze_reports([report], Options())


def distinct_names(names: Sequence[str], reports: Sequence[Path]) -> list[str]:
    """The names, with as many of their reports' folders as it takes to tell them apart."""
    distinct = list(names)
    for depth in range(1, max(len(report.parts) for report in reports)):
        if len(set(distinct)) == len(distinct):
            break
        folders = ["/".join(report.parent.parts[-depth:]) for report in reports]
        distinct = [f"{folder}/{name}" for folder, name in zip(folders, names, strict=True)]
    return distinct


def output_folder(reports: Sequence[Path], folder: Path | None, *, force: bool) -> Path:
    """Where the files go: `folder`, the run's directory, or `REPORT.nsysflow` beside the report.

    Raises:
        OutputError: something that nsysflow did not write is there.
    """
    chosen = folder if folder is not None else _beside(reports[0])
    check_folder(chosen, force=force or read_manifest(chosen) is not None)
    return chosen


def write_folder(results: Results, folder: Path, *, top: int | None, at_least_ns: int) -> None:
    """Write summary.md, the CSV files and report.json, all or nothing.

    Raises:
        OutputError: the folder cannot be written; nothing of it is left.
    """
    with staged(folder, optional=[f"{name}.csv" for name in WHERE_THERE]) as scratch:
        write_files(results, scratch, at_least_ns=at_least_ns)
        page = summary(results, top=top, at_least_ns=at_least_ns)
        (scratch / "summary.md").write_text(page, encoding="utf-8")


def write_gaps(results: Results, file: Path, reports: Sequence[Path], *, at_least_ns: int) -> int:
    """Write gaps.csv as `file`, all or nothing, and return its number of rows.

    Raises:
        OutputError: the file cannot be written, or is one of the reports.
    """
    if file.exists() and any(file.samefile(source.path) for source in sources_of(reports)):
        msg = f"{file} is the report itself; nothing was written. Name another file"
        raise OutputError(msg)
    with staged_file(file) as scratch, scratch.open("wb") as out:
        return write_gaps_csv(results, out, at_least_ns=at_least_ns)


def _beside(report: Path) -> Path:
    return report if read_manifest(report) is not None else Path(f"{report}.nsysflow")
