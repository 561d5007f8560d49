"""Rows of an SQLite export are read completely, whatever their order and types."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.base.errors import Damaged
from tests.exports import add_rows, change, write_export
from tests.reports import sqlite_report

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"


def test_rows_in_another_order_make_the_same_trace(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    before = load(path)
    with closing(sqlite3.connect(path)) as db:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", CALLS):
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            random.Random(1).shuffle(rows)
            db.execute(f"DELETE FROM {table}")
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        db.commit()
    after = load(path)
    assert_frame_equal(before.calls.sort(pl.all()), after.calls.sort(pl.all()))
    one, other = (
        trace.ops.filter(kind="kernel").join(trace.shapes.with_row_index("detail"), on="detail")
        for trace in (before, after)
    )
    assert one.height == before.shapes.height
    assert_frame_equal(*(frame.drop("detail").sort(pl.all()) for frame in (one, other)))


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
