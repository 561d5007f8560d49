"""A trial of nsys: record a range of a tiny program, import it, export it, look for it."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsysflow.analysis.load import load
from nsysflow.errors import CaptureError, NsysflowError
from nsysflow.nsys.argv import Capture, profile_argv
from nsysflow.nsys.program import Nsys, asked
from nsysflow.nsys.run import export, last_words, run_nsys

RANGE: Final = "nsysflow doctor"
WITHIN_S: Final = 60
"""nsys 2023.4 records and imports such a program in a second, on two busy cores in three."""

ATTEMPTS: Final = 3
"""nsys 2023.4 broke once in some 70 runs, on a busy machine (docs/facts.md)."""

_SAMPLING: Final = re.compile(r"Environment \(process-tree\): (\w+)")

_PROGRAM: Final = f"""
try:
    import nvtx
except ImportError:
    raise SystemExit
with nvtx.annotate({RANGE!r}):
    pass
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it.

    Attributes:
        problem: why there was no report, in words; None when there was one.
        ranges: whether the range that the program opened through `nvtx` was in it.
    """

    problem: str | None = None
    ranges: bool = False


def may_sample(nsys: Nsys) -> bool | None:
    """Whether nsys says that it may sample the CPU of a program it starts; None when it does not
    say."""
    said = _SAMPLING.search(asked(nsys.path, "status", "--environment"))
    return said[1] == "OK" if said else None


def tried(nsys: Nsys) -> Trial:
    """Let nsys record this Python opening a range, in a temporary folder."""
    for _ in range(ATTEMPTS):
        with TemporaryDirectory(prefix="nsysflow-") as folder:
            trial = _tried(nsys, Path(folder))
        if trial.problem is None:
            break
    return trial


def _tried(nsys: Nsys, folder: Path) -> Trial:
    capture = Capture(out=folder / "trial", trace=("nvtx",))
    report, exported = folder / "trial.nsys-rep", folder / "trial.sqlite"
    argv = profile_argv(nsys, capture, [sys.executable, "-P", "-c", _PROGRAM])
    try:
        done = run_nsys(nsys, argv, within_s=WITHIN_S)
    except subprocess.TimeoutExpired:
        return Trial(problem=f"a trial did not end within {WITHIN_S} s")
    except CaptureError as error:
        return Trial(problem=str(error).partition("\n")[0])
    if done.returncode or not report.is_file():
        said = last_words(done.stdout + done.stderr)
        return Trial(problem=f"a trial ended with {done.returncode} and no report; it said: {said}")
    try:
        export(nsys, report, exported)
        names = load(exported).ranges["name"].to_list()
    except NsysflowError as error:
        return Trial(problem=str(error).partition("\n")[0])
    return Trial(ranges=RANGE in names)
