"""All idle time by cause and place."""

import polars as pl
import pytest

from nsysflow.report.idle_parts import (
    idle_parts,
    line_at,
    where_host_was,
    where_host_was_in_gap,
    without_function,
)
from nsysflow.report.results import Results
from tests.analyses import analysed
from tests.report.handmade import MS, device, frame, results


def place(table: str, where: pl.Expr, **row: object) -> str:
    """The host's place in one row."""
    return str(frame(table, row).select(where).item())


@pytest.mark.parametrize("cause", ["launch", "queue_delay", "dependency", "unknown"])
def test_work_launched_before_the_gap_is_placed_where_it_was_launched(cause: str) -> None:
    row = {"cause": cause, "host_range": "", "phase": "step/forward"}
    assert place("gap_summary", where_host_was(), **row) == "step/forward"
    assert place("gaps", where_host_was_in_gap(), **row) == "step/forward"


def test_host_code_outside_ranges_is_outside_whatever_comes_next() -> None:
    row = {"cause": "host", "phase": "step/forward"}
    outside = "(outside ranges)"
    assert place("gap_summary", where_host_was(), host_range=outside, **row) == outside
    assert place("gaps", where_host_was_in_gap(), host_range="", **row) == outside


@pytest.mark.parametrize("name", ["h200-gpt2-eager", "h200-train"])
def test_every_idle_ns_is_in_exactly_one_part(name: str) -> None:
    run = Results([analysed(name)])
    by_cause = dict(idle_parts(run).group_by("cause").agg(pl.col("total_ns").sum()).rows())
    (row,) = run.table("accounting").rows(named=True)
    assert by_cause == {cause: row[f"{cause}_ns"] for cause in by_cause}
    assert sum(by_cause.values()) == row["idle_ns"]


def test_a_wait_outside_the_steps_takes_nothing_from_a_step() -> None:
    wait = {"api": "a", "kind": "sync", "induced_idle_ns": 6 * MS, "start_ns": 50 * MS}
    step = {"step": 0, "start_ns": 60 * MS, "end_ns": 90 * MS}
    run = {"accounting": [device(100 * MS, sync_ns=6 * MS)], "syncs": [wait]}
    assert idle_parts(results(**run, steps=[step]))["per_step_ns"].to_list() == [0]
    assert idle_parts(results(**run))["per_step_ns"].to_list() == [None]


def test_a_wait_inside_the_steps_is_divided_by_their_number() -> None:
    wait = {"api": "a", "kind": "sync", "induced_idle_ns": 6 * MS, "start_ns": 50 * MS}
    steps = [{"step": at, "start_ns": 45 * at * MS, "end_ns": (45 * at + 45) * MS} for at in (0, 1)]
    run = results(accounting=[device(100 * MS, sync_ns=6 * MS)], syncs=[wait], steps=steps)
    assert idle_parts(run)["per_step_ns"].to_list() == [3 * MS]


def test_host_code_is_before_the_line_of_the_launch_after_it() -> None:
    assert line_at("host", "", "train.py:42 in step") == "before train.py:42"
    assert line_at("sync", "cudaStreamSynchronize", "a.py:1 in f") == "a.py:1 in f"
    assert line_at("host", "", "") == ""


def test_a_line_without_a_function_stays_as_it_is() -> None:
    assert without_function("train.py:42 in step") == "train.py:42"
    assert without_function("train.py:42") == "train.py:42"
