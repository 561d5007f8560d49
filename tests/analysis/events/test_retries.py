"""When an allocator found no memory, gave some back and asked again."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from nsysflow.analysis.events.retries import idle_in_retries
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.timeline import Timeline
from tests.analyses import EXAMPLES
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.retries import Retry, idle_ns, retries
from tests.oracle.strategies import several, traces_with_retries
from tests.tiny import MAIN, WORKER, call, kernel, launch, plain_of

NAMES = {"F": "cudaMalloc", "A": "cudaMalloc", "R": "cudaFree", "s": "cudaDeviceSynchronize"}


def thread_of(letters: str, *, thread: int = MAIN) -> PlainTrace:
    """A call of 8 ns every 10 ns: `F` finds no memory and `A` does, `R` gives some back."""
    calls = [
        (letter, call(10 * at, 10 * at + 8, NAMES[letter], thread=thread))
        for at, letter in enumerate(letters)
        if letter in NAMES
    ]
    ran = launch(0, 1, 1, thread=thread), kernel(2, 3, 1), launch(0, 1, 2), kernel(65, 66, 2)
    failed = tuple(one for letter, one in calls if letter == "F")
    return replace(plain_of(*ran, *(one for _, one in calls)), failed_calls=failed)


def found(trace: PlainTrace) -> tuple[list[Retry], list[dict[int, int]]]:
    """The retries of the analysis, and how long each GPU idles in each."""
    events = Timeline(to_trace(trace), Options()).events
    gaps = Timeline(to_trace(trace), Options()).bare_gaps
    named = events.retries.join(events.threads, on="thread_no", maintain_order="left")
    rows = named.select("thread", "start_ns", "end_ns", "failed", "frees").rows()
    idle = idle_in_retries(events.retries, gaps, events.threads, events.users, events.axis)
    devices = idle.join(events.devices, on="device_no").sort("retry", "device")
    by_device = [
        dict(devices.filter(pl.col("retry") == retry).select("device", "ns").iter_rows())
        for retry in range(len(rows))
    ]
    return rows, by_device


def expected_of(report: Report) -> list[Retry]:
    return retries(report.calls.calls, report.trace.failed_calls)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("F s R R A", [(MAIN, 0, 88, 1, 2)]),
        ("A F R F R A A", [(MAIN, 20, 108, 2, 2)]),
        ("F R A F R A", [(MAIN, 0, 48, 1, 1), (MAIN, 60, 108, 1, 1)]),
        ("F A R", []),  # nothing was given back before it asked again
        ("R R F", []),
        ("F R R F", [(MAIN, 0, 48, 2, 2)]),  # the program sees it: up to the last free
        ("A R A", []),
    ],
)
def test_a_retry_is_all_from_a_failed_allocation_to_the_next_that_succeeds(
    letters: str, expected: list[Retry]
) -> None:
    trace = thread_of(letters)
    assert found(trace)[0] == expected == expected_of(Report(trace))


def test_the_calls_of_another_thread_and_the_driver_s_own_end_no_retry() -> None:
    trace, other = thread_of("F R   A"), thread_of("  A", thread=WORKER)
    inner = call(1, 5, "cuMemCreate"), call(61, 65, "cuMemAlloc")
    trace = replace(trace, calls=(*trace.calls, *other.calls, *inner))
    expected = [(MAIN, 0, 68, 1, 1)]
    for failed in (trace.failed_calls, inner[:1]):  # it fails if the call inside does
        trace = replace(trace, failed_calls=failed)
        assert found(trace) == (expected, [{0: 62}])  # from 3 to 65
        assert expected_of(Report(trace)) == expected


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(several(traces_with_retries()))
def test_retries_and_the_idle_time_in_them_agree_with_the_oracle(trace: PlainTrace) -> None:
    rows, idle = found(trace)
    report = Report(trace)
    assert rows == expected_of(report)
    assert idle == [idle_ns(report, retry) for retry in rows]
