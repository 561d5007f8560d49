"""What the next compute operation waited for."""

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.schema import OPS
from nsysflow.analysis.trace import Trace
from tests.analyses import analysed, every_report, loaded
from tests.oracle.model import PlainTrace, to_trace
from tests.reports import sqlite_report
from tests.tiny import Row, copy, kernel, launch, on_stream, plain_of, told

NCCL = "ncclDevKernel_AllReduce"


def split_of(trace: PlainTrace) -> list[tuple[str, int, int]]:
    """Kind, start and end of each piece, in order."""
    pieces = nsysflow.analyze(to_trace(trace)).timeline.waited.sort("device_no", "start_ns")
    return pieces.select("kind", "start_ns", "end_ns").rows()


def test_a_kernel_that_is_not_launched_yet_waits_for_the_host_and_then_starts() -> None:
    trace = plain_of(launch(0, 5, 1), kernel(6, 100, 1), launch(140, 150, 2), kernel(153, 200, 2))
    assert split_of(trace) == [("host", 100, 150), ("start", 150, 153)]


@pytest.mark.parametrize(("late_ns", "kind"), [(10_000, "start"), (10_001, "unresolved")])
def test_a_start_of_more_than_10_us_is_not_resolved(late_ns: int, kind: str) -> None:
    trace = plain_of(
        launch(0, 5, 1), launch(5, 10, 2), kernel(6, 100, 1), kernel(100 + late_ns, 20_000, 2)
    )
    assert split_of(trace) == [(kind, 100, 100 + late_ns)]


def test_a_kernel_without_a_launch_is_not_resolved() -> None:
    trace = plain_of(launch(0, 5, 1), kernel(6, 100, 1), kernel(150, 200, None))
    assert split_of(trace) == [("unresolved", 100, 150)]


def test_what_no_compute_follows_is_not_resolved() -> None:
    trace = plain_of(
        launch(0, 5, 1),
        kernel(6, 100, 1),
        launch(5, 10, 2),
        copy(100, 150, 2, "DtoH", "device", "pinned"),
    )
    assert split_of(trace) == [("unresolved", 100, 150)]


def test_a_copy_before_the_kernel_on_its_stream_was_waited_for() -> None:
    trace = plain_of(
        launch(0, 5, 1),
        kernel(6, 100, 1),
        launch(100, 110, 2, name="cudaMemcpyAsync"),
        copy(112, 150, 2, "HtoD", "pinned", "device"),
        launch(110, 115, 3),
        kernel(151, 200, 3),
    )
    assert split_of(trace) == [
        ("host", 100, 110),
        ("start", 110, 112),
        ("copy", 112, 150),
        ("start", 150, 151),
    ]


def test_communication_on_another_stream_counts_only_where_an_event_is_waited_for() -> None:
    rows = (
        launch(0, 5, 1),
        kernel(6, 100, 1),
        launch(5, 10, 2),
        on_stream(kernel(20, 150, 2, name=NCCL), 20),
        launch(40, 45, 3),
        kernel(151, 200, 3),
    )
    waiting = told(*rows, record=(12, 20), wait=(14, 7))
    assert split_of(waiting) == [("communication", 100, 150), ("start", 150, 151)]
    assert split_of(plain_of(*rows)) == [("start", 100, 151)]
    # told to wait after the launch: the kernel does not
    assert split_of(told(*rows, record=(12, 20), wait=(50, 7))) == [("start", 100, 151)]


def test_the_chain_goes_on_through_a_copy_to_the_communication_before_it() -> None:
    trace = told(
        launch(0, 5, 1),
        kernel(6, 100, 1),
        launch(5, 10, 2),
        on_stream(kernel(20, 150, 2, name=NCCL), 20),
        launch(20, 25, 3, name="cudaMemcpyAsync"),
        copy(151, 160, 3, "DtoD", "device", "device"),
        launch(25, 30, 4),
        kernel(161, 200, 4),
        record=(12, 20),
        wait=(14, 7),
    )
    assert split_of(trace) == [
        ("communication", 100, 150),
        ("start", 150, 151),
        ("copy", 151, 160),
        ("start", 160, 161),
    ]


def test_a_wait_for_another_gpu_is_other() -> None:
    far = replace(kernel(20, 150, 2), device=1, stream=30)
    trace = told(
        launch(0, 5, 1),
        kernel(6, 100, 1),
        launch(5, 10, 2),
        far,
        launch(40, 45, 3),
        kernel(151, 200, 3),
        record=(12, 30),
        wait=(14, 7),
        device=1,
    )
    assert split_of(trace) == [("other", 100, 150), ("start", 150, 151)]


def test_a_dependency_names_the_operation_that_the_stream_was_told_to_wait_for() -> None:
    trace = told(
        launch(0, 5, 1),
        on_stream(kernel(6, 100, 1, name=NCCL), 20),
        launch(40, 45, 3),
        kernel(10_101, 20_000, 3),
        record=(12, 20),
        wait=(14, 7),
    )
    analysis = nsysflow.analyze(to_trace(trace))
    (row,) = analysis.gap_summary.to_dicts()
    assert (row["cause"], row["culprit"]) == ("dependency", f"{NCCL} on stream 20")
    assert analysis.gaps["culprit"].to_list() == [row["culprit"]]


def test_a_chain_of_thousands_of_copies_is_followed_to_its_beginning() -> None:
    count = 3_000
    rows: list[Row] = [launch(0, 5, 1), kernel(6, 100, 1)]
    for number in range(2, count + 2):
        at = 100 * (number - 1)
        rows.append(launch(at - 60, at - 50, number, name="cudaMemcpyAsync"))
        rows.append(copy(at + 10, at + 100, number, "HtoD", "pinned", "device"))
    at = 100 * (count + 1)
    rows += [launch(at - 60, at - 50, count + 2), kernel(at + 10, at + 20, count + 2)]
    totals = dict.fromkeys(("host", "communication", "copy", "other", "start", "unresolved"), 0)
    for kind, start, end in split_of(plain_of(*rows)):
        totals[kind] += end - start
    assert totals == totals | {"copy": 90 * count, "start": 10 * (count + 1), "unresolved": 0}


def totals_of(trace: Trace) -> dict[str, int]:
    table = nsysflow.analyze(trace).waited
    return dict(table.group_by("kind").agg(pl.col("total_ns").sum()).rows())


def test_the_time_without_compute_of_a_rank_is_that_of_its_communication_copies_and_host() -> None:
    assert totals_of(loaded("h200-ddp-rank1")) == {
        "communication": 32_750_064,
        "copy": 417_116,
        "host": 741_082,
        "start": 698_781,
    }


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


@every_report
def test_the_kinds_of_a_device_sum_to_its_time_without_compute(name: str) -> None:
    analysis = analysed(name)
    split = dict(analysis.waited.group_by("device").agg(pl.col("total_ns").sum()).rows())
    rest = pl.col("window_ns") - pl.col("compute_ns")
    expected = dict(analysis.accounting.select("device", rest).rows())
    assert {device: split.get(device, 0) for device in expected} == expected
