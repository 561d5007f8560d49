"""Whether nsys can write a report of what it recorded, as far as its folders tell."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from nsysflow.nsys.folders import is_script, target_folder
from nsysflow.nsys.program import Nsys

IMPORTER: Final = "QdstrmImporter"
"""The program that makes an `.nsys-rep` of what nsys recorded; nsys starts it by itself."""


def importer_problem(nsys: Nsys) -> str | None:
    """Why nsys will not write a report; None when nothing speaks against it.

    A launcher script may set library paths of its own, so the libraries of what it starts are not
    judged.
    """
    target = target_folder(nsys.path)
    if target is None:
        return None
    importer = next(target.parent.glob(f"host-linux-*/{IMPORTER}"), None)
    if importer is None:
        return f"its importer is missing: there is no host-linux-*/{IMPORTER} in {target.parent}"
    if is_script(nsys.path.resolve()):
        return None
    missing = _missing_libraries(importer, nsys)
    return f"its importer lacks libraries: {', '.join(missing)}" if missing else None


def _missing_libraries(importer: Path, nsys: Nsys) -> list[str]:
    if shutil.which("ldd") is None:
        return []
    done = subprocess.run(
        ["ldd", str(importer)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **nsys.environment()},
    )
    return sorted({line.split()[0] for line in done.stdout.splitlines() if "not found" in line})
