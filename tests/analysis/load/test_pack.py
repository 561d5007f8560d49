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
from nsysflow.analysis.phases.names import group_names
from nsysflow.base.errors import Incomplete, NotAReport, OutputError
from tests.analyses import few_reports, loaded
from tests.analysis.load import frames
from tests.analysis.load.frames import DOMAINS, stack
from tests.exports import change, process, write_export
from tests.reports import DATA, PACKED, sqlite_report
from tests.rocpd import Database, write_rocpd

SECRET = "hunter2-token-of-the-traced-machine"
FRAMES = {*frames.FRAMES, "graph_nodes", "messages", "flops"} - {"diagnostics", "running", "frames"}
SMALL = DATA / "synthetic-1.sqlite.xz"


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
def test_a_packed_report_has_identical_frames(name: str, packed: Callable[[str], Path]) -> None:
    report, out = PACKED[name], packed(name)
    before, after = loaded(name), load(out)
    for frame in FRAMES:
        assert_frame_equal(getattr(before, frame), getattr(after, frame))
    assert (before.report, before.source, before.notes) == (after.report, after.source, after.notes)
    lost = before.diagnostics.filter(
        pl.col("text").str.contains("(?i)not all|lost|dropped|cuda events collected")
    )
    assert_frame_equal(lost, after.diagnostics)
    assert out.stat().st_size <= report.stat().st_size


@few_reports
def test_packing_twice_is_once(name: str, packed: Callable[[str], Path], tmp_path: Path) -> None:
    twice = tmp_path / "twice.sqlite"
    pack(packed(name), twice)
    assert lzma.decompress(packed(name).read_bytes()) == twice.read_bytes()


