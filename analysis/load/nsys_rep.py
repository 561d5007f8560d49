"""An `.nsys-rep`, exported to SQLite with the nsys at hand."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsysflow.errors import Damaged, ReportError

SUFFIXES: Final = (".nsys-rep", ".qdrep")

_INSTALLED: Final = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
)


def find_nsys(asked_for: str | None = None) -> str | None:
    """The nsys to use: the one asked for, `$NSYSFLOW_NSYS`, on PATH, or the newest installed."""
    asked_for = asked_for or os.environ.get("NSYSFLOW_NSYS")
    if asked_for:
        return shutil.which(asked_for)
    on_path = shutil.which("nsys")
    if on_path:
        return on_path
    installed = [found for pattern in _INSTALLED for found in Path("/").glob(pattern)]
    return str(max(installed, key=_version)) if installed else None


def _version(nsys: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(nsys))]


@contextmanager
def exported(path: Path, shown: str, nsys: str | None) -> Iterator[Path]:
    """The report as an SQLite export in a temporary folder, which is gone afterwards.

    Raises:
        ReportError: there is no nsys to export it with.
        Damaged: nsys cannot export it.
    """
    found = find_nsys(nsys)
    by_hand = f"nsys export --type sqlite {shown}"
    if found is None:
        where = nsys or os.environ.get("NSYSFLOW_NSYS") or "PATH, /opt/nvidia or /usr/local/cuda"
        msg = (
            f"{shown} is an Nsight Systems report that must be exported first, and no nsys was"
            f" found ({where}). Export it where nsys is, and analyse what it writes:\n  {by_hand}"
        )
        raise ReportError(msg)
    with TemporaryDirectory(prefix="nsysflow-") as folder:
        out = Path(folder) / "report.sqlite"
        argv = [found, "export", "--type", "sqlite", "--output", str(out), str(path.resolve())]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")
        if done.returncode or not out.is_file():
            said = " ".join((done.stderr or done.stdout).split()[-40:]) or "nothing"
            msg = (
                f"{shown} cannot be exported: nsys ended with {done.returncode} and said: {said}."
                f" See what it says by hand:\n  {by_hand}"
            )
            raise Damaged(msg)
        yield out
