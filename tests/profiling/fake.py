"""An nsys that records nothing: it runs the program, and its report is one that exists already."""

import sys
from pathlib import Path
from typing import Final

from click.testing import CliRunner, Result

from nsysflow.cli import main
from tests.reports import DATA

REPORT: Final = DATA / "h200-gpt2-eager.sqlite.xz"

_PROGRAM: Final = """#!{python}
import lzma, os, re, subprocess, sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "--version":
    print("NVIDIA Nsight Systems version 2025.3.1.90-1v0")
elif "--help" in words:
    print("--quiet= --include-json= --gpu-metrics-devices=")
elif words[0] == "export":
    out = next(word.removeprefix("--output=") for word in words if word.startswith("--output="))
    Path(out).write_bytes(lzma.open(words[-1]).read())
else:
    at = next(at for at, word in enumerate(words[1:], 1) if not word.startswith("--"))
    out = next(word.removeprefix("--output=") for word in words if word.startswith("--output="))
    out = re.sub(r"%q{{(\\w+)}}", lambda found: os.environ[found[1]], out)
    code = subprocess.call(words[at:])
    {instead}
    Path(out + ".nsys-rep").write_bytes(Path({report!r}).read_bytes())
    sys.exit(code)
"""


def fake_nsys(folder: Path, instead: str = "") -> Path:
    """The program, in `folder`.

    Args:
        folder: where to put it.
        instead: Python that runs once the profiled program has ended, with `out` (the report
            without its suffix) and `code` (the program's exit code); it may leave by `sys.exit`.
    """
    path = folder / "nsys"
    text = _PROGRAM.format(python=sys.executable, report=str(REPORT), instead=instead or "pass")
    path.write_text(text)
    path.chmod(0o755)
    return path


def profiled(*words: str) -> Result:
    """`nsysflow profile` with these words."""
    return CliRunner().invoke(main, ["profile", *words], catch_exceptions=False)
