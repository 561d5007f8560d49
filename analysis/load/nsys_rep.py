"""An `.nsys-rep`: exported to SQLite by a given function, since reading starts no program."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

from nsysflow.analysis.load.compressed import temporary_folder
from nsysflow.base.errors import NsysMissing, Remedy, ReportError, export_again

SUFFIXES: Final = (".nsys-rep", ".qdrep")

Export = Callable[[Path, Path], None]
"""Exports a report (first path) to an SQLite file (second path)."""

_PACKED: Final = re.compile(r"(\.xz|\.gz|\.zst|/)$")
_EXPORTED: Final = re.compile(r"(\.sqlite|_pqtdir)$")
"""What nsys appends to the name of a report that it exports."""


@contextmanager
def exported(path: Path, shown: str, export: Export | None) -> Iterator[Path]:
    """The report as an SQLite export in a temporary folder.

    Raises:
        ReportError: there is nothing to export it with.
        NsysflowError: whatever `export` raises.
    """
    if export is None:
        raise ReportError(
            f"{shown} is an Nsight Systems report, and this call was given nothing to export it"
            " with",
            "Export it first, and analyse the file that nsys writes",
            _by_hand(shown),
        )
    with temporary_folder(shown, "exported") as folder:
        out = folder / "report.sqlite"
        try:
            export(path, out)
        except NsysMissing as error:
            raise ReportError(
                f"{shown} must be exported first, and {error.seen}",
                f"{error.advice or 'Install nsys'}, or export the report where nsys is installed",
                "\n".join(filter(None, (error.command, _by_hand(shown)))),
            ) from error
        yield out


def export_of(shown: str, *, kind: str = "sqlite", json: bool = False) -> Remedy:
    """How to make the export called `shown` again, from the report beside it if it is there."""
    if shown.endswith(SUFFIXES):
        return export_again(shown, kind=kind, json=json)
    name = _PACKED.sub("", shown)
    report = Path(_EXPORTED.sub("", name) + SUFFIXES[0])
    if report.is_file():
        return export_again(report, name, kind=kind, json=json)
    return export_again(kind=kind, json=json)


def _by_hand(shown: str) -> str:
    return f"nsys export --type sqlite {quote(shown)}"
