"""Notes on an export: each has a kind and says what the reader should know."""

from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from tests.analyses import every_report, loaded
from tests.analysis.load.frames import DOMAINS, loaded_and_packed, stack
from tests.exports import note_kinds, write_export

WHOLE: dict[str, Any] = {"kernels": [{}], "calls": [{}], "nvtx": [{}]}
BACKTRACE = stack("backtrace", 0, (1, 2, 3))
NOT_EXPORTED = {"nvtx": [{}, DOMAINS["backtrace"], BACKTRACE | {"jsonText": None}]}
SCHEMA_4 = {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.1"}]}
LATER = {
    "kernels": [{"clusterX": 2, "graphId": 1, "qmdLastCtaDone": None}],
    "cuda_devices": [{"uuid": "u", "numMultiprocessors": 132}],
    "gpus": [{"numaNodeId": 0}],
}
"""Columns that the published schema has, though not those nsys versions that made our reports."""


def counter(name: str) -> dict[str, list[dict[str, Any]]]:
    """The tables of an export with one GPU counter of that name."""
    key = {"typeId": 1, "metricId": 9}
    return {
        "GPU_METRICS": [{"timestamp": 5, **key, "value": 99}],
        "TARGET_INFO_GPU_METRICS": [{**key, "metricName": name}],
    }


HOST_FUNCTION: dict[str, Any] = {
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH": [
        {"start": 1, "end": 2, "deviceId": 0, "streamId": 7, "correlationId": 1}
    ]
}


@pytest.mark.parametrize(
    ("tables", "kind", "said"),
    [
        ({"kernels": None, "calls": None}, NoteKind.NO_GPU_WORK, "--trace cuda"),
        ({"calls": None}, NoteKind.NO_CALLS, "--trace cuda"),
        ({"nvtx": None}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({"nvtx": [BACKTRACE]}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({"kernels": None, "memsets": [{}]}, NoteKind.NO_KERNELS, "newer nsys"),
        (
            {"graphs": [{}, {"correlationId": 2}]},
            NoteKind.GRAPHS_TRACED_WHOLE,
            "the kernels of 2 graph launches are hidden",
        ),
        (
            NOT_EXPORTED,
            NoteKind.BACKTRACES_NOT_EXPORTED,
            "nsys export --type sqlite --force-overwrite=true --include-json=true REPORT.nsys-rep",
        ),
        ({"tables": HOST_FUNCTION}, NoteKind.NOT_CARRIED, "cudaLaunchHostFunc"),
        ({"tables": counter("GR Active")}, NoteKind.OTHER_COUNTERS, "--gpu-metrics-set"),
        (
            {"kernels": [{"correlationId": 0}, {"correlationId": None}, {}]},
            NoteKind.NO_CORRELATION,
            "2 of 3 GPU operations",
        ),
        ({"kernels": [{"start": None}, {}]}, NoteKind.UNUSABLE_ROWS, "1 rows were left out"),
        (
            {"calls": [{"nameId": 999}, {"nameId": "cudaFree"}, {"nameId": 998}]},
            NoteKind.NAMELESS_CALLS,
            "2 of 3 API calls",
        ),
        ({"kernels": [{"flux": 3}]}, NoteKind.UNKNOWN_COLUMNS, "CUPTI_ACTIVITY_KIND_KERNEL.flux"),
        ({"tables": SCHEMA_4}, NoteKind.NEWER_SCHEMA, "schema 4.0.1"),
    ],
)
def test_an_export_that_lacks_or_hides_something_has_a_note(
    tmp_path: Path, tables: dict[str, Any], kind: NoteKind, said: str
) -> None:
    notes = load(write_export(tmp_path / "r.sqlite", **WHOLE | tables)).notes
    assert [said in note.text for note in notes if note.kind == kind] == [True]


@pytest.mark.parametrize(
    "more",
    [
        {},
        LATER,
        {"memcpys": [{"copyKind": 11, "correlationId": 0}]},  # a page of managed memory
        {"nvtx": [{}, DOMAINS["backtrace"]]},
        {"nvtx": [{}, DOMAINS["backtrace"], BACKTRACE]},
        {"tables": counter("SM Active")},
    ],
)
def test_an_export_that_lacks_nothing_has_no_notes(tmp_path: Path, more: dict[str, Any]) -> None:
    assert load(write_export(tmp_path / "r.sqlite", **WHOLE | more)).notes == ()


def test_unknown_columns_and_a_newer_schema_change_no_rows(tmp_path: Path) -> None:
    plain = write_export(tmp_path / "plain.sqlite", **WHOLE)
    more = {"kernels": [{"flux": 3}], "tables": SCHEMA_4}
    newer = write_export(tmp_path / "newer.sqlite", **WHOLE | more)
    assert_frame_equal(load(plain).ops, load(newer).ops)


@every_report
def test_the_columns_of_real_reports_are_known(name: str) -> None:
    assert {NoteKind.UNKNOWN_COLUMNS, NoteKind.NEWER_SCHEMA}.isdisjoint(note_kinds(loaded(name)))


def test_backtraces_that_were_not_exported_are_noted(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", **WHOLE | NOT_EXPORTED)
    (tmp_path / "r.nsys-rep").touch()
    original, packed = loaded_and_packed(report)
    assert note_kinds(packed) == note_kinds(original) == [NoteKind.BACKTRACES_NOT_EXPORTED]
    command = f" --output={report} {tmp_path / 'r.nsys-rep'}"
    assert original.notes[0].text.endswith(command)
