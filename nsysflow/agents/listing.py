"""`list_reports`: what is in the folder, the newest first."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from nsysflow.agents.answer import WIDTH, Answer, plain_text
from nsysflow.agents.folder import Folder
from nsysflow.analysis.load.dispatch import ENDINGS
from nsysflow.analysis.load.parquetdir import is_parquetdir
from nsysflow.base.errors import NsysflowError
from nsysflow.base.units import size
from nsysflow.compare.document import FILE as DOCUMENT
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.terminal import set_block
from nsysflow.runs.manifest import FILE as MANIFEST
from nsysflow.runs.manifest import Manifest, read_manifest

Kind = Literal["run", "report", "report.json"]

_NOT_OURS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders in which people keep no reports."""

_MOST_FOLDERS: Final = 20_000
"""At most this many are looked into: a few seconds."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A report, or a run of several.

    Attributes:
        path: in the folder; what the other tools take.
        kind: `run` is a folder of `nsysflow profile`; `report.json` is the result of an analysis,
            which only `diff` takes.
        bytes: of its reports.
        changed: when it was last written, in UTC.
        reports: of a run, its reports, one per rank; else empty.
        command: of a run, what was profiled; else empty.
    """

    path: str
    kind: Kind
    bytes: int
    changed: str
    reports: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What is in the folder.

    Attributes:
        folder: its path.
        total: how many there are.
        found: the newest of them, newest first.
    """

    folder: str
    total: int
    found: tuple[Listed, ...]


def list_reports(folder: Folder, limit: int) -> Answer[Listing]:
    """The runs and reports in a folder and those below it, newest first; at most `limit`."""
    every = sorted(_found(folder), key=lambda each: each.changed, reverse=True)
    listing = Listing(folder=str(folder.root), total=len(every), found=tuple(every[:limit]))
    return Answer(text=_text(listing), data=listing)


def _text(listing: Listing) -> str:
    if not listing.found:
        return f"{listing.folder} holds no report. Record one: nsysflow profile -- python train.py"
    left = listing.total - len(listing.found)
    block = Block(
        title=listing.folder,
        columns=(words("path"), words("kind"), figure("size"), words("written"), words("command")),
        rows=tuple(
            (each.path, each.kind, size(each.bytes), each.changed, " ".join(each.command))
            for each in listing.found
        ),
        rest=f"{left} older ones" if left else "",
    )
    return plain_text(set_block(block, WIDTH))


def _found(folder: Folder) -> Iterator[Listed]:
    walk = os.walk(folder.root)  # follows no link to a folder
    for number, (place, below, names) in enumerate(walk):
        if number == _MOST_FOLDERS:
            return
        here = Path(place)
        of_folder = _of_folder(folder, here)
        if of_folder is not None:
            below.clear()
            yield of_folder
            continue
        below[:] = [each for each in below if each not in _NOT_OURS and not each.startswith(".")]
        for name in names:
            if name.endswith(ENDINGS) and folder.holds(here / name):
                yield _listed(folder, here / name, "report", [here / name])


def _of_folder(folder: Folder, here: Path) -> Listed | None:
    """What a folder is as a whole; None where it only holds other things."""
    manifest = _manifest(here) if folder.holds(here / MANIFEST) else None
    if manifest is not None:
        reports = [here / name for name in manifest.reports if folder.holds(here / name)]
        return replace(
            _listed(folder, here, "run", reports),
            reports=manifest.reports,
            command=manifest.command,
        )
    if is_parquetdir(here):
        return _listed(folder, here, "report", sorted(here.glob("*.parquet")))
    document = here / DOCUMENT
    if document.is_file() and folder.holds(document):
        return _listed(folder, document, "report.json", [document])
    return None


def _manifest(here: Path) -> Manifest | None:
    """The manifest of a run's folder; None where none can be read."""
    try:
        return read_manifest(here)
    except NsysflowError:  # whoever opens it says so
        return None


def _listed(folder: Folder, path: Path, kind: Kind, files: Sequence[Path]) -> Listed:
    stats = [file.stat() for file in files if file.exists()] or [path.stat()]
    changed_s = max(stat.st_mtime for stat in stats)
    return Listed(
        path=folder.shown(path),
        kind=kind,
        bytes=sum(file.stat().st_size for file in files if file.is_file()),
        changed=f"{datetime.fromtimestamp(changed_s, UTC):%Y-%m-%d %H:%M:%S}",
    )
