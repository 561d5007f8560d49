"""Which reports are meant by the paths that were given, and how one is read. It imports no polars
before that, so that a kept answer is printed at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING

from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.dispatch import ENDINGS, is_report
from nsysflow.analysis.load.unpacking import MAGICS, PERFETTO_SUFFIXES
from nsysflow.base.errors import Damaged, NotAReport, SelectionError
from nsysflow.base.names import distinct_names, printable, report_name
from nsysflow.runs.manifest import FILE, LOG, Manifest, is_run, read_manifest
from nsysflow.runs.paths import in_natural_order, matched

if TYPE_CHECKING:
    from nsysflow.analysis.frames.scratch import Scratch
    from nsysflow.analysis.load.export_tables import Shapes
    from nsysflow.analysis.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Source:
    """A report to analyse.

    Attributes:
        path: the report.
        name: in tables.
        manifest: of its run, if it has one that can be read.
        unread: what was seen in one that cannot be read; None without such a one.
    """

    path: Path
    name: str
    manifest: Manifest | None = None
    unread: str | None = None


def sources_of(paths: Sequence[Path]) -> Iterator[Source]:
    """The reports at `paths`: for a run's folder, the report of each of its ranks; for another
    folder, the reports in it; for a pattern, what it matches.

    Raises:
        NotAReport: a run left no report, or a pattern matches nothing.
    """
    for path in matched(paths):
        manifest, unread = None, None
        try:
            manifest = read_manifest(path)
        except Damaged as error:
            unread = printable(error.seen)
        if manifest is None:
            for report in _reports_in(path) or [path]:
                yield Source(path=report, name=report_name(report), unread=unread)
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
    return [replace(source, name=name) for source, name in zip(sources, names, strict=True)]


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
        there = [
            each for each in there if not any(end in each.name for end in PERFETTO_SUFFIXES)
        ] or there
    except PermissionError:  # the loader says it better
        return []
    by_name: dict[str, Path] = {}
    for each in sorted(there, key=_likeliest_first):
        by_name.setdefault(report_name(each), each)
    return sorted(by_name.values(), key=in_natural_order)


def _likeliest_first(path: Path) -> int:
    return next(place for place, end in enumerate(ENDINGS) if path.name.endswith(end))


def load(
    path: str | Path,
    *,
    nsys: str | Path | None = None,
    shapes: "Shapes" = True,
    scratch: "Scratch | None" = None,
) -> "Trace":
    """A report as canonical frames, whatever kind of report it is.

    Args:
        path: an nsys SQLite export, plain or compressed (`.xz`, `.gz`, `.zst`); a `parquetdir` or
            `arrowdir` export; an `.nsys-rep`; a run's folder; or a torch.profiler (Kineto) trace.
        nsys: the nsys to export an `.nsys-rep` with; the one found on this machine when None.
        shapes: also give how kernels were launched (grid, block, registers, shared memory), or
            only their grid. The `kernels` table needs all of it, findings need the grid. It is a
            quarter of the time of a big SQLite export.
        scratch: where large frames are kept, these and all made of them; None for memory.

    Raises:
        NotAReport: it is none of these.
        Damaged: it is truncated or corrupt, or nsys cannot export it.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every export has.
        ReportError: it cannot be read, or there is no nsys to export it with.
        OutputError: no space is left to unpack or export it.
        CaptureError: the nsys asked for does not start.
    """
    from nsysflow.nsys.run import exporter  # imports polars

    export = exporter(Path(nsys) if nsys is not None else None)
    return dispatch.load(Path(path), export=export, shapes=shapes, scratch=scratch)
