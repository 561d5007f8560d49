"""Which reports are meant by the paths that were given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote

from nsysflow.analysis.load.dispatch import ENDINGS, is_report
from nsysflow.analysis.load.unpacking import MAGICS
from nsysflow.base.errors import NotAReport, SelectionError
from nsysflow.base.names import distinct_names, report_name
from nsysflow.runs.manifest import FILE, LOG, Manifest, is_run, read_manifest
from nsysflow.runs.paths import in_natural_order, matched


@dataclass(frozen=True, kw_only=True)
class Source:
    """A report to analyse, its name, and the manifest of its run if it has one."""

    path: Path
    name: str
    manifest: Manifest | None = None


def sources_of(paths: Sequence[Path]) -> Iterator[Source]:
    """The reports at `paths`: for a run's folder, the report of each of its ranks; for another
    folder, the reports in it; for a pattern, what it matches.

    Raises:
        Damaged: a manifest cannot be understood.
        NotAReport: a run left no report, or a pattern matches nothing.
    """
    for path in matched(paths):
        manifest = read_manifest(path)
        if manifest is None:
            for report in _reports_in(path) or [path]:
                yield Source(path=report, name=report_name(report))
            continue
        if not manifest.reports:
            raise NotAReport(
                f"the run in {path} left no report: {join(manifest.command[:3])} ended with exit"
                f" code {manifest.exit_code}",
                "See what it printed",
                f"cat {quote(str(path / LOG))}",
            )
        for file in manifest.reports:
            # a run's only report is called what the run is called
            named = path if len(manifest.reports) == 1 else path / file
            report = _packed_or_not(path / file)
            yield Source(path=report, name=report_name(named), manifest=manifest)


def _packed_or_not(report: Path) -> Path:
    """A run's report; where it was packed since, the packed one."""
    if report.exists():
        return report
    packed = (report.with_name(report.name + ending) for ending in MAGICS.values())
    return next((each for each in packed if each.exists()), report)


def distinct_sources(paths: Sequence[Path]) -> list[Source]:
    """The reports at `paths` in natural order, each under a name of its own.

    Raises:
        Damaged: a manifest cannot be understood.
        NotAReport: a run left no report, or a pattern matches nothing.
        SelectionError: a report was given twice.
    """
    sources = sorted(sources_of(paths), key=lambda source: in_natural_order(source.path))
    files = [source.path.resolve() for source in sources]
    seen: set[Path] = set()
    for source, file in zip(sources, files, strict=True):
        if file in seen:
            raise SelectionError(f"{source.path} was given twice", "Name each rank's report once")
        seen.add(file)
    names = distinct_names([source.name for source in sources], files)
    return [
        Source(path=source.path, name=name, manifest=source.manifest)
        for source, name in zip(sources, names, strict=True)
    ]


def newest_run(folder: Path) -> Path:
    """The run in `folder` that was recorded last, or `folder` where it is a run itself.

    Raises:
        NotAReport: there is none.
    """
    if is_run(folder):
        return folder
    runs = [each for each in folder.iterdir() if is_run(each)]
    if not runs:
        raise NotAReport(
            "no run of nsysflow profile is in this folder",
            "Name a report, or look at the one that comes with nsysflow",
            "nsysflow demo",
        )
    return max(runs, key=lambda run: (run / FILE).stat().st_mtime_ns)


def single_report(path: Path) -> Source:
    """The one report that `path` names: a file, or the only report of a folder or pattern.

    Raises:
        NotAReport: a run left no report; or there are several, one for each rank.
    """
    found = list(sources_of([path]))
    if len(found) > 1:
        raise NotAReport(
            f"{path} is a run of {len(found)} ranks, each with its own report",
            f"Name one of them, for example {found[0].path}",
        )
    return found[0]


def _reports_in(folder: Path) -> list[Path]:
    """The reports in a folder that is no report itself, in natural order; of one that was exported
    as well, the export."""
    try:
        if not folder.is_dir() or is_report(folder):
            return []
        there = [each for each in folder.iterdir() if each.name.endswith(ENDINGS)]
    except PermissionError:  # the loader says it better
        return []
    by_name: dict[str, Path] = {}
    for each in sorted(there, key=_likeliest_first):
        by_name.setdefault(report_name(each), each)
    return sorted(by_name.values(), key=in_natural_order)


def _likeliest_first(path: Path) -> int:
    return next(place for place, end in enumerate(ENDINGS) if path.name.endswith(end))
