"""The captures that paths name: reports are analysed, a report.json is read as it is."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nsysflow.base.names import FOLDER_ENDING, distinct_names, has_rank, report_name, without_rank
from nsysflow.base.progress import SILENT, Progress
from nsysflow.compare.captures import Capture
from nsysflow.compare.document import FILE, capture_of, read_document
from nsysflow.runs.paths import matched

_HEAD_BYTES: Final = 200
"""So many bytes of a report.json hold its schema and tool."""


def captures_of(
    paths: Sequence[Path],
    *,
    step: str | None = None,
    findings: bool = False,
    progress: Progress = SILENT,
) -> list[Capture]:
    """The captures at `paths`, in their order.

    Args:
        paths: reports, folders of runs, or report.json and folders with one. Reports whose names
            differ only in their rank are one capture.
        step: the range that is one step; None finds it. A report.json has its own.
        findings: whether findings are needed, too.
        progress: hears of each piece of work.

    Raises:
        ReportError: one cannot be read.
        SelectionError: there is no such step, or a report was given twice.
    """
    return sides_of([paths], step=step, findings=findings, progress=progress)[0]


def files_of(paths: Sequence[Path]) -> list[Path]:
    """What is read of the paths of captures: of a folder with a report.json, that file."""
    return [_document_in(path) or path for path in paths]


def sides_of(
    sides: Sequence[Sequence[Path]],
    *,
    step: str | None = None,
    findings: bool = False,
    progress: Progress = SILENT,
) -> list[list[Capture]]:
    """The captures of several sides of a comparison, all under names of their own; see
    `captures_of`."""
    groups = [_groups(matched(side)) for side in sides]
    names = iter(_names([group for side in groups for group in side]))
    return [
        [
            _capture(group, next(names), step=step, findings=findings, progress=progress)
            for group in side
        ]
        for side in groups
    ]


def _groups(paths: Iterable[Path]) -> list[list[Path]]:
    """The paths, ranks of one run together."""
    groups: dict[object, list[Path]] = {}
    for number, path in enumerate(paths):
        key = (path.parent, without_rank(path.name)) if has_rank(path.name) else number
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _names(groups: Sequence[Sequence[Path]]) -> list[str]:
    """What to call each capture; one that was given twice has one name."""
    files = [_named(group[0]) for group in groups]
    once = list(dict.fromkeys(files))
    names = [without_rank(report_name(file)) for file in once]
    by_file = dict(zip(once, distinct_names(names, once), strict=True))
    return [by_file[file] for file in files]


def _named(path: Path) -> Path:
    """The file or folder that a capture is named after."""
    file = (_document_in(path) or path).absolute()
    folder = file.parent if file.name == FILE else file
    return folder.with_name(folder.name.removesuffix(FOLDER_ENDING))


def _document_in(path: Path) -> Path | None:
    """The report.json that `path` names; None where it names a report or a run with reports."""
    if path.name == FILE or (path.suffix == ".json" and _is_ours(path)):
        return path
    if not (path / FILE).is_file():
        return None
    from nsysflow.runs.manifest import is_run

    has_reports = is_run(path) and any(path.glob("*.sqlite*"))
    return None if has_reports else path / FILE


def _is_ours(file: Path) -> bool:
    """Whether we wrote a JSON file; a trace of torch.profiler may have the same ending."""
    try:
        with file.open("rb") as text:
            return b'"tool"' in text.read(_HEAD_BYTES)
    except OSError:  # the loader says it better
        return False


def _capture(
    paths: Sequence[Path], name: str, *, step: str | None, findings: bool, progress: Progress
) -> Capture:
    document = _document_in(paths[0])
    if document is not None and len(paths) == 1:
        return read_document(document, name)
    from nsysflow.analysis.options import Options
    from nsysflow.report.document import compared_json, report_json
    from nsysflow.runs.analyze import analyze_reports

    tables = ("steps", "step_parts", *(["findings"] if findings else []))
    results = analyze_reports(paths, Options(step=step), tables=tables, progress=progress)
    text = report_json(results) if findings else compared_json(results)
    return capture_of(text.encode(), name, str(paths[0]))
