"""When devices idle, and why: pictures of borders and ties, and the figures of two of them."""

from dataclasses import replace

import polars as pl
import pytest

from nsysflow.analysis.options import Options
from tests.agreement import Picture, assert_pictures_agree
from tests.oracle.model import Overhead
from tests.tiny import (
    AUTOGRAD,
    MAIN,
    PROCESS,
    Row,
    analysis_of,
    call,
    copy,
    kernel,
    launch,
    on_stream,
    opened,
    sample,
)

US = 1_000
MS = 1_000 * US
SYNC = "cudaStreamSynchronize"
QUERY = "cudaEventQuery"


def until(launch_at: int, *between: Row) -> list[Row]:
    """A gap from 1 us to the kernel that is launched at `launch_at`, with what is between."""
    start = launch_at + 10
    rows: list[Row] = [launch(0, 10, 1), kernel(20, US, 1), kernel(start, start + 5, 2)]
    return [*rows, launch(launch_at, start, 2), *between]


def wait(first: int, last: int, name: str = SYNC) -> Row:
    """A call between these us."""
    return call(first * US, last * US, name)


def flush(first: int, last: int) -> Row:
    """The profiler's own work between these us."""
    return Overhead(first * US, last * US, PROCESS, MAIN, "flush")


def gaps_from(*starts_us: int, before: tuple[Row, ...] = ()) -> list[Row]:
    """Gaps of about 30 us that begin at these us, each of launches 5 us before its end."""
    rows: list[Row] = [launch(0, 5, 1), *before]
    since = 10
    for number, start in enumerate(starts_us, start=1):
        rows.append(kernel(since, start * US, number))
        since = (start + 30) * US
        rows.append(launch(since - 5 * US, since - 1, number + 1))
    return [*rows, kernel(since, since + US, len(starts_us) + 1)]


CAUSES: dict[str, list[Row]] = {
    "a call of no length that ends launching inside one that outlasts it": [
        *(launch(0, 5, 1), call(0, MS, QUERY), launch(10, 10, 3, name="cudaMemcpyAsync")),
        *(launch(MS, MS + 5, 5), kernel(6, 11, 1), kernel(MS + 6, MS + 11, 5)),
        copy(11, 16, 3, "HtoD", "pageable", "device"),
    ],  # found by make hunt on 2026-11-22
    "a page of managed memory, which no call moves": until(
        200 * US, wait(20, 60), copy(100 * US, 101 * US, None, "UVM DtoH", "managed", "managed")
    ),
    "a stream that first runs behind another one of the same launch": [
        *(copy(0, 5, None, "HtoD", "pageable", "device"), launch(0, 5, 1, name="cudaGraphLaunch")),
        kernel(10_006, 10_011, 1, node=1),
        on_stream(kernel(10_011, 10_016, 1, node=2), 13),
    ],  # found by a random trace on 2026-11-28
    "the profiler before the call that it interrupts": until(
        200 * US, wait(100, 200, QUERY), flush(90, 150)
    ),
    "two calls with equal parts of a gap": [
        *(launch(0, 1, 1), launch(60, 72, 2, name="cudaGraphLaunch"), launch(72, 84, 3)),
        *(kernel(2, 60, 1), kernel(90, 95, 3)),
        replace(kernel(100, 105, 2), kind="graph", shape=None),
    ],
    "a call as long as the code before it": until(US + 10),
    "a call with most of a gap in two pieces": until(
        250 * US, wait(60, 100, QUERY), wait(70, 85, "cudaGetDevice"), wait(160, 180, QUERY)
    ),
    "a new stall drops the rest of the one before": gaps_from(
        1_000, 1_100, 1_200, before=(wait(900, 990), wait(1_050, 1_055))
    ),
    "a wait that begins before the first operation": [
        *(launch(0, 5, 1), wait(5, 300), kernel(200 * US, 290 * US, 1)),
        *(launch(900 * US, 901 * US, 2), kernel(902 * US, 905 * US, 2)),
    ],
    "two waits that several gaps share": gaps_from(
        1_000, 1_100, 1_200, before=(wait(800, 900), wait(920, 990))
    ),
    "a wait in a gap behind another process's operation": [
        *(launch(0, 5, 1), kernel(10 * US, 100 * US, 1), wait(250, 350)),
        replace(kernel(110 * US, 200 * US, None), process=PROCESS << 1),
        *(launch(395 * US, 396 * US, 2), kernel(400 * US, 500 * US, 2)),
        *(launch(525 * US, 526 * US, 3), kernel(530 * US, 560 * US, 3)),
    ],
    "another thread goes on soon behind the first launch": [
        *(launch(0, 5 * US, 1), call(8 * US, 9 * US, QUERY), kernel(10 * US, 20 * US, 1)),
        *(launch(22 * US, 24 * US, 2, thread=AUTOGRAD), kernel(26 * US, 30 * US, 2)),
    ],
    "a wait long before the first gap": [
        *(launch(0, 5, 1), wait(20, 60), kernel(10 * US, 400 * US, 1)),
        *(launch(900 * US, 901 * US, 2), kernel(902 * US, 905 * US, 2)),
    ],
    "a wait before a process's first operation, behind another's": [
        *(launch(0, 5, 1), wait(-5, -1), kernel(1_000, 5_000, 1)),
        replace(kernel(-9 * US, -US, None), process=PROCESS << 1),
        *(launch(900 * US, 901 * US, 2), kernel(902 * US, 905 * US, 2)),
    ],
}


