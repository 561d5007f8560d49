"""How much of a cover lies in a gap, and which call has most of it."""

import polars as pl

from nsysflow.analysis.frames.intervals import Cover
from nsysflow.analysis.gaps.cause_shares import Span


def span(pieces: list[tuple[int, int, int]], start: int, end: int) -> Span:
    """The cover of pieces with start, end and the call that owns them."""
    schema = {"start": pl.Int64, "end": pl.Int64, "owner": pl.UInt32}
    frame = pl.DataFrame(pieces, schema=schema, orient="row")
    return Span.of(Cover(frame), pl.Series([start]), pl.Series([end]))


def leader(pieces: list[tuple[int, int, int]], *, between_ns: int = 0) -> int | None:
    """The leading call of all pieces. Call n began at n."""
    begun = pl.Series([0, 1, 2, 3], dtype=pl.Int64)
    found = span(pieces, 0, 1_000).leader(begun, pl.Series([between_ns]))
    call: int | None = found.item()
    return call


def test_only_what_lies_inside_counts() -> None:
    assert span([(0, 10, 0), (20, 40, 1)], 5, 25).ns.to_list() == [10]


def test_the_call_with_most_time_leads_even_in_several_pieces() -> None:
    assert leader([(0, 10, 0), (20, 35, 1), (40, 50, 0)]) == 0


def test_the_earlier_of_two_calls_with_equal_time_leads() -> None:
    assert leader([(0, 10, 2), (20, 30, 1)]) == 1


def test_no_call_leads_if_the_time_between_calls_has_more() -> None:
    assert leader([(0, 10, 0), (20, 25, 1)], between_ns=10) == 0
    assert leader([(0, 10, 0), (20, 25, 1)], between_ns=11) is None


def test_no_call_leads_if_none_lies_inside() -> None:
    assert leader([]) is None
