"""A fake nsys: it runs the program and returns a report that exists already."""

import os
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from click.testing import Result

from nsysflow.record.machine import Gpus
from nsysflow.runs.manifest import Manifest, read_manifest
from tests.cli.running import run
from tests.nsys.fakes import script
from tests.reports import sqlite_report

NO_GPU: Final = Gpus(problem="no driver (NVML)")
SAYS: Final = "import sys; print('epoch 1'); sys.exit(int(sys.argv[1]))"

_PROGRAM: Final = """
case "$1 $2" in
"--version ") echo "NVIDIA Nsight Systems version 2025.3.1.90-1v0"; exit;;
*--help)
    echo "--quiet= --include-json= --python-backtrace= --gpu-metrics-devices= --python-sampling="
    exit;;
esac
kind=$1
shift
while [ "${{1#--}}" != "$1" ]; do
    case "$1" in --output=*) out=${{1#--output=}};; esac
    shift
done
if [ "$kind" = export ]; then
    [ -s "$1" ] && cp "{sqlite}" "$out"
    exit
fi
out=$(echo "$out" | sed "s/%q{{LOCAL_RANK}}/$LOCAL_RANK/")
"$@"
code=$?
{instead}
echo recorded >"$out.nsys-rep"
exit $code
"""

_TORCHRUN: Final = """
while [ "${1#--}" != "$1" ]; do
    case "$1" in --nproc-per-node=*) ranks=${1#*=};; esac
    shift
done
for rank in $(seq 0 $((ranks - 1))); do LOCAL_RANK=$rank "$@" || exit; done
"""


def fake_nsys(folder: Path, instead: str = "") -> Path:
    """Write the program into a folder and return its path.

    Args:
        folder: where to put it.
        instead: shell commands that run after the profiled program, with `$out` (the report
            without its suffix) and `$code` (the program's exit code). They may exit.
    """
    return script(folder / "nsys", _PROGRAM.format(sqlite=_export(), instead=instead))


def fake_torchrun(folder: Path, patch: pytest.MonkeyPatch, body: str = _TORCHRUN) -> None:
    """A torchrun on PATH that starts its ranks in turn; the real one takes 3 s to import."""
    script(folder / "bin" / "torchrun", body)
    patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)


def command(code: int = 0) -> list[str]:
    return ["--", sys.executable, "-I", "-S", "-c", SAYS, str(code)]


def profiled(*words: str, code: int = 0) -> Result:
    """`nsysflow profile` with these words, which ends with this exit code."""
    return run("profile", *words, code=code)


def manifest_of(folder: str = "out") -> Manifest:
    """The manifest of a run."""
    manifest = read_manifest(Path(folder))
    assert manifest is not None
    return manifest


_UNPACKED: Final = TemporaryDirectory(prefix="nsysflow-")


@cache
def _export() -> Path:
    """A real export: five steps on an H200."""
    return sqlite_report(Path(_UNPACKED.name), "nan_check-sync")