def gap(*rows: Row, start: int = 100, end: int = 1_000, launched: int | None = None) -> list[Row]:
    """A gap from `start` to `end` us, whose next launch lasts from `end` - 20 to `launched` us."""
    done = end * US - US if launched is None else launched * US
    rows_before = launch(0, 10 * US, 1), kernel(20 * US, start * US, 1)
    return [
        *(*rows_before, launch((end - 20) * US, done, 2)),
        *(kernel(end * US, (end + 100) * US, 2), *rows),
    ]


def within(first: int, last: int, name: str) -> Row:
    """A range between these us."""
    return opened(first * US, last * US, name)


PLACES: dict[str, Picture] = {
    "a wait in another phase than the middle": gap(
        wait(200, 300), within(150, 400, "log"), within(400, 1_000, "data")
    ),
    "waits of two calls in two phases": gap(
        *(wait(200, 300), wait(500, 560, "cudaDeviceSynchronize")),
        *(within(150, 400, "a"), within(450, 600, "b")),
    ),
    "launch calls in two phases": gap(
        wait(100, 140, "cudaLaunchKernel"),
        *(within(100, 178, "build"), within(178, 300, "send")),
        end=200,
    ),
    "a phase that launched what waited in the queue": gap(within(970, 990, "send"), launched=992),
    "equal waits in no phase and in the first": gap(
        wait(110, 410), wait(450, 750), within(430, 800, "a")
    ),
    "two phases with equal waits in one gap": gap(
        wait(110, 410), wait(450, 750), within(100, 420, "z"), within(430, 800, "a")
    ),
}


def sampled(us: int, function: str, *, thread: int = MAIN) -> Row:
    """A sample at that us."""
    return sample(us * US, function, thread=thread)


def host_gap(*rows: Row, thread: int = MAIN) -> list[Row]:
    """A gap from 100 to 1000 us, of which the host needs 900 to get to the next launch."""
    calls = launch(0, 10 * US, 1), launch(1_000 * US, 1_001 * US, 2, thread=thread)
    return [*calls, kernel(20 * US, 100 * US, 1), kernel(1_000 * US, 1_100 * US, 2), *rows]


THREE = sampled(300, "f"), sampled(500, "g"), sampled(700, "h")

SAMPLES: dict[str, Picture] = {
    "the nearest sample": host_gap(*THREE),
    "more than two periods from a sample": host_gap(*(sampled(us, "f") for us in (200, 250, 300))),
    "two samples at one instant": host_gap(
        sampled(500, "first"), sampled(500, "second"), sampled(900, "later")
    ),
    "the thread before, until the next one calls": host_gap(
        call(600 * US, 610 * US, QUERY, thread=AUTOGRAD),
        *(sampled(us, "backward") for us in (200, 800)),
        sampled(200, "node", thread=AUTOGRAD),
        thread=AUTOGRAD,
    ),
    "the next thread's call ends where the gap begins": host_gap(
        call(90 * US, 100 * US, QUERY, thread=AUTOGRAD),
        *(sampled(us, "backward") for us in (200, 800)),
        *(sampled(us, "node", thread=AUTOGRAD) for us in (200, 800)),
        thread=AUTOGRAD,
    ),
    "a wait takes an odd time from two samples with as much": host_gap(
        sample(349_999, "f"), sample(750_000, "g"), call(20 * US, 50 * US + 1, SYNC)
    ),
    "time inside a launch call": [
        *(launch(0, 10 * US, 1), launch(110 * US, 130 * US, 2, name="cudaMemsetAsync")),
        *(launch(140 * US, 150 * US, 3), kernel(20 * US, 100 * US, 1)),
        *(kernel(150 * US, 160 * US, 3), within(105, 135, "a"), within(135, 200, "b")),
        *(sampled(100, "f"), sampled(120, "g"), sampled(140, "h")),
    ],
}


@pytest.mark.parametrize("pictures", [CAUSES, PLACES, SAMPLES])
def test_pictures_of_idle_time_agree_with_the_oracle(pictures: dict[str, Picture]) -> None:
    assert_pictures_agree(pictures)


def test_the_parts_of_a_cut_gap_keep_their_proportions() -> None:
    """Those of its places, and those of its samples."""
    rows = wait(100, 400), wait(400, 980), within(90, 400, "a"), within(400, 990, "b")
    found = analysis_of(*gap(*rows), options=Options(from_ns=0, to_ns=550 * US)).gap_summary
    places = found.filter(cause="sync").select("phase", "total_ns").rows()
    assert dict(places) == {"a": 150 * US, "b": 290 * US}
    half = analysis_of(*host_gap(*THREE), options=Options(to_ns=550 * US)).host_stacks
    idle_ns = dict(half.select("function", "idle_ns").rows())
    assert sum(idle_ns.values()) == 450 * US
    assert idle_ns["g"] == 100 * US


@pytest.mark.parametrize(
    ("since_us", "until_us", "charged_us"),
    [(-9_000, -10, 0), (-9_000, 15, 5), (10, 20, 10), (10, 60, 50)],
)
def test_a_stall_takes_run_ahead_once_the_first_operation_is_queued(
    since_us: int, until_us: int, charged_us: int
) -> None:
    """vLLM captures graphs: a wait of 115 ms before the first kernel, then 2 ms of Python between
    kernels. The wait was blamed for all of these."""
    rows = gap(call(0, 5 * US, QUERY), wait(since_us, until_us))
    causes = analysis_of(*rows).gap_summary.group_by("cause").agg(pl.col("total_ns").sum())
    assert dict(causes.rows()).get("sync", 0) == charged_us * US


def test_a_stall_before_a_process_first_used_the_gpu_took_none_of_its_run_ahead() -> None:
    """Another process's kernel runs meanwhile."""
    before = replace(kernel(-900 * US, -5 * US, None), process=PROCESS << 1)
    causes = analysis_of(*gap(wait(-500, -10)), before).gap_summary["cause"]
    assert "sync" not in causes
