"""Functions of intervals, compared with a count of instants."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Final

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    flatten,
    last_at_or_before,
    merge,
    sort_with_ties,
)
from nsysflow.analysis.selection.windows import (
    WINDOWS,
    apportion,
    intersect_windows,
    rows_starting_inside,
)

Span = tuple[int, int]

instants = st.integers(-5, 40)
lengths = st.integers(0, 8)
spans = st.lists(st.builds(lambda start, ns: (start, start + ns), instants, lengths), max_size=8)
"""Intervals that overlap, touch, nest, are equal or empty."""


def frame(of: list[Span]) -> pl.DataFrame:
    return pl.DataFrame(of, schema={"start": pl.Int64, "end": pl.Int64}, orient="row")


def covered(of: list[Span]) -> set[int]:
    """Every instant inside one of the spans."""
    return {t for start, end in of for t in range(start, end)}


def cover(of: list[Span]) -> Cover:
    return Cover(merge(frame([span for span in of if span[1] > span[0]])))


# --- merge ----------------------------------------------------------------------------------------


@given(spans, st.integers(0, 5))
def test_a_union_covers_its_parts_and_joins_near(given_spans: list[Span], within_ns: int) -> None:
    merged: list[Span] = merge(frame(given_spans)).rows()
    assert covered(merged) == covered(given_spans)
    assert all(end < start for (_, end), (start, _) in pairwise(merged))
    # spans are joined if the hole between them is short enough: widen, unite, narrow
    wide = [(start, end + within_ns) for start, end in merged]
    joined = [(start, end - within_ns) for start, end in merge(frame(wide)).rows()]
    assert merge(frame(given_spans), within_ns=within_ns).rows() == joined
    assert all(start - end > within_ns for (_, end), (start, _) in pairwise(joined))


# --- flatten --------------------------------------------------------------------------------------

Claim = tuple[int, int, int | None]
claims = st.lists(st.tuples(instants, lengths, st.none() | st.integers(0, 2)), max_size=8)


@given(claims)
def test_each_instant_goes_to_the_claim_of_the_first_rank(given_claims: list[Claim]) -> None:
    rows = sorted(given_claims, key=lambda claim: claim[0])
    table = pl.DataFrame(
        [(start, start + ns, rank, owner) for owner, (start, ns, rank) in enumerate(rows)],
        schema={"start": pl.Int64, "end": pl.Int64, "rank": pl.Int64, "owner": pl.UInt32},
        orient="row",
    )
    pieces = flatten(table, rank=lambda of: of.select("rank", "owner"), keep=["owner"])
    assert pieces.columns == ["start", "end", "owner"]
    assert pieces["start"].is_sorted()
    won = [(t, owner) for start, end, owner in pieces.rows() for t in range(start, end)]
    assert len(won) == len(dict(won))
    expected: dict[int, int] = {}
    for owner in sorted(range(len(rows)), key=lambda i: (rows[i][2] is None, rows[i][2] or 0, i)):
        start, ns, _ = rows[owner]
        for t in range(start, start + ns):
            expected.setdefault(t, owner)
    assert dict(won) == expected


# --- covers ---------------------------------------------------------------------------------------


@given(spans, spans)
def test_covered_time_is_a_count_of_instants(given_spans: list[Span], asked: list[Span]) -> None:
    table, inside = frame(asked), covered(given_spans)
    found = cover(given_spans).between(table["start"], table["end"])
    assert found.to_list() == [len(inside & set(range(*span))) for span in asked]
    until = cover(given_spans).until(table["start"])
    assert until.to_list() == [sum(t < place for t in inside) for place, _ in asked]


@given(spans, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=4))
def test_slices_have_the_ns_asked(given_spans: list[Span], asked: list[tuple[int, int]]) -> None:
    pieces = merge(frame([span for span in given_spans if span[1] > span[0]]))
    owned = pieces.with_row_index("owner")
    instants_in_order = [
        (t, owner) for owner, start, end in owned.rows() for t in range(start, end)
    ]
    whole = len(instants_in_order)
    wanted = [
        (row, min(begin, whole), min(begin + ns, whole)) for row, (begin, ns) in enumerate(asked)
    ]
    schema = {"row": pl.UInt32, "begin": pl.Int64, "stop": pl.Int64}
    found = Cover(owned).slices(pl.DataFrame(wanted, schema=schema, orient="row"))
    expected = Counter(
        (row, owner) for row, begin, stop in wanted for _, owner in instants_in_order[begin:stop]
    )
    assert found.select("row", "owner", "ns").rows() == [
        (row, owner, ns) for (row, owner), ns in expected.items()
    ]
    start_of = dict(owned.select("owner", "start").rows())
    assert [start_of[o] for o in found["owner"]] == found["start"].to_list()


# --- order ----------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2), st.none() | st.integers(0, 2)),
        max_size=10,
    )
)
def test_ties_sort_equal_keys_nulls_last(rows: list[tuple[int, int | None, int | None]]) -> None:
    table = pl.DataFrame(rows, schema={"key": pl.Int64, "a": pl.Int64, "b": pl.Int64}, orient="row")
    found = sort_with_ties(table, "key", [-pl.col("a"), pl.col("b")])

    def order(row: tuple[int, int | None, int | None]) -> tuple[int, bool, int, bool, int]:
        key, a, b = row
        return (key, a is None, -(a or 0), b is None, b or 0)

    assert found.rows() == sorted(rows, key=order)
    assert found.columns == table.columns


@given(st.lists(instants, max_size=8), st.lists(instants, max_size=8), st.booleans())
def test_the_last_at_or_before_is_found(known: list[int], asked: list[int], in_order: bool) -> None:
    known = sorted(known)
    asked = sorted(asked) if in_order else asked
    found = last_at_or_before(pl.Series(known, dtype=pl.Int64), pl.Series(asked, dtype=pl.Int64))
    expected = [
        max((i for i, place in enumerate(known) if place <= at), default=None) for at in asked
    ]
    assert found.to_list() == expected


# --- windows --------------------------------------------------------------------------------------

AXIS: Final = Axis.over(0, 40, margin_ns=0)
on_devices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)))


def windows(of: list[tuple[int, int, int]]) -> pl.DataFrame:
    """Windows of these devices, starts and lengths."""
    rows = [(device, start, start + ns) for device, start, ns in of]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def disjoint(of: list[tuple[int, int, int]]) -> pl.DataFrame:
    """Windows that cover the same and do not overlap."""
    merged = [
        (device, start, end - start)
        for device in range(3)
        for start, end in merge(
            frame([(start, start + ns) for on, start, ns in of if on == device])
        ).rows()
    ]
    return windows(merged)


def of_device(device: int, rows: pl.DataFrame) -> list[int]:
    """Every instant of the windows of a device."""
    return [t for on, start, end in rows.rows() if on == device for t in range(start, end)]


@given(on_devices, on_devices)
def test_an_intersection_is_what_both_cover_on_each_device(
    some: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    found = intersect_windows(disjoint(some), windows(others), AXIS)
    for device in range(3):
        both = {*of_device(device, windows(some))} & {*of_device(device, windows(others))}
        assert sorted(of_device(device, found)) == sorted(both)


@given(on_devices, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 39)), max_size=8))
def test_what_starts_inside_a_window_is_inside(
    some: list[tuple[int, int, int]], starts: list[tuple[int, int]]
) -> None:
    rows = pl.DataFrame(starts, schema={"device_no": pl.UInt32, "start_ns": pl.Int64}, orient="row")
    found = rows_starting_inside(rows, disjoint(some), AXIS)
    assert found.rows() == [row for row in starts if row[1] in of_device(row[0], windows(some))]


# --- shares ---------------------------------------------------------------------------------------

parts_and_total = st.lists(st.integers(0, 2**61), min_size=1, max_size=6).flatmap(
    lambda parts: st.tuples(st.just(parts), st.integers(0, sum(parts)))
)


@given(st.lists(parts_and_total, min_size=1, max_size=4))
def test_shares_sum_up_and_are_within_1_of_their_own(groups: list[tuple[list[int], int]]) -> None:
    groups = [(parts, min(total, 2**62)) for parts, total in groups if sum(parts) > 0]
    rows = [
        (group, which, ns, total)
        for group, (parts, total) in enumerate(groups)
        for which, ns in enumerate(parts)
    ]
    table = pl.DataFrame(
        rows,
        schema={"group": pl.UInt32, "which": pl.Int64, "ns": pl.Int64, "total": pl.Int64},
        orient="row",
    )
    found = apportion(table, by="group", ties="which").sort("group", "which")
    for group, (parts, total) in enumerate(groups):
        shares = found.filter(pl.col("group") == group)["ns"].to_list()
        assert sum(shares) == total
        for share, part in zip(shares, parts, strict=True):
            exact = Fraction(part * total, sum(parts))
            assert abs(share - exact) < 1
            assert 0 <= share <= part


@pytest.mark.parametrize(
    ("parts", "total", "shares"),
    [
        ([3, 3, 4], 5, [2, 1, 2]),  # 1.5, 1.5, 2.0: the tie goes to the first
        ([1, 1, 1], 2, [1, 1, 0]),
        ([1, 9], 1, [0, 1]),
        ([0, 7], 7, [0, 7]),
        ([10**18, 2 * 10**18], 10**18, [333_333_333_333_333_333, 666_666_666_666_666_667]),
    ],
)
def test_the_largest_remainder_takes_what_is_left(
    parts: list[int], total: int, shares: list[int]
) -> None:
    table = pl.DataFrame({"by": 0, "which": range(len(parts)), "ns": parts, "total": total})
    found = apportion(table, by="by", ties="which").sort("which")
    assert found["ns"].to_list() == shares
