"""The loader for a path, and reports that nsys exports first."""

import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.base.errors import CaptureError, Damaged, NsysMissing, ReportError
from nsysflow.base.names import report_name
from nsysflow.cli.main import main
from tests.exports import write_export
from tests.nsys.fakes import fake_nsys
from tests.nsys.real import real_nsys, record
from tests.reports import DATA


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("runs/h200-train.sqlite.xz", "h200-train"),
        ("h200-train.sqlite", "h200-train"),
        ("a.b.sqlite.zst", "a.b"),
        ("h200-kineto.pt.trace.json.gz", "h200-kineto"),
        ("host_1.1700000000.pt.trace.json", "host_1.1700000000"),
        ("trace.json", "trace"),
        ("report.nsys-rep", "report"),
        ("export/", "export"),
        ("no-suffix", "no-suffix"),
        (".sqlite", ".sqlite"),
    ],
)
def test_a_report_is_named_after_its_file(path: str, name: str) -> None:
    assert report_name(Path(path)) == name


def test_a_run_s_folder_is_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run-7"
    folder.mkdir()
    shutil.copy(DATA / "synthetic-1.sqlite.xz", folder / "report.sqlite.xz")
    assert load(folder).ops.height > 1
    write_export(folder / "report.sqlite", kernels=[{}])
    assert load(str(folder)).ops.height == 1
    monkeypatch.chdir(folder)
    assert load(".").report == "run-7"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"not SQLite at all")
    return path


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    """A program that exports the `export.sqlite` beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_export(folder / "export.sqlite", kernels=[{}])
    copy = f'cp "{folder}/export.sqlite" "${{3#--output=}}"'
    return fake_nsys(folder / "nsys", body=f'[ "$4" = "" ] || {copy}')


def no_nsys(report: Path, out: Path) -> None:
    raise NsysMissing("no nsys was found", "Install it", "apt install nsight-systems")


def test_the_nsys_that_was_asked_for_exports_it(report: Path, nsys: Path) -> None:
    trace = nsysflow.load(report, nsys=nsys)
    assert trace.report == "run"
    assert trace.ops.height == 1
    assert sorted(path.name for path in report.parent.iterdir()) == ["bin", "run.nsys-rep"]


def test_commands_find_an_nsys_by_themselves(
    report: Path, nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYSFLOW_NSYS", str(nsys))
    small = str(tmp_path / "small.sqlite")
    for argv in (["analyze", str(report), "--no-files"], ["pack", str(report), "-o", small]):
        done = CliRunner().invoke(main, argv)
        assert done.exit_code == 0, done.output
    assert load(small).ops.height == 1


def test_without_an_nsys_it_says_how_to_get_one_or_export(report: Path, tmp_path: Path) -> None:
    by_hand = f"nsys export --type sqlite {report}"
    for read, commands in (
        (load, [by_hand]),
        (partial(pack, out=tmp_path / "small.sqlite"), [by_hand]),
        (partial(load, export=no_nsys), ["apt install nsight-systems", by_hand]),
    ):
        with pytest.raises(ReportError) as caught:
            read(report)
        assert caught.value.command.splitlines() == commands


def test_a_missing_nsys_is_named_and_one_that_fails_quoted(report: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="gone"):
        nsysflow.load(report, nsys=tmp_path / "gone")
    failing = fake_nsys(tmp_path / "failing", body="echo 'Unknown file format' >&2; exit 3")
    with pytest.raises(Damaged, match="ended with 3 and said: Unknown file format"):
        nsysflow.load(report, nsys=str(failing))


def test_an_sqlite_file_named_nsys_rep_needs_no_nsys(report: Path, nsys: Path) -> None:
    shutil.copy(nsys.parent / "export.sqlite", report)
    assert load(report, export=no_nsys).ops.height == 1


PROGRAM = """
import nvtx
for _ in range(4):
    with nvtx.annotate("step"), nvtx.annotate("forward"):
        sum(range(10_000))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An `.nsys-rep` of a program that marks four steps."""
    return record([sys.executable, "-c", PROGRAM], tmp_path_factory.mktemp("nsys"))


def test_an_nsys_rep_is_exported_and_its_ranges_are_phases(recorded: Path) -> None:
    before = recorded.read_bytes(), {*recorded.parent.iterdir()}  # nsys may leave a .qdstrm there
    analysis = nsysflow.analyze(nsysflow.load(recorded))
    phases = dict(analysis.phases.select("path", "instances").rows())
    assert phases == {"step": 4, "step/forward": 4}
    assert (recorded.read_bytes(), {*recorded.parent.iterdir()}) == before


def test_the_command_for_a_damaged_export_makes_it_again(recorded: Path, tmp_path: Path) -> None:
    beside = Path(shutil.copy(recorded, tmp_path / "my steps.nsys-rep"))
    export = beside.with_suffix(".sqlite")
    export.write_bytes(b"SQLite format 3\0")
    with pytest.raises(Damaged) as caught:
        nsysflow.load(export)
    program, *arguments = shlex.split(caught.value.command)
    assert program == "nsys"
    subprocess.run([str(real_nsys().path), *arguments], check=True, capture_output=True)
    assert nsysflow.load(export).ranges.height == 8


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_a_folder_of_a_real_nsys_loads_as_its_sqlite_does(
    recorded: Path, tmp_path: Path, kind: str
) -> None:
    nsys, folder = str(real_nsys().path), tmp_path / "steps"
    argv = [nsys, "export", "--type", kind, "--output", str(folder), str(recorded)]
    subprocess.run(argv, check=True, capture_output=True)
    exported = nsysflow.load(folder)
    assert exported.ranges.drop("row").rows() == nsysflow.load(recorded).ranges.drop("row").rows()
    assert (
        exported.threads.sort("thread").rows()
        == nsysflow.load(recorded).threads.sort("thread").rows()
    )
