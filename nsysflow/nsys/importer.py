"""Whether nsys can turn what it recorded into a report, judged by its folders."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsysflow.nsys.folders import is_script, target_folder
from nsysflow.nsys.program import Nsys

IMPORTER: Final = "QdstrmImporter"
"""The program that turns what nsys recorded into an `.nsys-rep`; nsys starts it."""


@dataclass(frozen=True, kw_only=True)
class ImporterProblem:
    """Why nsys will not write a report.

    Attributes:
        text: the reason, half a sentence.
        libraries: the shared libraries that the system lacks; empty if the importer itself does.
    """

    text: str
    libraries: tuple[str, ...] = ()


def importer_problem(nsys: Nsys) -> ImporterProblem | None:
    """Why nsys will not write a report; None if nothing is known to be wrong.

    A launcher script may set library paths, so the libraries behind one are not checked.
    """
    target = target_folder(nsys.path)
    if target is None:
        return None
    importer = next(target.parent.glob(f"host-linux-*/{IMPORTER}"), None)
    if importer is None:
        text = f"its importer is missing: there is no host-linux-*/{IMPORTER} in {target.parent}"
        return ImporterProblem(text=text)
    if is_script(nsys.path.resolve()):
        return None
    missing = _missing_libraries(importer, nsys)
    if not missing:
        return None
    return ImporterProblem(
        text=f"its importer lacks libraries: {', '.join(missing)}", libraries=missing
    )


def _missing_libraries(importer: Path, nsys: Nsys) -> tuple[str, ...]:
    if shutil.which("ldd") is None:
        return ()
    done = subprocess.run(
        ["ldd", str(importer)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **nsys.environment()},
    )
    missing = {line.split()[0] for line in done.stdout.splitlines() if "not found" in line}
    return tuple(sorted(missing))
