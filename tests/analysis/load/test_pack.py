"""A packed report gives the same results and contains nothing about its machine."""

import errno
import gzip
import lzma
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import IO

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.base.errors import Damaged, NotAReport, OutputError
from tests.analyses import few_reports, loaded
from tests.exports import change, write_export
from tests.reports import DATA, PACKED, sqlite_report

SECRET = "hunter2-token-of-the-traced-machine"
FRAMES = (
    "ops",
    "shapes",
    "copy_details",
    "calls",
    "ranges",
    "overhead",
    "event_records",
    "waits",
    "graph_nodes",
    "threads",
    "devices",
    "backtraces",
    "samples",
    "gpu_samples",
    "captures",
    "messages",
    "flops",
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The packed copy of a report, made once."""
    folder = tmp_path_factory.mktemp("packed")

    @cache
    def pack_once(name: str) -> Path:
        out = folder / PACKED[name].name
        pack(PACKED[name], out)
        return out

    return pack_once


@few_reports
def test_a_packed_report_loads_to_identical_frames(
    name: str, packed: Callable[[str], Path]
) -> None:
    report, out = PACKED[name], packed(name)
    before, after = loaded(name), load(out)
    for frame in FRAMES:
        assert_frame_equal(getattr(before, frame), getattr(after, frame))
    assert (before.report, before.source, before.notes) == (after.report, after.source, after.notes)
    lost = before.diagnostics.filter(pl.col("text").str.contains("(?i)not all|lost|dropped"))
    assert_frame_equal(lost, after.diagnostics)
    assert out.stat().st_size <= report.stat().st_size


@few_reports
def test_packing_a_packed_report_changes_nothing(
    name: str, packed: Callable[[str], Path], tmp_path: Path
) -> None:
    twice = tmp_path / "twice.sqlite"
    pack(packed(name), twice)
    assert lzma.decompress(packed(name).read_bytes()) == twice.read_bytes()


@pytest.mark.parametrize("suffix", [".sqlite", ".sqlite.xz", ".sqlite.gz", ".sqlite.zst"])
def test_the_suffix_says_how_it_is_written_and_the_bytes_are_always_the_same(
    tmp_path: Path, suffix: str
) -> None:
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    pack(DATA / "synthetic-1.sqlite.xz", one)
    pack(DATA / "synthetic-1.sqlite.xz", other)
    assert one.read_bytes() == other.read_bytes()
    assert load(one).ops.height == load(DATA / "synthetic-1.sqlite.xz").ops.height
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([one.name, other.name])


def _with_secrets(path: Path) -> Path:
    frames = '{"Function":900,"File":901,"Line":3},{"Function":902,"File":903,"Line":4}'
    backtrace = '{"Python Backtrace on CUDA":{"Frames":[' + frames + f'],"Host":"{SECRET}"' + "}}"
    return write_export(
        path,
        kernels=[{"mangledName": 904}],
        calls=[{"nameId": "cudaLaunchKernel_v7000"}],
        nvtx=[
            {"text": "forward", "jsonText": f'{{"payload": "{SECRET}"}}'},
            {"eventType": 34, "text": f"mark {SECRET}"},
            {"eventType": 34, "text": SECRET, "jsonText": backtrace},
        ],
        diagnostics=[
            {"text": f"Process {SECRET} was started.", "severity": 1},
            {"text": f"CUDA events were lost in /home/{SECRET}/run.", "severity": 3},
        ],
        strings={
            900: "main",
            901: f"/home/{SECRET}/train.py",
            902: "mm",
            903: f"/home/{SECRET}/.venv/lib/python3.12/site-packages/torch/nn.py",
            904: f"_Z3addv{SECRET}",
            905: f"API_KEY={SECRET}",
        },
        tables={
            "META_DATA_CAPTURE": [{"name": "ENV", "value": SECRET}],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": SECRET}],
            "PROCESSES": [{"globalPid": 1, "name": f"python --password {SECRET}"}],
            "ANALYSIS_FILE": [{"id": 1, "filename": f"/proc/{SECRET}"}],
            "META_DATA_EXPORT": [
                {"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.3"},
                {"name": "EXPORT_PARAM_INPUT_FILE", "value": f"/home/{SECRET}/r.nsys-rep"},
            ],
        },
    )


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    out = tmp_path / "shared.sqlite"
    report = _with_secrets(tmp_path / "private.sqlite")
    assert SECRET.encode() in report.read_bytes()
    pack(report, out)
    return out


def test_a_packed_report_holds_no_planted_secret(shared: Path) -> None:
    assert SECRET.encode() not in shared.read_bytes()


def test_a_packed_report_holds_what_the_analysis_needs(shared: Path) -> None:
    trace = load(shared)
    assert trace.ops["short_name"].to_list() == ["add"]
    assert trace.ranges["name"].to_list() == ["forward"]
    assert trace.diagnostics.rows() == [(3, "CUDA events were lost in (path)")]
    assert trace.source.endswith("schema 3.20.3")


def test_backtraces_stay_with_shortened_paths(shared: Path) -> None:
    with closing(sqlite3.connect(shared)) as db:
        strings = dict(db.execute("SELECT id, value FROM StringIds"))
        (stack,) = db.execute("SELECT jsonTextId FROM NVTX_EVENTS WHERE eventType = 34").fetchone()
    assert '{"Function":900,"File":901,"Line":3}' in strings[stack]
    assert [strings[number] for number in (900, 901, 902, 903)] == [
        "main",
        "train.py",
        "mm",
        "lib/python3.12/site-packages/torch/nn.py",
    ]


def test_a_compressed_report_can_be_packed(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path)
    plain, packed = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    small = tmp_path / "r.sqlite.gz"
    small.write_bytes(gzip.compress(report.read_bytes()))
    pack(report, plain)
    pack(small, packed)
    assert plain.read_bytes() == packed.read_bytes()


def test_the_report_is_not_changed(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path)
    before = report.read_bytes()
    pack(report, tmp_path / "out.sqlite.xz")
    assert report.read_bytes() == before
    assert lzma.decompress((tmp_path / "out.sqlite.xz").read_bytes())[:6] == b"SQLite"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_report_is_not_packed_onto_itself(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path)
    with pytest.raises(OutputError) as caught:
        pack(report, report)
    assert caught.value.command == f"nsysflow pack {report} -o packed-{report.name}"


@pytest.mark.parametrize("name", ["out", "out.zip", "out.xz"])
def test_an_output_name_without_a_known_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"\.sqlite\.xz"):
        pack(DATA / "synthetic-1.sqlite.xz", tmp_path / name)


def test_the_command_for_a_missing_folder_makes_it(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        pack(DATA / "synthetic-1.sqlite.xz", tmp_path / "no" / "out.sqlite")
    assert caught.value.command == f"mkdir -p {tmp_path / 'no'}"


def test_a_trace_of_torch_profiler_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(NotAReport) as caught:
        pack(DATA / "h200-kineto.pt.trace.json.gz", tmp_path / "out.sqlite")
    assert caught.value.command == "nsysflow profile --collector nsys -- COMMAND"
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_a_report_cannot_be_packed(tmp_path: Path) -> None:
    (tmp_path / "notes.sqlite").write_text("not a report")
    with pytest.raises(NotAReport):
        pack(tmp_path / "notes.sqlite", tmp_path / "out.sqlite")


def test_a_damaged_report_is_not_packed(tmp_path: Path) -> None:
    report = change(sqlite_report(tmp_path), "UPDATE NVTX_EVENTS SET start = 'soon'")
    with pytest.raises(Damaged):
        pack(report, tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(plain: IO[bytes], packed: IO[bytes], suffix: str) -> None:
        packed.write(plain.read(10))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nsysflow.analysis.load.pack.pack_into", full)
    with pytest.raises(OutputError, match="no space is left"):
        pack(DATA / "synthetic-1.sqlite.xz", tmp_path / "out.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_unreadable_backtraces_are_ignored_before_and_after_packing(tmp_path: Path) -> None:
    deep, wide = "[" * 100_000, f'{{"Function":1,"File":{2**70},"Line":3}}'
    said = '{"Python Backtrace on CUDA":{"Frames":[' + wide + "]}}"
    rows = [{"eventType": 34, "text": "trace", "jsonText": text} for text in (deep, said)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=rows)
    pack(report, tmp_path / "packed.sqlite")
    assert load(tmp_path / "packed.sqlite").backtraces.equals(load(report).backtraces)
