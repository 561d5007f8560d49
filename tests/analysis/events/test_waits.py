"""What the next compute operation waited for."""

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import polars as pl

import nsysflow
from nsysflow.analysis.schema import OPS
from nsysflow.analysis.trace import Trace
from tests.agreement import Picture, assert_pictures_agree
from tests.analyses import loaded
from tests.oracle.model import to_trace
from tests.reports import sqlite_report
from tests.tiny import Row, copy, kernel, launch, on_stream, plain_of, told

NCCL = "ncclDevKernel_AllReduce"
COPY = "cudaMemcpyAsync"


def late(ns: int) -> Picture:
    """A kernel that starts so long after its stream was free."""
    return [launch(0, 5, 1), launch(5, 10, 2), kernel(6, 100, 1), kernel(100 + ns, 20_000, 2)]


FIRST = launch(0, 5, 1), kernel(6, 100, 1)
BEGAN = *FIRST, launch(5, 10, 2)
COMM = on_stream(kernel(20, 150, 2, name=NCCL), 20)
FAR = replace(kernel(20, 150, 2), device=1, stream=30)
BEHIND = launch(40, 45, 3), kernel(151, 200, 3)
CHAIN = (
    *(launch(20, 25, 3, name=COPY), copy(151, 160, 3, "DtoD", "device", "device")),
    *(launch(25, 30, 4), kernel(161, 200, 4)),
)
DEPENDENCY = (
    *(launch(0, 5, 1), on_stream(kernel(6, 100, 1, name=NCCL), 20)),
    *(launch(40, 45, 3), kernel(10_101, 20_000, 3)),
)

PICTURES: dict[str, Picture] = {
    "a start of 10 us": late(10_000),
    "a start of over 10 us": late(10_001),
    "a copy before the kernel on its stream": [
        *(*FIRST, launch(100, 110, 2, name=COPY), copy(112, 150, 2, "HtoD", "pinned", "device")),
        *(launch(110, 115, 3), kernel(151, 200, 3)),
    ],
    "a collective that by its times is awaited": [*BEGAN, COMM, *BEHIND],
    "a collective that ended long before": [
        *(*BEGAN, COMM, launch(40, 45, 3), kernel(10_151, 20_000, 3))
    ],
    "work that is launched after a collective": [
        *(*BEGAN, COMM, launch(150, 155, 3), kernel(158, 200, 3))
    ],
    "an awaited collective": told(*BEGAN, COMM, *BEHIND, record=(12, 20), wait=(14, 7)),
    "a wait after the launch": told(*BEGAN, COMM, *BEHIND, record=(12, 20), wait=(50, 7)),
    "a chain through a copy": told(*BEGAN, COMM, *CHAIN, record=(12, 20), wait=(14, 7)),
    "another GPU": told(*BEGAN, FAR, *BEHIND, record=(12, 30), wait=(14, 7), device=1),
    "a dependency": told(*DEPENDENCY, record=(12, 20), wait=(14, 7)),
}


def test_pictures_of_waits_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def test_where_no_event_is_named_times_say_that_a_collective_was_awaited() -> None:
    alone = totals_of(to_trace(plain_of(*BEGAN, COMM, *BEHIND)))
    assert alone["communication"] == 50
    named = told(*BEGAN, COMM, *BEHIND, record=(12, 20), wait=(50, 7))
    assert "communication" not in totals_of(to_trace(named))


def test_a_chain_of_thousands_of_copies_is_followed_to_its_beginning() -> None:
    count = 3_000
    rows: list[Row] = [*FIRST]
    for number in range(2, count + 2):
        at = 100 * (number - 1)
        rows.append(launch(at - 60, at - 50, number, name=COPY))
        rows.append(copy(at + 10, at + 100, number, "HtoD", "pinned", "device"))
    at = 100 * (count + 1)
    rows += [launch(at - 60, at - 50, count + 2), kernel(at + 10, at + 20, count + 2)]
    totals = totals_of(to_trace(plain_of(*rows)))
    assert totals == {"copy": 90 * count, "start": 10 * (count + 1)}


def totals_of(trace: Trace) -> dict[str, int]:
    """The ns of each kind of wait."""
    table = nsysflow.analyze(trace).waited
    return dict(table.group_by("kind").agg(pl.col("total_ns").sum()).rows())


def test_another_numbering_of_events_changes_nothing(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path, "h200-ddp-rank1")
    before = nsysflow.analyze(nsysflow.load(path)).waited
    numbers = random.Random(0)
    with sqlite3.connect(path) as db:
        db.create_function("shuffled", 0, lambda: numbers.randrange(8))
        for table in ("SYNCHRONIZATION", "CUDA_EVENT"):
            db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET eventId = shuffled()")
    db.close()
    assert nsysflow.analyze(nsysflow.load(path)).waited.equals(before)


def with_long_communication(trace: Trace) -> Trace:
    """`trace` with a communication kernel on a stream of its own, over most of it."""
    first, last = trace.ops["start_ns"].min(), trace.ops["end_ns"].max()
    row = trace.ops.filter(pl.col("kind") == "kernel").head(1)
    added = row.with_columns(
        pl.lit(first).alias("start_ns"),
        pl.lit(last).alias("end_ns"),
        pl.lit(4_242, pl.Int64).alias("stream"),
        pl.lit(NCCL, pl.Categorical).alias("name"),
        pl.lit(NCCL, pl.Categorical).alias("short_name"),
    )
    return replace(trace, ops=pl.concat([trace.ops, added.match_to_schema(OPS)]))


def test_communication_that_nobody_waits_for_changes_no_kind() -> None:
    trace = loaded("h200-train")
    assert totals_of(with_long_communication(trace)) == totals_of(trace)
