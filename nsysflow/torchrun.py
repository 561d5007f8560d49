"""Find torchrun, for programs that are not Python scripts."""

import shutil
import sys
from pathlib import Path


def find_torchrun() -> Path | None:
    """The torchrun on PATH, else the one beside this Python; None if neither exists."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("torchrun") or shutil.which("torchrun", path=beside)
    return Path(found) if found else None
