"""What must hold between the oracle's tables of any report."""

from collections.abc import Mapping

import polars as pl

from tests.analyses import SCHEMAS
from tests.oracle.gaps import CAUSES
from tests.oracle.integrity import integrity
from tests.oracle.report import Report, Row


def assert_sums_agree(report: Report, tables: Mapping[str, list[Row]]) -> None:
    """Rows have the columns of their schema, and sums of one thing are the same in each table."""
    for name, rows in tables.items():
        of = SCHEMAS[name]
        for row in rows:
            assert set(row) == set(of)
        columns = {column: [row[column] for row in rows] for column in of}
        pl.DataFrame(columns, schema=of)  # values are of the column's type
    gaps = tables["gaps"]
    for cause in CAUSES:
        of_cause = sum(gap[f"{cause}_ns"] for gap in gaps)
        assert of_cause == sum(row[f"{cause}_ns"] for row in tables["accounting"])
        parts = [row for row in tables["gap_summary"] if row["cause"] == cause]
        assert of_cause == sum(row["total_ns"] for row in parts)
    idle = sum(gap["duration_ns"] for gap in gaps)
    assert idle == sum(row["idle_ns"] for row in tables["accounting"])
    assert idle == sum(row["idle_ns"] for row in tables["gap_histogram"])
    stalls = sum(gap[f"{c}_ns"] for gap in gaps for c in ("sync", "blocking_copy", "alloc"))
    assert stalls == sum(row["induced_idle_ns"] for row in tables["syncs"])
    kernels = sum(op.kind == "kernel" for op in report.ops)
    assert kernels == sum(row["count"] for row in tables["kernels"])
    memcpys = sum(op.kind == "memcpy" for op in report.ops)
    assert memcpys == sum(row["count"] for row in tables["copies"])
    for row in tables["phases"]:
        how = ("own", "borrowed", "process_range", "captured")
        assert row["ops"] == sum(row[f"{each}_ops"] for each in how)
        assert row["busy_ns"] <= row["graph_estimate_ns"]
        causes = [row[f"{c}_ns"] for c in CAUSES]
        assert sum(causes) == row["idle_ns"]
    for row in tables["steps"]:
        assert row["duration_ns"] >= 0
    for row in tables["starved"]:
        assert row["launch_idle_ns"] <= row["idle_ns"] <= row["end_ns"] - row["start_ns"]
    assert min(integrity(report).values()) >= 0
