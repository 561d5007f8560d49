"""The loader for a path: compressed reports, those to be exported first, files of other tools."""

import errno
import gzip
import json
import pickle
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from contextlib import closing
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load, unpacking
from nsysflow.analysis.load.other_formats import FORMATS
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.unpacking import pack_into
from nsysflow.base.errors import (
    CaptureError,
    Damaged,
    NotAReport,
    NsysMissing,
    OutputError,
    ReportError,
)
from nsysflow.base.names import report_name
from nsysflow.cli.main import main
from tests.exports import write_export
from tests.nsys.fakes import fake_nsys
from tests.nsys.real import real_nsys, record
from tests.reports import DATA, sqlite_report


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


# --- files of other tools -------------------------------------------------------------------------

XPLANE: Final = b"\x0a\x05\x08\x01\x12\x01a"
EVENT: Final = {"ph": "X", "cat": "blink", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}

FILES: Final[dict[str, tuple[bytes, str]]] = {
    "run.sqlite": (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
    "kernels.ncu-rep": (b"NVR\0", "a report of Nsight Compute"),
    "run.qdstrm": (b"x", "an unfinished recording of Nsight Systems"),
    "host.xplane.pb": (XPLANE, "a profile of XLA"),
    "weights.pkl": (pickle.dumps({"weight": 1}), "a Python pickle"),
    "kernel_trace.csv": (b'"Kind","Agent_Id","Queue_Id"\n', "a CSV table of rocprof"),
    "results.csv": (b"Index,KernelName,gpu-id\n", "a CSV table of rocprof"),
    "stats.csv": (b"Time (%),Total Time (ns),Instances\n", "a CSV table of nsys stats"),
    "lines.json": (
        b'{"Type":48,"TraceProcessEvent":{"startNs":"1"}}\n{"Type":79,"CudaEvent":{}}\n',
        "a JSON export of Nsight Systems",
    ),
    "tables.json": (b'{"StringIds": [{"id": 0, "value": ""}]}', "a JSON export of Nsight Systems"),
    "results.json": (b'{"rocprofiler-sdk-tool": []}', "the JSON output of rocprofv3"),
    "et.json": (b'{"schema": "1.0.1", "nodes": []}', "an execution trace of PyTorch"),
    "chrome.json": (
        json.dumps({"traceEvents": [EVENT]}).encode(),
        "a Chrome trace with events of blink, but not a trace of torch.profiler",
    ),
    "report.json": (b'{"schema": 1, "tool": {}, "verdict": ""}', "a report.json of nsysflow"),
    "graph.json": (b'{"nodes": [], "b": 1}', "JSON with b, nodes, but not a trace"),
    "list.json": (b"[1, 2]", "JSON, but not a trace of torch.profiler"),
    "notes.txt": (b"hello", "not an SQLite file, nor another report"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool_is_named(name: str, tmp_path: Path) -> None:
    content, what = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NotAReport) as caught:
        load(path)
    assert caught.value.seen.startswith(f"{path} is {what}")
    assert caught.value.advice
    assert caught.value.command


def test_each_format_has_a_file_here() -> None:
    told = [what for _, what in FILES.values()]
    for kind in FORMATS:
        assert any(kind.is_a.startswith(what) for what in told), kind.is_a


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        (["rocpd_api", "rocpd_op"], "a database of rocmProfileData"),
        (["b", "a", "c", "e", "d"], "an SQLite database, but not an Nsight Systems export: it has"
         " a, b, c, d and 1 more"),
        ([], "an SQLite database, but not an Nsight Systems export: it has no tables"),
    ],
)  # fmt: skip
def test_a_database_of_another_tool_is_named(tables: list[str], what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 1")
        for table in tables:
            db.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(NotAReport) as caught:
        load(path)
    assert caught.value.seen.startswith(f"{path} is {what}")
    assert all((caught.value.advice, caught.value.command))


# --- compressed reports ---------------------------------------------------------------------------

SUFFIXES = (".xz", ".gz", ".zst")
each_suffix = pytest.mark.parametrize("suffix", SUFFIXES)


@cache
def packed(content: bytes, suffix: str) -> bytes:
    target = BytesIO()
    pack_into(BytesIO(content), target, suffix)
    return target.getvalue()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write_export(tmp_path_factory.mktemp("r") / "r.sqlite", kernels=[{}] * 50, calls=[{}])
    return path.read_bytes()


@each_suffix
def test_a_compressed_report_loads_the_same(content: bytes, tmp_path: Path, suffix: str) -> None:
    plain, small, nameless = (tmp_path / name for name in ("r.sqlite", f"r.sqlite{suffix}", "r"))
    plain.write_bytes(content)
    for path in (small, nameless):
        path.write_bytes(packed(content, suffix))
        assert load(path).report == load(plain).report == "r"
        assert_frame_equal(load(path).ops, load(plain).ops)


@given(st.sampled_from(SUFFIXES), st.data())
def test_a_compressed_report_without_its_last_bytes_is_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    small = packed(content, suffix)
    path = tmp_path_factory.mktemp("cut") / f"r.sqlite{suffix}"
    path.write_bytes(small[: data.draw(st.integers(1, len(small) - 1))])
    with pytest.raises(Damaged) as caught:
        load(path)
    assert str(path) in caught.value.seen
    assert caught.value.command == f"sha256sum {path}"


@each_suffix
def test_a_wrong_or_empty_archive_is_refused(content: bytes, tmp_path: Path, suffix: str) -> None:
    small = bytearray(packed(content, suffix))
    small[len(small) // 2] ^= 0xFF
    path = tmp_path / f"r.sqlite{suffix}"
    for damaged, said in ((small, "corrupt"), (packed(b"", suffix), "is empty")):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=said):
            load(path)


def test_several_zstd_frames_are_one_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite.zst"
    half = len(content) // 2
    path.write_bytes(packed(content[:half], ".zst") + packed(content[half:], ".zst"))
    assert load(path).ops.height == 50


def test_the_error_for_a_truncated_report_names_the_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite.gz"
    path.write_bytes(gzip.compress(sqlite_report(tmp_path).read_bytes()[:-1]))
    with pytest.raises(Damaged, match=r"r\.sqlite\.gz is truncated"):
        load(path)


def test_no_temporary_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = DATA / "h200-parquetdir.tar.xz"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    load(DATA / "synthetic-1.sqlite.xz")
    with pytest.raises(NotAReport) as caught:
        load(archive)
    assert caught.value.command == f"tar -xf {archive}"
    assert list(tmp_path.iterdir()) == []


@each_suffix
def test_what_unpacks_to_far_more_than_a_report_is_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_ANY_RATIO_BYTES", 1 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bomb = tmp_path / f"r.sqlite{suffix}"
    with bomb.open("wb") as packed:
        pack_into(BytesIO(bytes(1 << 24)), packed, suffix)
    with pytest.raises(Damaged, match=r"unpacks to more than [0-9,]+ bytes") as caught:
        load(bomb)
    assert caught.value.command.endswith(f" --decompress {bomb}")
    assert [*tmp_path.iterdir()] == [bomb]
    with bomb.open("wb") as packed:  # as large, but no more than a report would shrink
        pack_into(BytesIO(Random(1).randbytes(1 << 21)), packed, suffix)
    with pytest.raises(NotAReport):
        load(bomb)


def test_an_archive_is_not_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "r.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        content.writestr("../../r.sqlite", bytes(1 << 20))
    with pytest.raises(NotAReport):
        load(archive)
    assert [*tmp_path.iterdir()] == [archive]


def test_a_full_disk_says_where_to_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpacking, "_READERS", {".xz": lambda _: Full()})
    with pytest.raises(OutputError) as caught:
        load(DATA / "synthetic-1.sqlite.xz")
    assert caught.value.command == "export TMPDIR=FOLDER"
