"""The analysis against its slow twin: every table, on random traces and on real reports."""

import lzma
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis.schema import TABLES as SCHEMAS
from tests.twin.export import read_export
from tests.twin.integrity import integrity
from tests.twin.model import TwinTrace, to_trace
from tests.twin.report import Report
from tests.twin.strategies import traces
from tests.twin.tables import TABLES

HERE = Path(__file__).parent
FOLDERS = (HERE / "data", HERE.parent / "samples")
REPORTS = sorted(report for folder in FOLDERS for report in folder.glob("*.sqlite.xz"))

INTEGRITY = {
    "kernels before their launch": "before_launch",
    "operations without a launch": "no_launch",
    "negative durations": "negative",
    "launches without an operation": "no_operation",
    "events lost": "events_lost",
    "clock jumps": "clock_jumps",
    "overlapping kernels on one stream": "stream_overlap",
}


def plain(value: object) -> object:
    """A value as both sides can be compared: shares differ in the last bits of a float."""
    return round(value, 9) if isinstance(value, float) else value


def rows_of(frame: pl.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    rows = [tuple(plain(row[c]) for c in columns) for row in frame.to_dicts()]
    return sorted(rows, key=repr)


def assert_agrees(model: TwinTrace) -> None:
    analysis = nsysflow.analyze(to_trace(model))
    report = Report(model)
    for name, twin in TABLES.items():
        columns = [column for column in SCHEMAS[name] if column != "class"]
        theirs = [{c: row[c] for c in columns} for row in twin(report)]
        expected = sorted((tuple(plain(row[c]) for c in columns) for row in theirs), key=repr)
        found = rows_of(getattr(analysis, name), columns)
        assert [dict(zip(columns, row, strict=True)) for row in found if row not in expected] == [
            dict(zip(columns, row, strict=True)) for row in expected if row not in found
        ], name
        assert found == expected, name
    counts = dict(analysis.integrity.select("check", "count").rows())
    twins = integrity(report)
    assert {check: counts.get(check, 0) for check in INTEGRITY} == {
        check: twins[name] for check, name in INTEGRITY.items()
    }


@given(traces())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_table_of_a_random_trace_is_the_twins(model: TwinTrace) -> None:
    assert_agrees(model)


@pytest.mark.parametrize("packed", REPORTS, ids=lambda path: path.name.split(".")[0])
def test_every_table_of_a_real_report_is_the_twins(packed: Path, tmp_path: Path) -> None:
    report = tmp_path / packed.name.removesuffix(".xz")
    report.write_bytes(lzma.decompress(packed.read_bytes()))
    assert_agrees(read_export(report))