@pytest.mark.parametrize("suffix", [".sqlite", ".sqlite.xz", ".sqlite.gz", ".sqlite.zst"])
def test_the_suffix_says_how_it_is_written_and_the_bytes_are_always_the_same(
    tmp_path: Path, suffix: str
) -> None:
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    pack(SMALL, one)
    pack(SMALL, other)
    assert one.read_bytes() == other.read_bytes()
    assert load(one).ops.height == load(SMALL).ops.height
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([one.name, other.name])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The packed copy of a report with a secret wherever a text can be."""
    frames = [(900, 901, 3), (902, 903, 4)]
    backtrace = stack("backtrace", 0, *frames) | {"text": SECRET}
    report = write_export(
        tmp_path / "private.sqlite",
        kernels=[{"mangledName": 904}],
        calls=[{"nameId": "cudaLaunchKernel_v7000"}],
        nvtx=[
            {"text": "forward", "jsonText": f'{{"payload": "{SECRET}"}}'},
            {"eventType": 34, "text": f"mark {SECRET}"},
            {"eventType": 34, "text": f'{{"nsysflow": {{"capture": "3:2:5", "at": "{SECRET}"}}}}'},
            DOMAINS["backtrace"],
            backtrace | {"jsonText": backtrace["jsonText"].replace("Running", SECRET)},
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
    assert SECRET.encode() in report.read_bytes()
    out = tmp_path / "shared.sqlite"
    pack(report, out)
    return out


def test_a_packed_report_holds_what_the_analysis_needs_and_no_planted_secret(shared: Path) -> None:
    assert SECRET.encode() not in shared.read_bytes()
    trace = load(shared)
    assert trace.ops["short_name"].to_list() == ["add"]
    assert trace.ranges["name"].to_list() == ["forward"]
    assert trace.captures.rows() == [(process(), "3:2:5", None)]
    assert trace.diagnostics.rows() == [(3, "CUDA events were lost in (path)")]
    assert trace.source.endswith("schema 3.20.3")


PRIVATE_NAMES = {
    "generate prompt='Tell me a secret'": "generate prompt=(text)",
    "prompt: tell me": "prompt: (text)",
    'say "hello there" now': "say (text) now",
    "request cmpl-0f8fad5b-d9cb-469f-a165-70867728950e": "request cmpl-0",
    "request_ids=[a1, b2] bs=2": "request_ids=0 bs=2",
    "req 0f8fad5b-d9cb-469f-a165-70867728950e": "req 00000000-0000-0000-0000-000000000000",
    "hash 0123456789abcdef": "hash 0000000000000000",
    "load /home/me/llama/x.safetensors now": "load (path) now",
    "load C:\\Users\\me\\m.bin": "load (path)",
    "model=meta-llama/Llama-3-8B step": "model=(path) step",
    "models--meta--llama/refs": "(path)",
    # nobody's secrets
    **{
        name: name
        for name in (
            *("forward", "/step/forward", "step/forward", "prompts=3", "it's a dog's name"),
            *("execute_context_2(6144)_generation_3(3)", "decode[bs=117/128 tok=117 d=117]"),
            *("aten::mm, seq = 3, sizes = [[1, 2]]", "ivf::search(k = 10)", "query_key_value"),
            *(
                "{'Module': 'model.layers.0', 'Static Params': {}}",
                "é",
                "request 17",
                "text: x",
                "",
            ),
        )
    },
}


@pytest.mark.parametrize("registered", [False, True])
def test_names_of_ranges_lose_prompts_ids_and_paths(tmp_path: Path, registered: bool) -> None:
    """Also where a name is a registered string."""
    report, out = tmp_path / "private.sqlite", tmp_path / "shared.sqlite"
    key = "textId" if registered else "text"
    texts = [{"text": None, key: name} for name in PRIVATE_NAMES]
    write_export(report, kernels=[{}], calls=[{}], nvtx=texts)
    pack(report, out)
    assert load(out).ranges["name"].to_list() == [*PRIVATE_NAMES.values()]


def test_an_id_becomes_one_that_the_analysis_drops_as_well() -> None:
    names = pl.Series([name for name, left in PRIVATE_NAMES.items() if "00000" in left])
    left = pl.Series([PRIVATE_NAMES[name] for name in names])
    assert len(names) == 2
    assert group_names(left).to_list() == group_names(names).to_list()


def test_backtraces_stay_with_shortened_paths(shared: Path) -> None:
    with closing(sqlite3.connect(shared)) as db:
        strings = dict(db.execute("SELECT id, value FROM StringIds"))
        kept = "SELECT jsonTextId FROM NVTX_EVENTS WHERE eventType = 34 AND jsonTextId NOT NULL"
        ((number,),) = db.execute(kept)
    assert '{"Function":900,"File":901,"Line":3}' in strings[number]
    assert [strings[number] for number in (900, 901, 902, 903)] == [
        "main",
        "train.py",
        "mm",
        "lib/python3.12/site-packages/torch/nn.py",
    ]


def test_a_report_plain_or_compressed_is_packed_alike_and_not_changed(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path)
    before = report.read_bytes()
    small = tmp_path / "r.sqlite.gz"
    small.write_bytes(gzip.compress(before))
    for source, out in ((report, "a.sqlite"), (small, "b.sqlite")):
        pack(source, tmp_path / out)
    assert (tmp_path / "a.sqlite").read_bytes() == (tmp_path / "b.sqlite").read_bytes()
    assert report.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 4


def test_a_place_where_it_cannot_be_written_is_refused_with_what_to_type(tmp_path: Path) -> None:
    report, folder = sqlite_report(tmp_path), tmp_path / "no"
    for out, command in (
        (report, f"nsysflow pack {report} -o packed-{report.name}"),
        (folder / "out.sqlite", f"mkdir -p {folder}"),
    ):
        with pytest.raises(OutputError) as caught:
            pack(report, out)
        assert caught.value.command == command
    for ending in ("", ".zip", ".xz"):
        with pytest.raises(OutputError, match=r"\.sqlite\.xz"):
            pack(SMALL, tmp_path / f"out{ending}")


def test_only_a_whole_report_of_nsys_can_be_packed(tmp_path: Path) -> None:
    out, notes = tmp_path / "out.sqlite", tmp_path / "notes.sqlite"
    with pytest.raises(NotAReport) as caught:
        pack(DATA / "h200-kineto.pt.trace.json.gz", out)
    kineto = DATA / "h200-kineto.pt.trace.json.gz"
    assert caught.value.command == f"nsysflow pack {kineto} -o packed.pftrace.xz"
    notes.write_text("not a report")
    with pytest.raises(NotAReport):
        pack(notes, out)
    run = Database("tracks")
    run.kernel(0, 1, 1)
    with pytest.raises(NotAReport, match="a database of rocprofv3"):
        pack(write_rocpd(tmp_path / "1_results.db", run), out)
    with pytest.raises(Incomplete):
        pack(change(sqlite_report(tmp_path), "DROP TABLE StringIds"), out)
    assert not out.exists()


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(plain: IO[bytes], packed: IO[bytes], suffix: str) -> None:
        packed.write(plain.read(10))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nsysflow.analysis.load.pack.pack_into", full)
    with pytest.raises(OutputError, match="no space is left"):
        pack(SMALL, tmp_path / "out.sqlite")
    assert list(tmp_path.iterdir()) == []
