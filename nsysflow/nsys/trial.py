"""A trial of nsys: record a range of a tiny program, export the report, look for the range."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsysflow.analysis.load import load
from nsysflow.base.atomic import scratch_folder
from nsysflow.base.errors import CaptureError, NsysflowError
from nsysflow.nsys.argv import Recording, profile_argv
from nsysflow.nsys.program import Nsys, output_of
from nsysflow.nsys.run import export, last_words, run_nsys

RANGE: Final = "nsysflow doctor"
WITHIN_S: Final = 60
"""nsys 2023.4 takes one second for such a program, on two busy cores three."""

ATTEMPTS: Final = 3
"""nsys 2023.4 crashed about once in 70 runs on a busy machine (docs/facts.md)."""

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
    """The result of a trial.

    Attributes:
        problem: why there was no report; None if there was one.
        ranges: whether the report has the range that the program opened through `nvtx`.
    """

    problem: str | None = None
    ranges: bool = False


def may_sample(nsys: Nsys) -> bool | None:
    """Whether nsys may sample the CPU, by its own account; None if it does not say."""
    found = _SAMPLING.search(output_of(nsys.path, "status", "--environment"))
    return found[1] == "OK" if found else None


def try_nsys(nsys: Nsys) -> Trial:
    """Let nsys record a range of this Python, in a temporary folder."""
    for _ in range(ATTEMPTS):
        with scratch_folder() as folder:
            trial = _attempt(nsys, folder)
        if trial.problem is None:
            break
    return trial


def _attempt(nsys: Nsys, folder: Path) -> Trial:
    recording = Recording(out=folder / "trial", trace=("nvtx",))
    report, exported = folder / "trial.nsys-rep", folder / "trial.sqlite"
    argv = profile_argv(nsys, recording, [sys.executable, "-P", "-c", _PROGRAM])
    try:
        done = run_nsys(nsys, argv, within_s=WITHIN_S)
    except subprocess.TimeoutExpired:
        return Trial(problem=f"a trial run did not end within {WITHIN_S} s")
    except CaptureError as error:
        return Trial(problem=error.seen)
    if done.returncode or not report.is_file():
        said = last_words(done.stdout + done.stderr)
        text = f"a trial run ended with {done.returncode} and no report; nsys said: {said}"
        return Trial(problem=text)
    try:
        export(nsys, report, exported)
        names = load(exported).ranges["name"].to_list()
    except NsysflowError as error:
        return Trial(problem=error.seen)
    return Trial(ranges=RANGE in names)
