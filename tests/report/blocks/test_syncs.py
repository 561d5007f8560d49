"""Waits of the host."""

from typing import Any

from nsysflow.report.blocks.syncs import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, device, results, training


def waits(of: Results, rows: int = 4) -> Block:
    return block(of, Limits(rows=rows))


def run(*syncs: dict[str, Any]) -> Results:
    return results(accounting=[device(MS)], syncs=list(syncs))


def test_calls_of_one_name_line_and_phase_are_one_row() -> None:
    wait = {"api": "sync", "kind": "sync", "source": "a.py:1 in f", "phase": "step"}
    (row,) = waits(run(*[{**wait, "induced_idle_ns": MS, "blocked_ns": 2 * MS}] * 3)).rows
    assert row == ("3.00 ms", "6.00 ms", "0", "3", "sync", "a.py:1 in f", "step")


def test_the_most_idle_time_behind_it_comes_first_not_the_longest_wait() -> None:
    block = waits(Results([training()]))
    assert [row[:2] for row in block.rows] == [("8.00 ms", "12.0 ms"), ("0", "211 ms")]


def test_the_longest_wait_is_shown_although_no_idle_time_is_behind_it() -> None:
    some = [
        {"api": f"call{i}", "kind": "sync", "blocked_ns": MS, "induced_idle_ns": MS}
        for i in range(9)
    ]
    block = waits(run(*some, {"api": "cudaDeviceSynchronize", "blocked_ns": 211 * MS}))
    assert len(block.rows) == 4
    assert block.rows[-1][1] == "211 ms"
    assert block.more == ("6 more: --table syncs",)
