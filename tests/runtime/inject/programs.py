"""Programs that are started as `nsysflow profile` would, and as they are."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nsysflow.runtime.inject import FOLDER
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.protocol import ANNOTATE, RUN_FOLDER

Done = subprocess.CompletedProcess[str]

HERE: Final = "import sys, torch; print('nsysflow.runtime.auto' in sys.modules)"
"""Prints whether our runtime came to this process with torch."""

TORCH: Final = """
__version__ = "0"
class version:
    cuda = None
class cuda:
    is_initialized = staticmethod(lambda: False)
"""


class Machine:
    """A folder with a torch that imports in no time, and how programs run there.

    Attributes:
        folder: the programs' working folder.
        lib: is on PYTHONPATH.
        run: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lib = folder / "lib"
        self.run = folder / "run"
        self.run.mkdir()
        self.write("lib/torch/__init__.py", TORCH)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plain(self, *argv: str, **variables: str) -> Done:
        """The program as it is."""
        return self._done(argv, {"PYTHONPATH": str(self.lib)} | variables)

    def hooked(self, *argv: str, **variables: str) -> Done:
        """The program as `nsysflow profile` starts it."""
        ours = {
            "PYTHONPATH": f"{FOLDER}{os.pathsep}{self.lib}",
            ANNOTATE: "1",
            RUN_FOLDER: str(self.run),
        }
        return self._done(argv, ours | variables)

    @property
    def is_hooked(self) -> bool:
        """Whether any Python process had our hook."""
        return (self.run / HOOKED).exists()

    @property
    def saw_torch(self) -> bool:
        """Whether torch was annotated, or that was tried."""
        return any((self.run / name).exists() for name in (ANNOTATED, NOT_ANNOTATED))

    def _done(self, argv: Sequence[str], variables: Mapping[str, str]) -> Done:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NSYS", "NVTX", "PYTHON"))}
        return subprocess.run(
            argv,
            env={**kept, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def code(text: str) -> tuple[str, ...]:
    """This code, run by our Python."""
    return (sys.executable, "-c", text)
