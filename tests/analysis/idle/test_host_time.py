"""What host threads did behind gaps."""

import polars as pl

from nsysflow.analysis.frames.intervals import Cover
from nsysflow.analysis.idle.host_time import HostTime, Span, host_time
from tests.tiny import Row, call, kernel, launch, timeline_of

LAUNCHES: tuple[Row, ...] = (
    launch(0, 10, 1),
    launch(60, 70, 2),
    launch(200, 210, 3),
    *(kernel(1_000 + 10 * n, 1_005 + 10 * n, n) for n in (1, 2, 3)),
)
"""Two launches 50 ns apart, and one 130 ns later."""


def host(*more: Row) -> HostTime:
    """The lane of the only thread, where the framework may take 50 ns between two calls."""
    events = timeline_of(*LAUNCHES, *more).events
    lanes = pl.DataFrame(
        {"lane": [0], "thread_no": [0], "other_no": [None]},
        schema={"lane": pl.UInt32, "thread_no": pl.UInt32, "other_no": pl.UInt32},
    )
    asked = pl.DataFrame(
        schema={"lane": pl.UInt32, "window_ns": pl.Int64, "start_ns": pl.Int64}
        | {"launched_ns": pl.Int64}
    )
    return host_time(events, events.calls, lanes, asked, framework_gap_ns=50)


def covered_ns(time: HostTime, name: str, start_ns: int, end_ns: int) -> int:
    """How much of `[start_ns, end_ns)` that cover holds."""
    ends = pl.DataFrame({"lane": [0, 0], "ns": [start_ns, end_ns]})
    start, end = ends.select(time.axis.at(pl.col("lane"), pl.col("ns"))).to_series()
    inside: int = getattr(time, name).between(pl.Series([start]), pl.Series([end])).item()
    return inside


def test_the_time_between_two_close_calls_is_launching_and_between_two_far_ones_is_not() -> None:
    assert covered_ns(host(), "launch", 0, 210) == 30
    assert covered_ns(host(), "launching", 0, 210) == 70 + 10


def test_a_wait_inside_a_stretch_of_launching_is_stalled_time() -> None:
    time = host(call(20, 30, "cudaStreamSynchronize"))
    assert covered_ns(time, "stalled", 0, 210) == 10
    assert covered_ns(time, "launching", 0, 210) == 70 + 10


def test_another_call_counts_as_api_only_outside_launching() -> None:
    time = host(call(20, 30, "cudaEventQuery"), call(130, 140, "cudaEventQuery"))
    assert covered_ns(time, "api", 0, 210) == 10


def test_another_call_around_the_end_of_launching_counts_from_there_on() -> None:
    # a call of no length ends the stretch, and cuts no other call in two
    ending = launch(80, 80, 9, name="cudaMemcpyAsync")
    time = host(call(65, 150, "cudaEventQuery"), ending)
    assert covered_ns(time, "launching", 0, 210) == 80 + 10
    assert covered_ns(time, "api", 0, 210) == 70


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
