"""The torchrun that starts ranks of a program that is no Python script."""

import shutil
import sys
from pathlib import Path


def find_torchrun() -> Path | None:
    """The one on PATH, or else the one beside our Python."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("torchrun") or shutil.which("torchrun", path=beside)
    return Path(found) if found else None
