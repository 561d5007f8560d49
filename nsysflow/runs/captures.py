"""The captures that paths name: reports are analysed, a report.json is read as it is."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nsysflow.compare.captures import Capture
from nsysflow.compare.document import FILE, capture_of, read_document
from nsysflow.progress import SILENT, Progress

_RANK: Final = re.compile(r"(?i)[-_.]?rank[-_.]?\d+")
"""The part of a file's name that says which rank of a run it is."""

_HEAD_BYTES: Final = 200
"""So many bytes of a report.json hold its schema and tool."""

_FOLDER: Final = ".nsysflow"
"""What `analyze` adds to a report's name for the folder of its files."""


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


def sides_of(
    sides: Sequence[Sequence[Path]],
    *,
    step: str | None = None,
    findings: bool = False,
    progress: Progress = SILENT,
) -> list[list[Capture]]:
    """The captures of several sides of a comparison, all under names of their own; see
    `captures_of`."""
    groups = [_groups(side) for side in sides]
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
        without_rank = _RANK.sub("", path.name)
        key = number if without_rank == path.name else (path.parent, without_rank)
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _names(groups: Sequence[Sequence[Path]]) -> list[str]:
    """What to call each capture: its file or folder, with as many folders above as it takes to
    tell them apart."""
    files = [_document_in(group[0]) or group[0] for group in groups]
    files = [file.parent if file.name == FILE else file for file in files]
    absolute = [file.absolute().parts for file in files]
    names = [""] * len(files)
    for depth in range(1, max(map(len, absolute), default=0) + 1):
        names = ["/".join(parts[-depth:]) for parts in absolute]
        if len(set(names)) == len(set(absolute)):
            break
    return [_RANK.sub("", _without_ending(name)) for name in names]


def _without_ending(name: str) -> str:
    stem = name.removesuffix(_FOLDER)
    for ending in (".xz", ".gz", ".zst"):
        stem = stem.removesuffix(ending)
    return re.sub(r"\.(sqlite|nsys-rep|parquetdir|json)$", "", stem)


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
