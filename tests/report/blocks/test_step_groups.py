"""Start-up, one-offs and what comes back every k steps."""

from typing import Any

import pytest

from nsysflow.report.blocks.step_groups import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, results, training

ONE_OFF = {"kind": "one-off", "steps": "3", "total_ns": 117 * MS, "excess_ns": 71 * MS}
LARGEST = {"largest_ns": 70 * MS, "largest_cause": "host", "phase": "step/data"}


def groups(*rows: dict[str, Any], limit: int = 9) -> Block:
    return block(results(step_groups=list(rows)), Limits(rows=limit))


def test_steady_steps_and_parts_without_time_are_not_beside_them() -> None:
    assert groups({"kind": "steady", "total_ns": MS}, {"kind": "after", "total_ns": 0}).rows == ()


def test_start_up_names_the_two_causes_that_took_most() -> None:
    causes = {"cause": "host", "cause_ns": 9 * MS, "second_cause": "module_load"}
    start = {"kind": "before", "steps": "0, 1", "total_ns": 20 * MS, "excess_ns": None}
    (row,) = groups({**start, **causes, "second_cause_ns": 2 * MS}).rows
    assert row == ("start-up", "20.0 ms", "0, 1", "", "host code 9.00 ms, loading GPU code 2.00 ms")


def test_a_one_off_says_by_how_much_it_is_longer_and_where_most_of_that_is() -> None:
    (row,) = groups({**ONE_OFF, **LARGEST, "source": "a.py:3 in f"}).rows
    mostly = "host code 70.0 ms in step/data, a.py:3 in f"
    assert row == ("one-off", "117 ms", "3", "71.0 ms", mostly)


def test_a_place_outside_all_ranges_is_spelled_out() -> None:
    (row,) = groups({**ONE_OFF, **LARGEST, "phase": None}).rows
    assert row[-1] == "host code 70.0 ms in (outside ranges)"


def test_a_one_off_that_idles_no_longer_names_no_place() -> None:
    assert groups(ONE_OFF).rows[0][-1] == ""


@pytest.mark.parametrize(
    ("every", "said"),
    [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_what_comes_back_is_called_after_its_distance(every: int, said: str) -> None:
    row = {**ONE_OFF, "kind": "periodic", "every": every}
    assert groups(row).rows[0][0] == f"every {said}"


@pytest.mark.parametrize(
    ("kind", "said"), [("cut-off", "cut off"), ("after", "after the steps"), ("incomplete",) * 2]
)
def test_a_part_has_a_name_in_words(kind: str, said: str) -> None:
    assert groups({"kind": kind, "total_ns": MS}).rows[0][0] == said


def test_the_longest_comes_first_and_the_rest_is_counted() -> None:
    found = groups({**ONE_OFF, "total_ns": MS}, ONE_OFF, limit=1)
    assert [row[1] for row in found.rows] == ["117 ms"]
    assert found.rest == "1 more: --table step_groups"


def test_the_gpu_is_named_where_there_are_several() -> None:
    assert groups(ONE_OFF, {**ONE_OFF, "device": 1}).columns[0].head == "GPU"
    assert block(Results([training()]), Limits(rows=9)).columns[0].head == ""
