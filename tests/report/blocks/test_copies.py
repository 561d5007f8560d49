"""Copies by direction, kind and phase."""

from nsysflow.report.blocks.copies import block
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, results


def test_the_most_idle_time_behind_it_comes_first_then_the_most_exposed() -> None:
    rows = [
        {"phase": "a", "exposed_ns": 1 * MS, "bytes": 10},
        {"phase": "b", "exposed_ns": 2 * MS, "bytes": 20},
        {"phase": "c", "induced_idle_ns": 1 * MS, "bytes": 4_000_000},
    ]
    found = block(results(copies=rows), Limits(rows=9))
    assert [row[-1] for row in found.rows] == ["c", "b", "a"]
    assert found.rows[0][:4] == ("1.00 ms", "0", "0", "4.00 MB")


def test_a_copy_outside_all_ranges_says_so() -> None:
    (row,) = block(results(copies=[{"phase": None}]), Limits(rows=9)).rows
    assert row[-1] == "(outside ranges)"
