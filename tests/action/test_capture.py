"""action/capture.sh with a real nsys, on the CPU."""

import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from nsysflow.record.failure import nsys_crashed
from tests.action.conftest import Profiles
from tests.nsys.real import ATTEMPTS, real_nsys
from tests.reports import ROOT

pytestmark = pytest.mark.long

CAPTURE: Final = ROOT / "action" / "capture.sh"
SECRET: Final = "ghs_notToBeSeen"

LOOP: Final = """
from nsysflow import region, steps
for _ in steps(range(8)):
    with region("forward"):
        pass
"""


def captured(env: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A call of capture.sh for two captures."""
    return subprocess.run(
        [CAPTURE, folder, "2", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_what_is_kept_holds_neither_the_environment_nor_paths(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "runs").mkdir()
    own = {"TOKEN": SECRET, "TMPDIR": str(tmp_path / "runs")}
    env = dict(os.environ) | machine | own | {"NSYSFLOW_NSYS": str(real_nsys().path)}
    loop = (sys.executable, str(tmp_path / "loop.py"))
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"captures-{attempt}"
        done = captured(env, folder, "--on", "cpu", "--capture", "1:1:4", "--", *loop)
        if not nsys_crashed(done.stdout):
            break
    assert done.returncode == 0, done.stdout
    kept = {str(file.relative_to(folder)): file for file in folder.rglob("*.*")}
    names = ("report.json", "summary.md", "gap-report.md", "report.sqlite.xz")
    assert kept.keys() == {f"{number}/{name}" for number in (1, 2) for name in names}
    for file in kept.values():
        data = file.read_bytes()
        text = lzma.decompress(data) if file.suffix == ".xz" else data
        assert SECRET.encode() not in text, file
        assert str(tmp_path).encode() not in text, file
    assert not list((tmp_path / "runs").glob("nsysflow.*"))


def test_a_folder_that_is_there_is_left_alone(
    tmp_path: Path, machine: dict[str, str], profiles: Profiles
) -> None:
    profiles.now("slow")
    (tmp_path / "captures").mkdir()
    done = captured(machine, tmp_path / "captures", "--", "true")
    assert done.returncode == 1
    assert "File exists" in done.stdout
    assert list((tmp_path / "captures").iterdir()) == []
