"""What the benchmarks write in other formats holds the same run."""

from pathlib import Path

import polars as pl

from benchmarks.formats import kineto_text, write_rocpd
from nsysflow.analysis.load import load
from tests.reports import DATA

OPS = ("kind", "start_ns", "end_ns", "device", "stream", "correlation", "short_name")
CALLS = ("start_ns", "end_ns", "correlation", "name")


def test_the_same_run_in_other_formats_has_the_same_events(tmp_path: Path) -> None:
    trace = load(DATA / "h200-train.sqlite.xz")
    kineto, rocpd = tmp_path / "run.pt.trace.json", tmp_path / "run.db"
    kineto.write_text("".join(kineto_text(trace)), "utf-8")
    write_rocpd(trace, rocpd)
    ops = trace.ops.filter(pl.col("kind") == "kernel").select(OPS)
    for other in map(load, (kineto, rocpd)):
        assert other.ops.filter(pl.col("kind") == "kernel").select(OPS).equals(ops)
        assert len(other.copy_details) == len(trace.copy_details)
        assert other.shapes.select(pl.exclude("registers")).equals(
            trace.shapes.select(pl.exclude("registers"))
        )
        assert other.calls.select(CALLS).equals(trace.calls.select(CALLS))
        assert sorted(other.ranges["name"]) == sorted(trace.ranges["name"])
