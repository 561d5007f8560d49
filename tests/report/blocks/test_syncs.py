"""Waits of the host."""

from dataclasses import replace
from typing import Any

from nsysflow.report.blocks.syncs import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.found import found_of, stepped, valued
from tests.report.handmade import MS, Handmade, Results, device, handmade, results, training

WAIT = {"api": "sync", "kind": "sync", "source": "a.py:1 in f", "phase": "step"}


def waits(of: Results, rows: int = 4) -> Block:
    return block(of, Limits(rows=rows))


def run(*syncs: dict[str, Any]) -> Results:
    return results(accounting=[device(MS)], syncs=list(syncs))


def column(of: Block, head: str) -> list[str]:
    at = [each.head for each in of.columns].index(head)
    return [row[at] for row in of.rows]


def test_calls_of_one_name_line_and_phase_are_one_row() -> None:
    (row,) = waits(run(*[{**WAIT, "induced_idle_ns": MS, "blocked_ns": 2 * MS}] * 3)).rows
    assert row == ("3.00 ms", "6.00 ms", "0", "3", "sync", "a.py:1", "step")


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
    assert block.rest == "6 more: --table syncs"


def test_a_wait_with_next_to_no_idle_time_behind_it_has_no_row() -> None:
    small = {**WAIT, "api": "small", "induced_idle_ns": MS // 200}
    found = waits(run({**WAIT, "induced_idle_ns": MS // 10, "blocked_ns": MS}, small))
    assert column(found, "call") == ["sync"]
    assert found.rest == "1 more: --table syncs"


def test_figures_are_those_of_a_step_where_steps_are_judged() -> None:
    found = waits(Results([stepped()]))
    assert column(found, "idle behind it") == ["4.00 ms", "0"]
    assert found.caption.endswith("; per step")


def test_a_short_wait_is_not_shown_as_the_longest() -> None:
    assert waits(run({**WAIT, "blocked_ns": MS // 300})).rows == ()


def test_a_wait_in_less_than_half_of_the_steps_is_not_shown_as_the_longest() -> None:
    once = {**WAIT, "blocked_ns": 99 * MS}
    in_steps = replace(handmade(accounting=[device(MS)], syncs=[once]), step_counts={("r", 0): 3})
    assert waits(Results([in_steps])).rows == ()


def saving(of: Handmade) -> list[str]:
    found = block(Results([of]), Limits(rows=4))
    return column(found, "alone") if "alone" in [each.head for each in found.columns] else []


def test_what_a_wait_saves_by_itself_stands_beside_its_call_and_no_other() -> None:
    wait = valued(6 * MS, culprit="cudaStreamSynchronize", phase="step/loss")
    assert saving(stepped(found_of(wait))) == ["6.00 ms", ""]
    elsewhere = valued(6 * MS, culprit="cudaStreamSynchronize", phase="step/data")
    assert saving(stepped(found_of(elsewhere))) == []


def test_a_wait_outside_all_ranges_is_found_too() -> None:
    wait = valued(7 * MS, culprit="cudaDeviceSynchronize")
    assert saving(stepped(found_of(wait))) == ["", "7.00 ms"]


def test_a_finding_about_something_else_is_no_wait() -> None:
    other = valued(table="kernels", culprit="cudaStreamSynchronize", phase="step/loss")
    assert saving(stepped(found_of(other))) == []


def test_without_waits_there_are_no_rows() -> None:
    assert waits(run()).rows == ()
