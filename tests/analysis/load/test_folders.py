"""All exports are read completely: rows of any order and type, and folders of tables as SQLite."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.export_tables import TABLES
from nsysflow.base.errors import Damaged, Incomplete
from tests.analysis.load.frames import FRAMES, assert_schemas
from tests.exports import add_rows, change, write_export
from tests.reports import parquetdir_report, sqlite_report

NAMES = ("h200-ddp-rank0", "synthetic-2", "h200-graph-level", "h200-backtrace", "h200-gpu-metrics")
UNSIGNED = {
    *("globalPid", "globalTid", "correlationId", "streamId", "deviceId"),
    *("id", "demangledName", "typeId", "domainId"),
}


ENDINGS = {"parquetdir": ".parquet", "arrowdir": ".arrow"}

each_kind = pytest.mark.parametrize("kind", ENDINGS)


def write_table(table: pl.DataFrame, kind: str, file: Path) -> None:
    """A file of that kind of folder."""
    if kind == "parquetdir":
        table.write_parquet(file)
    else:
        table.write_ipc_stream(file)


def as_folder(database: Path, folder: Path, kind: str) -> Path:
    """The tables of an SQLite export as nsys's other exports have them: ids unsigned."""
    folder.mkdir()
    with closing(sqlite3.connect(database)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            frame = pl.read_database(f"SELECT * FROM {name}", db, infer_schema_length=None)
            wide = [column for column in UNSIGNED if frame.schema.get(column) == pl.Int64]
            frame = frame.with_columns(pl.col(wide).cast(pl.UInt64, wrap_numerical=True))
            write_table(frame, kind, folder / f"{name}{ENDINGS[kind]}")
    return folder


@each_kind
@pytest.mark.parametrize("name", NAMES)
def test_all_exports_of_a_report_are_the_same_trace(tmp_path: Path, name: str, kind: str) -> None:
    database = sqlite_report(tmp_path, name)
    folder = as_folder(database, tmp_path / "folder", kind)
    one, other = load(database), load(folder)
    for frame in FRAMES:
        assert_frame_equal(getattr(one, frame), getattr(other, frame))
    assert (one.source, one.notes) == (other.source, other.notes)
    assert other.report == "folder"


def test_a_real_parquetdir_loads(tmp_path: Path) -> None:
    trace = load(parquetdir_report(tmp_path))
    assert_schemas(trace)
    assert trace.report == "h200-parquetdir"
    assert trace.source == "Nsight Systems 2025.3.2.0, schema 3.20.3"
    assert trace.shapes.height == 552
    assert trace.notes == ()


@each_kind
def test_a_folder_without_strings_is_incomplete(tmp_path: Path, kind: str) -> None:
    folder = as_folder(sqlite_report(tmp_path), tmp_path / "folder", kind)
    (folder / f"StringIds{ENDINGS[kind]}").unlink()
    with pytest.raises(Incomplete, match="StringIds") as caught:
        load(folder)
    assert f"--type {kind}" in caught.value.command


@each_kind
def test_a_truncated_table_is_named_and_text_where_numbers_belong_is_damage(
    tmp_path: Path, kind: str
) -> None:
    folder = as_folder(sqlite_report(tmp_path), tmp_path / "folder", kind)
    table = folder / f"CUPTI_ACTIVITY_KIND_KERNEL{ENDINGS[kind]}"
    content = table.read_bytes()
    for size in (0, 3, 100, 10_000, len(content) - 8, len(content) - 1):
        table.write_bytes(content[:size])
        with pytest.raises(Damaged, match=f"CUPTI_ACTIVITY_KIND_KERNEL{ENDINGS[kind]}"):
            load(folder)
    text = {name: ["soon"] for name in TABLES["kernels"].required}
    write_table(pl.DataFrame(text), kind, table)
    with pytest.raises(Damaged, match="text where numbers belong"):
        load(folder)


CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.mark.parametrize("name", ["h200-graph-ranges", "h200-ddp-rank1"])
def test_rows_of_every_table_in_another_order_change_no_result(tmp_path: Path, name: str) -> None:
    """As nsys 2025.6 may export them."""
    path = sqlite_report(tmp_path, name)
    before = nsysflow.analyze(load(path))
    with closing(sqlite3.connect(path)) as db, db:
        db.create_function("shuffled", 0, random.Random(1).random)
        made = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        for table in [table for table, sql in made if "PRIMARY KEY" not in sql]:
            db.execute(f"CREATE TEMP TABLE mixed AS SELECT * FROM {table} ORDER BY shuffled()")
            db.execute(f"DELETE FROM {table}")
            db.execute(f"INSERT INTO {table} SELECT * FROM mixed")
            db.execute("DROP TABLE mixed")
    after = nsysflow.analyze(load(path))
    for table in ("gaps", "steps", "phases", "waited", "syncs", "comm", "kernels", "findings"):
        assert_frame_equal(getattr(after, table), getattr(before, table))


def test_text_that_is_not_utf8_keeps_what_can_be_read(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", nvtx=[{"text": b"caf\xe9"}, {"text": "café"}])
    assert load(path).ranges["name"].to_list() == ["caf\ufffd", "café"]


def test_a_batch_of_nulls_before_the_first_text_does_not_decide_the_type(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", nvtx=[{"textId": "registered"}])
    add_rows(path, "NVTX_EVENTS", 70_000)
    change(path, "UPDATE NVTX_EVENTS SET text = 'explicit' WHERE rowid = 70001")
    names = load(path).ranges["name"]
    assert names[0] == "registered"
    assert names[-1] == "explicit"
    assert load(path).ranges["row"].to_list() == list(range(70_001))


def test_text_far_below_numbers_is_found(tmp_path: Path) -> None:
    path = add_rows(write_export(tmp_path / "r.sqlite", calls=[{}]), CALLS, 70_000)
    change(path, f"UPDATE {CALLS} SET start = 'soon' WHERE rowid = 70001")
    with pytest.raises(Damaged, match="text where numbers belong"):
        load(path)


@each_kind
def test_folders_say_which_calls_found_no_memory(tmp_path: Path, kind: str) -> None:
    calls = [{"nameId": "cudaMalloc", "returnValue": 2}, {"start": 5, "nameId": "cudaFree"}]
    database = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=calls)
    one, other = load(database), load(as_folder(database, tmp_path / "folder", kind))
    assert one.failed_calls.height == 1
    assert_frame_equal(one.failed_calls, other.failed_calls)
    change(database, "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN returnValue")
    assert load(as_folder(database, tmp_path / "without", kind)).failed_calls.is_empty()


def test_a_parquet_page_of_less_than_no_values_is_refused(tmp_path: Path) -> None:
    # polars takes that number for one without a sign, and its process ends
    folder = parquetdir_report(tmp_path)
    file = folder / "StringIds.parquet"
    names = pl.DataFrame({"id": range(72), "value": ["a", None] * 36})
    names.write_parquet(file, compression="uncompressed", statistics=False)
    values_72, values_minus_73 = b",\x15\x90\x01", b",\x15\x91\x01"  # in the header of a page
    whole = file.read_bytes()
    assert values_72 in whole
    file.write_bytes(whole.replace(values_72, values_minus_73))
    with pytest.raises(Damaged, match=r"corrupt: StringIds\.parquet cannot be read \(memory"):
        load(folder)


def test_an_arrow_batch_of_exabytes_is_refused(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path, "fusion-eager")
    folder = as_folder(report, tmp_path / "folder", "arrowdir")
    file = folder / "StringIds.arrow"
    names = pl.read_ipc_stream(file)
    whole, text_bytes = file.read_bytes(), names["value"].str.len_bytes()
    long = int(text_bytes.filter(text_bytes > 12).sum())  # shorter ones stand in the views
    length = long.to_bytes(8, "little")
    assert length in whole
    file.write_bytes(whole.replace(length, (1 << 62).to_bytes(8, "little")))
    with pytest.raises(Damaged, match=r"corrupt: StringIds\.arrow cannot be read \(memory"):
        load(folder)
