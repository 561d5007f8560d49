"""Reports of a real nsys, of a program without a GPU; `.ci/nsys` unpacks an nsys."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nsysflow
from nsysflow.base.errors import Damaged
from tests.nsys.real import real_nsys, record

PROGRAM = """
import nvtx
for _ in range(4):
    with nvtx.annotate("step"), nvtx.annotate("forward"):
        sum(range(10_000))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An `.nsys-rep` of a program that marks four steps."""
    return record([sys.executable, "-c", PROGRAM], tmp_path_factory.mktemp("nsys"))


def test_an_nsys_rep_is_exported_and_its_ranges_are_phases(report: Path) -> None:
    before = report.read_bytes(), {*report.parent.iterdir()}  # nsys may leave a .qdstrm there
    analysis = nsysflow.analyze(nsysflow.load(report))
    phases = dict(analysis.phases.select("path", "instances").rows())
    assert phases == {"step": 4, "step/forward": 4}
    assert (report.read_bytes(), {*report.parent.iterdir()}) == before


def test_the_command_for_a_damaged_export_makes_it_again(report: Path, tmp_path: Path) -> None:
    beside = Path(shutil.copy(report, tmp_path / "my steps.nsys-rep"))
    export = beside.with_suffix(".sqlite")
    export.write_bytes(b"SQLite format 3\0")
    with pytest.raises(Damaged) as caught:
        nsysflow.load(export)
    program, *arguments = shlex.split(caught.value.command)
    assert program == "nsys"
    subprocess.run([str(real_nsys().path), *arguments], check=True, capture_output=True)
    assert nsysflow.load(export).ranges.height == 8


def test_a_parquetdir_of_a_real_nsys_loads_as_its_sqlite_does(report: Path, tmp_path: Path) -> None:
    nsys, folder = str(real_nsys().path), tmp_path / "steps_pqtdir"
    argv = [nsys, "export", "--type", "parquetdir", "--output", str(folder), str(report)]
    subprocess.run(argv, check=True, capture_output=True)
    exported = nsysflow.load(folder)
    assert exported.ranges.drop("row").rows() == nsysflow.load(report).ranges.drop("row").rows()
    assert (
        exported.threads.sort("thread").rows()
        == nsysflow.load(report).threads.sort("thread").rows()
    )
