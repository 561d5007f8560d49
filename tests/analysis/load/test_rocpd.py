"""rocpd databases of rocprofv3, in each form of their schema."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.base.errors import Incomplete
from tests.exports import note_kinds
from tests.oracle.model import from_trace
from tests.oracle.rocpd import plain_rocpd
from tests.rocpd import FORMS, PID, UUID, Database, Form, assert_is_step, write_rocpd

CPU, GPU = 1, 2


def step(form: Form, **more: Any) -> Database:
    """A step: a kernel, a wait for it, a copy to the GPU."""
    run = Database(form, **more)
    run.call(0, 200, 9, "roctxThreadRangeA", "MARKER_CORE_RANGE_API", "step 1")
    run.call(5, 10, 1)
    run.kernel(12, 40, 1)
    run.call(41, 100, 2, "hipDeviceSynchronize_spt")
    run.call(110, 150, 3, "hipMemcpy")
    run.copy(120, 149, 3, CPU, GPU, 4096)
    return run


def loaded(tmp_path: Path, *databases: Database) -> Trace:
    return load(write_rocpd(tmp_path / "1_results.db", *databases))


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_the_schema_tells_the_same(form: Form, tmp_path: Path) -> None:
    trace = loaded(tmp_path, step(form))
    assert trace.report == "1_results"
    assert trace.collector == "rocprof"
    assert trace.shapes.row(0) == (4, 1, 1, 64, 1, 1, 32, 1024)
    assert_is_step(trace)
    assert trace.devices.rows() == [(0, "AMD Instinct MI300X", None, 304, None)]
    assert {note.kind for note in trace.notes} == {NoteKind.NOT_CARRIED}


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    only_kernels = Database("inline")
    only_kernels.kernel(0, 1, 1)
    kinds = {note.kind for note in loaded(tmp_path, only_kernels).notes}
    assert kinds == {NoteKind.NO_CALLS, NoteKind.NO_RANGES}
    only_calls = step("inline", suffix="_b")
    only_calls.rows["rocpd_kernel_dispatch_b"][0]["start"] = None
    del only_calls.rows["rocpd_memory_copy_b"]
    path = write_rocpd(tmp_path / "2_results.db", only_calls)
    kinds = {note.kind for note in load(path).notes}
    assert kinds == {NoteKind.NO_GPU_WORK, NoteKind.UNUSABLE_ROWS}


def test_a_newer_schema_is_said(tmp_path: Path) -> None:
    run = step("inline")
    run.rows[f"rocpd_metadata{UUID}"][0]["value"] = "5.0"
    assert NoteKind.NEWER_SCHEMA in {note.kind for note in loaded(tmp_path, run).notes}


def changed(tmp_path: Path, form: Form, sql: str) -> Path:
    path = write_rocpd(tmp_path / "1_results.db", step(form))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP VIEW rocpd_kernel_dispatch")
        db.execute(sql.format(UUID))
    return path


@pytest.mark.parametrize(
    ("form", "sql", "seen"),
    [
        ("inline", "DROP TABLE rocpd_event{}", "no table rocpd_event"),
        ("inline", "DROP TABLE rocpd_info_agent{}", "no table rocpd_info_agent"),
        ("inline", "ALTER TABLE rocpd_kernel_dispatch{} DROP COLUMN start", "no column start"),
        ("times", "ALTER TABLE rocpd_region{} DROP COLUMN end_id", "no column start"),
        ("tracks", "ALTER TABLE rocpd_event{} DROP COLUMN category_id", "category_id"),
        ("times", "ALTER TABLE rocpd_timestamp{} DROP COLUMN value", "column value"),
    ],
)
def test_a_database_that_lacks_something_is_named_with_what_to_type(
    form: Form, sql: str, seen: str, tmp_path: Path
) -> None:
    path = changed(tmp_path, form, sql)
    with pytest.raises(Incomplete, match=seen) as caught:
        load(path)
    assert str(path) in caught.value.seen
    assert "rocprofv3" in caught.value.command


@pytest.mark.parametrize(
    ("form", "table", "column", "value"),
    [
        ("inline", "kernel_dispatch", "start", "'soon'"),
        ("inline", "region", "end", "0.5"),
        ("inline", "event", "stack_id", "x'00ff'"),
        ("times", "timestamp", "value", "9e30"),
        ("tracks", "track", "agent_id", "'GPU'"),
        ("tracks", "info_process", "pid", "''"),
        ("tracks", "region", "name_id", "1e999"),
    ],
)
def test_what_is_no_number_is_left_out_with_a_note(
    form: Form, table: str, column: str, value: str, tmp_path: Path
) -> None:
    name = f"rocpd_{table}{UUID}"

    def with_value(sql: str) -> Trace:
        (tmp_path / sql).mkdir()
        last = f"rowid = (SELECT max(rowid) FROM {name})"
        update = f'UPDATE {name} SET "{column}" = {sql} WHERE {last}'
        return load(changed(tmp_path / sql, form, update))

    odd, null = with_value(value), with_value("NULL")
    assert from_trace(odd) == from_trace(null)
    (note,) = [note for note in odd.notes if note not in null.notes]
    assert note.kind is NoteKind.UNREAD_TABLES
    assert note.text.endswith(f"values of {name} that are no numbers, in 1 rows")


@pytest.mark.parametrize("column", ["info_process{}.pid", "metadata{}.tag", "metadata{}.value"])
def test_a_table_of_details_that_lacks_a_column_is_left_out_with_a_note(
    column: str, tmp_path: Path
) -> None:
    table, _, name = column.partition(".")
    trace = load(changed(tmp_path, "inline", f"ALTER TABLE rocpd_{table} DROP COLUMN {name}"))
    assert (len(trace.ops), len(trace.calls), len(trace.ranges)) == (2, 3, 1)
    (note,) = [note for note in trace.notes if note.kind is NoteKind.UNREAD_TABLES]
    assert note.text.endswith(f"{table.format(UUID)}, which has no column {name}")


@pytest.mark.parametrize("table", ["kernel_dispatch", "region"])
def test_rows_without_a_time_are_counted_in_a_note(table: str, tmp_path: Path) -> None:
    path = changed(tmp_path, "inline", f"UPDATE rocpd_{table}{{}} SET start = NULL")
    assert NoteKind.UNUSABLE_ROWS in note_kinds(load(path))


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM rocpd_event{}",
        "DELETE FROM rocpd_string{}",
        "DELETE FROM rocpd_info_process{}",
        "DROP TABLE rocpd_info_process{}",
        "DROP TABLE rocpd_info_thread{}",
        "DROP TABLE rocpd_metadata{}",
        "DROP TABLE rocpd_region{}",
        "DROP TABLE rocpd_memory_copy{}",
        "UPDATE rocpd_event{} SET extdata = '[', stack_id = NULL",
        "UPDATE rocpd_event{} SET extdata = '{{\"message\": 3}}', category_id = NULL",
        'UPDATE rocpd_info_agent{} SET extdata = \'{{"cu_count": "many"}}\', product_name = NULL',
        "UPDATE rocpd_info_agent{} SET type_index = NULL, logical_index = NULL",
        "UPDATE rocpd_info_agent{} SET type_index = 9000000000",
        "UPDATE rocpd_kernel_dispatch{} SET workgroup_size_x = 0, grid_size_y = -9000000000",
        "UPDATE rocpd_kernel_dispatch{} SET pid = NULL, tid = NULL, stream_id = NULL",
        "UPDATE rocpd_kernel_dispatch{} SET pid = -9000000000000000000",
        'UPDATE rocpd_kernel_dispatch{} SET start = 9223372036854775807, "end" = NULL',
        "UPDATE rocpd_info_kernel_symbol{} SET kernel_name = NULL",
        "UPDATE rocpd_info_kernel_symbol{} SET kernel_name = x'ff00'",
    ],
)
def test_a_database_with_holes_is_read_as_far_as_it_goes(sql: str, tmp_path: Path) -> None:
    trace = load(changed(tmp_path, "inline", sql))
    assert len(trace.ops) <= 2
    assert nsysflow.analyze(trace).accounting is not None


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("call", "range", "collective", "kernel", "copy")),
        st.integers(0, 60),
        st.integers(0, 20),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=12,
)
HOLES = st.lists(
    st.tuples(
        st.integers(0, 100),
        st.integers(0, 100),
        st.integers(0, 100),
        st.sampled_from((None, 0, 1, 2, 3, 99, -1, 1 << 33)),
    ),
    max_size=6,
)
"""A table, a row of it, a column of it, and what stands there instead."""


def random_database(form: Form, suffix: str, pid: int, events: Any, holes: Any) -> Database:
    """A database of such events in which some numbers are others."""
    run = Database(form, suffix=suffix, pid=pid)
    run.string("hipLaunchKernel")
    for kind, start, length, stack, number, other in (("kernel", 70, 5, 0, 0, 2), *events):
        span = (start, start + length, stack)
        if kind == "call":
            kinds = ("HIP_RUNTIME_API_EXT", "HIP_API", "HSA_CORE_API", "MARKER_CORE_API")
            category = kinds[number % 4]
            run.call(*span, ("hipLaunchKernel", "hipFree_spt")[other % 2], category)
        elif kind == "range":
            name = ("roctxThreadRangeA", "roctxProcessRangeA", "roctxRangeStartA")[number % 3]
            run.call(*span, name, "MARKER_CORE_RANGE_API", (None, "step", "nsysflow")[other % 3])
        elif kind == "collective":
            run.call(*span, "ncclAllReduce", "RCCL_API")
        elif kind == "kernel":
            name, node = ("_ZN4mine3addEPf.kd", "plain")[other % 2], number or None
            run.kernel(*span, name, parent=number, agent=other, graph_node_id=node)
        else:
            run.copy(*span, number or None, other or None, 64)
    tables = sorted(run.rows)
    for at, row, column, value in holes:
        rows = run.rows[tables[at % len(tables)]]
        numbers = [
            name
            for name in rows[0]
            if name != "id" and any(type(each.get(name)) is int for each in rows)
        ]
        if numbers:
            rows[row % len(rows)][numbers[column % len(numbers)]] = value
    return run


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FORMS), EVENTS, EVENTS, HOLES)
def test_each_row_becomes_what_the_oracle_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory, form: Form, first: Any, second: Any, holes: Any
) -> None:
    path = write_rocpd(
        tmp_path_factory.mktemp("rocpd") / "1_results.db",
        random_database(form, UUID, PID, first, holes),
        random_database("inline", "_ffff", PID + 1, second, ()),
    )
    found, wanted = from_trace(load(path)), plain_rocpd(path)
    for frame in ("ops", "calls", "ranges", "threads", "devices"):
        rows = (
            [replace(row, row=0) if frame == "ranges" else row for row in getattr(of, frame)]
            for of in (found, wanted)
        )
        one, other = (sorted(each, key=repr) for each in rows)
        assert one == other
