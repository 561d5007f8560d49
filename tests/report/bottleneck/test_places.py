"""Where the time of a bottleneck goes."""

import polars as pl
import pytest

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.bottleneck.bottlenecks import HOST, LAUNCH
from nsysflow.report.bottleneck.places import largest, parts_of, place_of, placed, there, within
from tests.report.handmade import MS, device, part, results


def parts(**ns_at: int) -> pl.DataFrame:
    """Rows with a place and its time; `__` stands for `/`."""
    rows = [(where.replace("__", "/"), ns) for where, ns in ns_at.items()]
    return pl.DataFrame(rows, schema={"where": pl.String, "total_ns": pl.Int64}, orient="row")


def test_a_nested_place_counts_for_the_range_around_it_too() -> None:
    ranges = [{"path": path, "depth": path.count("/") + 1} for path in ("step", "step/a")]
    some = parts(step__a__x=30, step__a__y=30, step__b=40)
    assert place_of(results(phases=ranges), some, 100) == ("step/a", 60)


def test_a_place_with_less_than_half_is_not_named() -> None:
    assert place_of(results(), parts(a=40, b=40), 100) == ("", 0)


def test_a_range_of_a_similar_name_is_not_within() -> None:
    table = parts(step=1, step__a=2, steps=4)
    assert table.filter(within("step"))["total_ns"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("where", "apart", "text"),
    [
        ("step/data", False, " in step/data"),
        ("step/data", True, " in step/data, before or after the steps"),
        (OUTSIDE, False, " outside any range, between the steps"),
        (OUTSIDE, True, " outside any range, before or after the steps"),
        ("", True, " before or after the steps"),
        ("", False, ""),
    ],
)
def test_a_place_follows_on_what_happens(where: str, apart: bool, text: str) -> None:
    assert placed(HOST, where, apart=apart, between=True) == text


def test_a_line_is_named_only_where_most_of_the_time_is() -> None:
    lines = [("a.py:1 in f", 70), ("a.py:2 in f", 30)]
    table = pl.DataFrame(lines, schema=["source", "total_ns"], orient="row")
    assert there(table, LAUNCH, "step") == " in step, at a.py:1 in f"
    assert there(table, HOST, "step") == " in step, before a.py:1"
    spread = table.with_columns(total_ns=pl.lit(1), source=pl.Series(["a.py:1", None]))
    assert there(pl.concat([spread, spread.tail(1)]), LAUNCH, "step") == " in step"


def test_a_place_without_a_name_says_nothing() -> None:
    assert there(parts(), LAUNCH, "") == ""


def test_only_the_causes_asked_for_have_parts() -> None:
    rows = [part("host", 3 * MS, phase="a"), part("launch", 5 * MS, phase="b")]
    run = results(accounting=[device(9 * MS)], gap_summary=rows)
    found = parts_of(run, run.table("accounting"), ["launch_ns"])
    assert found.select("where", "total_ns").rows() == [("b", 5 * MS)]


def test_the_first_of_two_keys_with_the_same_time_counts() -> None:
    assert largest(parts(b=5, a=5, c=1), "where") == "a"
    assert largest(parts(), "where") == ""
