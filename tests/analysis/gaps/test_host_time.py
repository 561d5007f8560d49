"""What one thread did at each instant, on a few calls."""

import polars as pl

from nsysflow.analysis.gaps.host_time import HostTime, host_time
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
