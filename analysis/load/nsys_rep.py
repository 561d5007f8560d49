"""An `.nsys-rep`, exported to SQLite by whoever can: reading reports starts no program."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsysflow.errors import NsysMissing, ReportError

SUFFIXES: Final = (".nsys-rep", ".qdrep")

Export = Callable[[Path, Path], None]
"""Exports the report that it is given first to SQLite, as the file that it is given second."""


@contextmanager
def exported(path: Path, shown: str, export: Export | None) -> Iterator[Path]:
    """The report as an SQLite export in a temporary folder, which is gone afterwards.

    Raises:
        ReportError: there is nothing to export it with.
        NsysflowError: what `export` raises.
    """
    if export is None:
        raise _cannot_export(shown, "this call was given nothing to do it with")
    with TemporaryDirectory(prefix="nsysflow-") as folder:
        out = Path(folder) / "report.sqlite"
        try:
            export(path, out)
        except NsysMissing as error:
            raise _cannot_export(shown, str(error)) from error
        yield out


def _cannot_export(shown: str, why: str) -> ReportError:
    return ReportError(
        f"{shown} is an Nsight Systems report that must be exported first, and {why}\nOr export it"
        f" where nsys is, and analyse what it writes:\n  nsys export --type sqlite {shown}"
    )
