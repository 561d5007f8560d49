"""Notes on an export: each has a kind and says what the reader should know."""

import json
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.notes import NoteKind
from tests.analyses import every_report, loaded
from tests.exports import note_kinds, write_export

WHOLE: dict[str, Any] = {"kernels": [{}], "calls": [{}], "nvtx": [{}]}
BACKTRACES = {"eventType": 75, "text": "Python Backtrace on CUDA", "domainId": 1, "end": None}
BACKTRACE = {"eventType": 34, "domainId": 1, "end": None}
STACK = json.dumps(
    {"Python Backtrace on CUDA": {"Frames": [{"Function": 1, "File": 2, "Line": 3}]}}
)
SCHEMA_4 = {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.1"}]}


def counter(name: str) -> dict[str, list[dict[str, Any]]]:
    """The tables of an export with one GPU counter of that name."""
    key = {"typeId": 1, "metricId": 9}
    return {
        "GPU_METRICS": [{"timestamp": 5, **key, "value": 99}],
        "TARGET_INFO_GPU_METRICS": [{**key, "metricName": name}],
    }


@pytest.mark.parametrize(
    ("tables", "kind", "said"),
    [
        ({"nvtx": [{}]}, NoteKind.NO_GPU_WORK, "--trace cuda"),
        ({**WHOLE, "calls": None}, NoteKind.NO_CALLS, "--trace cuda"),
        ({**WHOLE, "nvtx": None}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({**WHOLE, "nvtx": [BACKTRACE]}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({**WHOLE, "kernels": None, "memsets": [{}]}, NoteKind.NO_KERNELS, "newer nsys"),
        (
            {**WHOLE, "graphs": [{}, {"correlationId": 2}]},
            NoteKind.GRAPHS_TRACED_WHOLE,
            "the kernels of 2 graph launches are hidden",
        ),
        (
            {**WHOLE, "nvtx": [{}, BACKTRACES, BACKTRACE]},
            NoteKind.BACKTRACES_NOT_EXPORTED,
            "nsys export --type sqlite --force-overwrite=true --include-json=true REPORT.nsys-rep",
        ),
        ({**WHOLE, "tables": counter("GR Active")}, NoteKind.OTHER_COUNTERS, "--gpu-metrics-set"),
        (
            {**WHOLE, "kernels": [{"correlationId": 0}, {"correlationId": None}, {}]},
            NoteKind.NO_CORRELATION,
            "2 of 3 GPU operations",
        ),
        (
            {**WHOLE, "kernels": [{"start": None}, {}]},
            NoteKind.UNUSABLE_ROWS,
            "1 rows were left out",
        ),
        (
            {**WHOLE, "calls": [{"nameId": 999}, {"nameId": "cudaFree"}, {"nameId": 998}]},
            NoteKind.NAMELESS_CALLS,
            "2 of 3 CUDA calls",
        ),
        (
            {**WHOLE, "kernels": [{"flux": 3}]},
            NoteKind.UNKNOWN_COLUMNS,
            "CUPTI_ACTIVITY_KIND_KERNEL.flux",
        ),
        ({**WHOLE, "tables": SCHEMA_4}, NoteKind.NEWER_SCHEMA, "schema 4.0.1"),
    ],
)
def test_an_export_that_lacks_or_hides_something_has_a_note(
    tmp_path: Path, tables: dict[str, Any], kind: NoteKind, said: str
) -> None:
    notes = load(write_export(tmp_path / "r.sqlite", **tables)).notes
    assert [said in note.text for note in notes if note.kind == kind] == [True]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"nvtx": [{}, BACKTRACES]},
        {"nvtx": [{}, BACKTRACES, {**BACKTRACE, "jsonText": STACK}]},
        {"tables": counter("SM Active")},
    ],
)
def test_an_export_that_lacks_nothing_has_no_notes(tmp_path: Path, more: dict[str, Any]) -> None:
    assert load(write_export(tmp_path / "r.sqlite", **{**WHOLE, **more})).notes == ()


def test_unknown_columns_and_a_newer_schema_change_no_rows(tmp_path: Path) -> None:
    plain = write_export(tmp_path / "plain.sqlite", **WHOLE)
    newer = write_export(
        tmp_path / "newer.sqlite", **{**WHOLE, "kernels": [{"flux": 3}]}, tables=SCHEMA_4
    )
    assert_frame_equal(load(plain).ops, load(newer).ops)


def test_columns_of_the_published_schema_are_known(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "later.sqlite",
        kernels=[{"clusterX": 2, "graphId": 1, "qmdLastCtaDone": None}],
        calls=[{}],
        nvtx=[{}],
        cuda_devices=[{"uuid": "u", "numMultiprocessors": 132}],
        gpus=[{"numaNodeId": 0}],
    )
    assert load(path).notes == ()


@every_report
def test_the_columns_of_real_reports_are_known(name: str) -> None:
    assert {NoteKind.UNKNOWN_COLUMNS, NoteKind.NEWER_SCHEMA}.isdisjoint(note_kinds(loaded(name)))


def test_a_packed_report_still_says_that_backtraces_were_not_exported(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", **{**WHOLE, "nvtx": [{}, BACKTRACES, BACKTRACE]})
    pack(report, tmp_path / "packed.sqlite")
    assert note_kinds(load(tmp_path / "packed.sqlite")) == [NoteKind.BACKTRACES_NOT_EXPORTED]


def test_a_note_names_the_report_to_export_if_it_lies_beside(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", **{**WHOLE, "nvtx": [{}, BACKTRACES, BACKTRACE]})
    (tmp_path / "r.nsys-rep").touch()
    (note,) = load(report).notes
    assert note.text.endswith(f" --output={report} {tmp_path / 'r.nsys-rep'}")
