"""What the host ran while the GPU waited."""

from dataclasses import replace
from typing import Any

from nsysflow.report.blocks.host_stacks import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, device, handmade, results

TOKENIZE = {
    "phase": "step/data",
    "cause": "host",
    "function": "tokenize",
    "source": "train.py:88 in collate",
}
NOTHING = {"phase": "step/backward", "cause": "launch", "function": "(not sampled)"}


def rows(*stacks: dict[str, Any], limit: int = 3) -> Block:
    return block(results(accounting=[device(10 * MS)], host_stacks=[*stacks]), Limits(rows=limit))


def test_a_row_names_the_function_and_the_line_that_called_it() -> None:
    other = {**TOKENIZE, "function": "collate", "idle_ns": MS}
    found = rows({**TOKENIZE, "idle_ns": 3 * MS}, other)
    assert found.rows == (
        ("3.00 ms", "75 %", "tokenize in collate (train.py:88)", "step/data"),
        ("1.00 ms", "25 %", "collate (train.py:88)", "step/data"),
    )


def test_causes_and_threads_of_the_same_code_are_one_row() -> None:
    launch = {**TOKENIZE, "cause": "launch", "thread": 7, "idle_ns": MS}
    (row,) = rows({**TOKENIZE, "idle_ns": MS}, launch).rows
    assert row[:2] == ("2.00 ms", "100 %")


def test_what_no_sample_stands_for_is_no_row() -> None:
    found = rows({**TOKENIZE, "idle_ns": MS}, {**NOTHING, "idle_ns": 3 * MS})
    assert len(found.rows) == 1
    assert found.caption == "What ran while the GPU waited; 75 % not sampled"
    assert rows({**TOKENIZE, "idle_ns": MS}).caption == "What ran while the GPU waited"


def test_a_trace_with_operators_says_what_is_outside_them() -> None:
    known = {**TOKENIZE, "idle_ns": MS, "samples": None}
    found = rows(known, {**NOTHING, "idle_ns": MS, "samples": None})
    assert found.caption == "What ran while the GPU waited; 50 % outside operators"


def test_times_are_those_of_a_step_where_steps_are_judged() -> None:
    run = replace(handmade(host_stacks=[{**TOKENIZE, "idle_ns": MS}]), step_counts={("r", 0): 4})
    found = block(Results([run]), Limits(rows=3))
    assert found.rows[0][0] == "250 us"
    assert "per step" in found.caption


def test_where_the_rest_is_is_said() -> None:
    some = [{**TOKENIZE, "function": f"f{index}", "idle_ns": MS} for index in range(5)]
    assert rows(*some).rest == "2 more: --table host_stacks"


def test_code_that_costs_next_to_nothing_has_no_row() -> None:
    small = {**TOKENIZE, "function": "pad", "idle_ns": MS // 3}
    found = rows({**TOKENIZE, "idle_ns": MS}, small)
    assert len(found.rows) == 1
    assert found.rest == "1 more: --table host_stacks"
    assert len(rows({**TOKENIZE, "idle_ns": MS}, small, limit=20).rows) == 2


def test_a_report_without_samples_has_no_rows() -> None:
    assert rows().rows == ()
