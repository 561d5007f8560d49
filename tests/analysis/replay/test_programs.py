"""What calls and operations wait for, and what changes do to a recorded program: small ones."""

from dataclasses import replace
from typing import Final, NamedTuple

import pytest

from nsysflow.analysis.replay.calls import host_calls
from nsysflow.analysis.replay.changes import CallKey, Changes
from nsysflow.analysis.replay.operations import USUAL_LAG_NS
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.names import OUTSIDE
from tests import tiny
from tests.analysis.replay.replays import (
    AUTOGRAD,
    MAIN,
    WORKER,
    Row,
    call_ends,
    kernel_starts,
    timeline_of,
    without,
)
from tests.in_us import US, call, kernel, launch, opened, upload
from tests.oracle.model import Gil, Overhead

SYNC: Final = "cudaStreamSynchronize"
DEVICE_SYNC: Final = "cudaDeviceSynchronize"
COPY: Final = "cudaMemcpyAsync"


def faster(phase: str, factor: float = 0.0) -> Changes:
    """The host's time in this phase takes so much of what it took."""
    return Changes(faster_host=((phase, factor),))


def slower(factor: float, kernel: str = "k") -> Changes:
    """These kernels take so much longer."""
    return Changes(scaled=((kernel, factor),))


class Case(NamedTuple):
    """A program and a change: when its operations start or its last calls end, in us."""

    times: list[float]
    change: Changes
    rows: tuple[Row, ...]
    of_calls: bool


def end(times: list[float], change: Changes, *rows: Row) -> Case:
    return Case(times, change, rows, of_calls=True)


def start(times: list[float], change: Changes, *rows: Row) -> Case:
    return Case(times, change, rows, of_calls=False)


SLOW: Final = slower(2.0, "slow")
ONE: Final = launch(0, 5, 1)
TWO: Final = ONE, launch(5, 10, 2)
FIRST: Final = kernel(10, 110, 1, name="slow")
FAR_LAUNCHES: Final = ONE, launch(100, 105, 2)
FAR: Final = *FAR_LAUNCHES, kernel(10, 20, 1, name="slow"), kernel(110, 120, 2)
LATE: Final = launch(118, 120, 2), kernel(128, 150, 2, stream=13)
DATA: Final = opened(11, 99, "data"), call(5, 11, SYNC), launch(101, 106, 2), kernel(104, 109, 2)

OPERATIONS: Final = {  # what an operation waits for
    # the second kernel waits for its launch, 90 us after the first kernel: if that takes twelve
    # times as long, 1 us lies between them, as in any queue
    "the bound that is reached last is exact": start([10, 110], SLOW, *FAR),
    "the others are usual": start([10, 131], slower(12.0, "slow"), *FAR),
    "without its event, what ended just before": start(
        [10, 215], SLOW, *TWO, FIRST, kernel(115, 150, 2, stream=13)
    ),
    # k of stream 13 is launched late enough to be explained by its launch: 118 + 10
    "streams that never overlap keep their order": start([10, 211], SLOW, ONE, FIRST, *LATE),
    "streams that overlap anywhere do not": start(
        [10, 128, 211], SLOW, ONE, FIRST, *LATE, launch(120, 122, 3), kernel(130, 140, 3)
    ),
    # 88 us of work go: the launch begins at 13, its kernel 3 us later
    "never before its launch": start([3, 16], faster("data"), ONE, kernel(3, 9, 1), *DATA),
}


def behind(time: float, *rows: Row) -> Case:
    """When the last call ends behind a kernel of 100 us that takes twice as long."""
    return end([time], slower(2.0), ONE, kernel(10, 110, 1), *rows)


CALLS: Final = {  # what a call waits for
    # the wait takes nothing from 30 on; 10 us of work later the launch begins, and takes 5
    #  main      0--5                           160--165
    #  autograd        20--25   30--------150
    "a wait removed in backward moves the main thread": end(
        [5, 45, 25, 30],
        without("sync"),
        *(ONE, launch(20, 25, 2, thread=AUTOGRAD), call(30, 150, SYNC, thread=AUTOGRAD)),
        *(launch(160, 165, 3), kernel(10, 140, 2)),
    ),
    "less work before a call moves what follows": end(
        [5, 34], faster("data", 0.2), opened(5, 100, "data"), ONE, launch(105, 110, 2)
    ),
    **{
        f"{name} ends as long after its kernel as it did": behind(213, call(6, 113, name))
        for name in (SYNC, DEVICE_SYNC, "cuCtxSynchronize", "cudaFree", "cudaEventSynchronize")
    },
    **{
        f"{name} takes what it took": behind(113, call(6, 113, name))
        for name in ("cudaMalloc", "cudaFreeAsync", "cuMemAlloc")
    },
    # 3 us are its own cost, before the change at 120 and after it at 210
    "a wait that came late would have to": behind(213, call(120, 123, DEVICE_SYNC)),
    # 190 after the first kernel, as before
    "a kernel launched after the call": behind(
        *(400, call(6, 300, SYNC, thread=WORKER)),
        *(launch(120, 125, 2), kernel(130, 230, 2, name="other")),
    ),
    "a blocking copy waits for its own operation": behind(
        230, launch(6, 130, 2, name=COPY), upload(112, 125, 2, source="pageable")
    ),
    "a blocking copy by HIP, whose clock on the GPU is ahead": behind(
        230, launch(6, 130, 2, name="hipMemcpyWithStream"), upload(112, 133, 2, source="pageable")
    ),
    "a blocking copy by CUDA that ends behind its call": behind(
        130, launch(6, 130, 2, name=COPY), upload(112, 133, 2, source="pageable")
    ),
}

GRAPH: Final = Changes(graphs=("forward",))


def three(*, at: int = 0) -> list[Row]:
    """Launches of 5 us, 20 us apart, each with a kernel of 5 us after 10 us."""
    starts = [(at + 20 * i, at + i + 1) for i in range(3)]
    kernels = [kernel(start + 10, start + 15, number) for start, number in starts]
    return [*(launch(start, start + 5, number) for start, number in starts), *kernels]


def forward(first: int, last: int) -> Row:
    return opened(first, last, "forward")


GRAPHS: Final = {
    # 10 us of work lie between the phase and the launch behind it
    "launches are one call": end([8, 8, 8, 23], GRAPH, forward(0, 50), *three(), launch(60, 65, 9)),
    "a call between two launches is in their graph": end(
        [8, 8, 8, 8, 23], GRAPH, forward(0, 50), *three(), launch(28, 33, 98), launch(60, 65, 9)
    ),
    "a stream follows another one at a graph's distance": start(
        [10, 15.5],
        GRAPH,
        *(forward(0, 50), ONE, kernel(10, 15, 1)),
        *(launch(20, 25, 2), kernel(40, 45, 2, stream=13)),
    ),
    "operations follow each other": start([10, 15.5, 21], GRAPH, forward(0, 50), *three()),
    "a kernel that came late behind its launch follows in the graph": start(
        [10, 15.5],
        GRAPH,
        *(forward(0, 70), ONE, kernel(10, 15, 1), launch(20, 25, 2), kernel(60, 65, 2)),
    ),
    # the last kernel ends at 26 and the wait takes 2 us more; after 18 us of work the second graph
    "a row of launches ends at a wait": end(
        [8, 8, 8, 28, 54, 54, 54],
        GRAPH,
        *(forward(0, 145), *three(), call(60, 62, SYNC), *three(at=80)),
    ),
    # 30 us between the phases, and the 5 us behind the first one's last launch are a little
    "a row of launches ends with its instance": end(
        [8, 8, 8, 51, 51, 51], GRAPH, *(forward(0, 50), forward(80, 130), *three(), *three(at=80))
    ),
    "launches outside the phase stay": end(
        [5, 25, 45, 88, 88, 88], GRAPH, forward(75, 130), *three(), *three(at=80)
    ),
    "kernels outside the phase start as long after their launch": start(
        [40, 90, 95.5, 101], GRAPH, forward(75, 130), ONE, kernel(40, 45, 1), *three(at=80)
    ),
    # 25 of 75 us before the first launch
    "of the host's time in a whole phase only a little stays": end(
        [5, 38, 38, 38], GRAPH, forward(5, 130), launch(0, 5, 99), *three(at=80)
    ),
    "the host's time in a phase with a wait stays": end(
        [5, 88, 88, 88, 107],
        GRAPH,
        *(forward(5, 145), launch(0, 5, 99), *three(at=80), call(140, 141, SYNC)),
    ),
}

# outside: 100 us, step itself: 60 us, step/log: 40 us of Python before the launches
PLACES: Final = (
    *(ONE, kernel(7, 10, 1), opened(105, 300, "step"), opened(165, 205, "log")),
    *(launch(205, 210, 2), kernel(212, 220, 2)),
)
FASTER_AT: Final = {"step": 112, "step/.": 152, "step/log": 172, "step/log/.": 172, OUTSIDE: 112}

HOST: Final = {
    "only the part inside the phase is faster": end(
        [5, 85], faster("data", 0.5), opened(20, 60, "data"), *FAR_LAUNCHES
    ),
    "backward's thread is in the phase of the main one": end(
        [5, 35, 60],
        faster("backward", 0.5),
        *(opened(0, 105, "backward"), ONE),
        *(launch(55, 60, 2, thread=AUTOGRAD), launch(100, 105, 3, thread=AUTOGRAD)),
    ),
    "the profiler's work goes from between calls and from inside them": end(
        [5, 85, 95],
        Changes(no_profiler=True),
        *(ONE, launch(100, 145, 2), launch(150, 155, 3)),
        *(
            Overhead(start * US, end * US, tiny.PROCESS, MAIN, "CUPTI Buffer flush")
            for start, end in ((20, 50), (110, 140))
        ),
    ),
    "waits for Python's lock go from between calls": end(
        [5, 120, 130],
        Changes(no_gil=True),
        *(ONE, launch(100, 145, 2), launch(150, 155, 3)),
        *(
            Gil(start * US, end * US, thread, state)
            for start, end, thread, state in (
                (20, 60, MAIN, "waiting"),
                (40, 200, MAIN, "waiting"),
                (35, 60, AUTOGRAD, "holding"),
                (110, 120, AUTOGRAD, "holding"),
            )
        ),
    ),
    "a factor is of what other changes leave": end(
        [5, 85, 92.5],
        replace(faster("step", 0.5), no_gil=True),
        *(ONE, launch(100, 145, 2), launch(150, 155, 3), opened(0, 200, "step")),
        *(Gil(35 * US, 60 * US, *of) for of in ((MAIN, "waiting"), (AUTOGRAD, "holding"))),
    ),
    **{f"time in {at}": start([7, us], faster(at), *PLACES) for at, us in FASTER_AT.items()},
}

#  launch 0--5  sync 5----115  launch 120--125
#  kernel 10--------110        kernel 130--230
WAIT: Final = (
    *(ONE, call(5, 115, SYNC), launch(120, 125, 2), kernel(10, 110, 1), kernel(130, 230, 2)),
)

WAITS: Final = {
    # the second one waits for the kernel now, and takes its 3 us
    "a wait that takes over stays": end(
        [5, 5, 113, 120],
        without("sync", "first"),
        *WAIT,
        *(call(115, 118, DEVICE_SYNC), opened(4, 114, "first")),
    ),
    # the kernel begins 1 us behind the copy, at 56, and the other sync takes 10 us after its end
    "asynchronous copies lose the sync behind them": end(
        [5, 6, 21, 166],
        Changes(async_copies=True),
        launch(0, 5, 1, name=COPY),
        *(call(6, 60, SYNC), launch(70, 75, 2), call(80, 190, SYNC)),
        *(upload(10, 55, 1, source="pinned"), kernel(80, 180, 2)),
    ),
    "what follows a copy and is no sync keeps its length, and so does a late sync": end(
        [5, 30, 90, 162],
        Changes(async_copies=True),
        *(launch(0, 5, 1, name=COPY), launch(6, 30, 2), launch(85, 90, 3, name=COPY)),
        *(call(141, 162, SYNC), upload(10, 55, 1, source="pinned"), kernel(60, 80, 2)),
        upload(95, 160, 3, source="pinned"),
    ),
    **{
        f"a call named by {process}": start(
            [10, 111], Changes(removed_calls=(CallKey(process, thread, 5_000),)), *WAIT
        )
        for process, thread in ((1, 1), (1 << 24, MAIN))  # the system's ids, the report's keys
    },
    "a call that is no wait": end(
        [5, 25],
        Changes(removed_calls=(CallKey(1, 1, 10_000),)),
        *(ONE, call(10, 90, "cudaMemGetInfo")),
        *(launch(100, 105, 2), kernel(10, 20, 1), kernel(110, 120, 2)),
    ),
    "a copy can be scaled by its name": start(
        [7, 11],
        slower(0.0, "memcpy HtoD"),
        *(launch(0, 5, 1, name=COPY), launch(6, 11, 2)),
        *(upload(7, 107, 1, source="pinned"), kernel(108, 120, 2)),
    ),
}

EVERY: Final = {**OPERATIONS, **CALLS, **GRAPHS, **HOST, **WAITS}


@pytest.mark.parametrize("name", EVERY)
def test_a_changed_program_runs(name: str) -> None:
    times, change, rows, of_calls = EVERY[name]
    found = (call_ends if of_calls else kernel_starts)(timeline_of(*rows), change)
    assert (found[-len(times) :] if of_calls else found) == times


def test_an_operation_and_a_call_wait_for_the_event_that_they_name() -> None:
    recorded = ONE, launch(5, 6, 2, name="cudaEventRecord")
    # stream 7: slow [10, 110); stream 13: waits for it, k [112, 150)
    waiting = launch(6, 7, 3, name="cudaStreamWaitEvent"), launch(8, 12, 4)
    timeline = timeline_of(
        *recorded,
        *waiting,
        *(FIRST, kernel(112, 150, 4, stream=13)),
        records=((2, 7, 1),),
        waits=((3, 13, 1),),
    )
    assert kernel_starts(timeline, SLOW) == [10, 212]
    # k on stream 13 ends at 213, but the event stands behind the other kernel, on stream 7
    rows = *recorded, launch(6, 9, 3), launch(10, 113, 4, name="cudaEventSynchronize")
    kernels = kernel(10, 110, 1, name="other"), kernel(11, 112, 3, stream=13)
    timeline = timeline_of(*rows, *kernels, records=((2, 7, 1),), waits=((4, 13, 1),))
    assert call_ends(timeline, slower(2.0))[-1] == 113


def test_an_operation_waits_for_the_later_of_two_events() -> None:
    # slow on stream 7 ends at 210 now, and k on stream 20 at 60, as before
    record, wait = "cudaEventRecord", "cudaStreamWaitEvent"
    timeline = timeline_of(
        *(ONE, launch(5, 6, 2, name=record), launch(6, 7, 3), launch(7, 8, 4, name=record)),
        *(launch(8, 9, 5, name=wait), launch(9, 10, 6, name=wait), launch(10, 14, 7)),
        *(FIRST, kernel(20, 60, 3, stream=20), kernel(130, 150, 7, stream=13)),
        records=((2, 7, 1), (4, 20, 2)),
        waits=((5, 13, 1), (6, 13, 2)),
    )
    assert kernel_starts(timeline, SLOW) == [10, 20, 230]


@pytest.mark.parametrize(("api", "begins"), [("hipMemcpyAsync", 230), ("cudaMemcpyAsync", 130)])
def test_a_copy_waited_for_what_ended_just_before_it(api: str, begins: int) -> None:
    # 20 us before, which is little on AMD; no record says what it waited for
    other = replace(upload(130, 150, 2, source="pinned"), stream=13)
    timeline = timeline_of(ONE, launch(5, 8, 2, name=api), FIRST, other)
    assert kernel_starts(timeline, SLOW) == [10, begins]


@pytest.mark.parametrize(("named", "missing"), [(True, 0), (False, 1)])
def test_a_wait_and_the_drivers_call_inside_it_are_one_wait(named: bool, missing: int) -> None:
    wait = "cudaStreamWaitEvent"
    timeline = timeline_of(
        *(ONE, launch(5, 6, 2, name="cudaEventRecord")),
        *(launch(8, 12, 5, name=wait), launch(9, 11, 5, name=wait), launch(13, 14, 7)),
        *(FIRST, kernel(130, 150, 7, stream=13)),
        records=((2, 7, 1),),
        waits=((5, 13, 1),) if named else (),
    )
    assert timeline.event_waits.missing == missing


IN_TURNS: Final = [launch(20 * i, 20 * i + 5, i, thread=(MAIN, WORKER)[i % 2]) for i in range(10)]


def by_turns(calls: int, *starts: int) -> list[Row]:
    """The main thread and another one take turns, of so many calls each, from these us on."""
    return [
        launch(at + 20 * i, at + 20 * i + 5, at + i, thread=(MAIN, WORKER)[turn % 2])
        for turn, at in enumerate(starts)
        for i in range(calls)
    ]


PREDECESSORS: Final[dict[str, tuple[list[Row], list[int | None]]]] = {
    "the one before it": ([launch(0, 5, 1), launch(10, 15, 2), launch(20, 25, 3)], [None, 0, 1]),
    "a call inside another is a part of it": (
        [call(0, 50, SYNC), call(1, 49, "cuStreamSynchronize"), launch(60, 65, 1)],
        [None, 0],
    ),
    #  main      0--5                     60--65
    #  autograd        20--25   40--45
    "backward and the main thread hand over to each other": (
        [
            *(launch(0, 5, 1), launch(60, 65, 4)),
            *(launch(20, 25, 2, thread=AUTOGRAD), launch(40, 45, 3, thread=AUTOGRAD)),
        ],
        [None, 3, 0, 2],
    ),
    "threads that take turns often do not": ([*IN_TURNS], [None, 0, 1, 2, 3, None, 5, 6, 7, 8]),
    "threads with few turns do": (by_turns(10, 0, 300), [None, *range(19)]),
    "threads with a turn for five calls do": (by_turns(5, 0, 300), [None, *range(9)]),
    "threads with three turns for ten calls do not": (
        by_turns(5, 0, 200, 400, 600),
        [None, *range(9), None, *range(10, 19)],
    ),
}


@pytest.mark.parametrize("name", PREDECESSORS)
def test_a_call_follows(name: str) -> None:
    rows, expected = PREDECESSORS[name]
    calls = host_calls(timeline_of(*rows).events).calls
    assert calls["pred"].to_list() == expected


def test_other_calls_are_the_host_s_work() -> None:
    rows = launch(0, 5, 1), call(6, 9, "cudaGetDevice"), launch(10, 15, 2)
    calls = host_calls(timeline_of(*rows).events).calls
    assert calls["work_ns"].to_list() == [0, 5_000]


WORK: Final = 200
LAUNCHES: Final = 1056
STARTS: Final = [i * (WORK + 1) for i in range(LAUNCHES)]


def queued(*others: Row) -> Timeline:
    """A launch of 1 us every 201 us, kernels of 100 us. Without the work between them the launches
    would be done after 1056 us, while the GPU takes 101 us for each kernel."""
    rows: list[Row] = [opened(0, LAUNCHES * (WORK + 1), "step")]
    for number, start in enumerate(STARTS, 1):
        rows += [launch(start, start + 1, number), kernel(start + 2, start + 102, number)]
    return timeline_of(*rows, *others)


def test_a_faster_host_is_held_up_by_a_full_queue() -> None:
    ends = call_ends(queued(), faster("step"))
    assert ends[1023] == 1024
    # the 1041st returns when the 17th kernel is done, the first at 2 and 1 us between them
    assert ends[1040] == 2 + 17 * 101 - 1
    assert ends[1041] == ends[1040] + 1
    assert ends[1055] == ends[1040] + 15


def test_each_stream_has_a_queue_of_its_own() -> None:
    """The same loop with a kernel on another stream after every tenth one. These do not count: as
    before, the 1041st launch of the first stream returns when its 17th kernel is done."""
    others: list[Row] = []
    for number, start in enumerate(STARTS[9::10], 2 * LAUNCHES):
        others.append(launch(start + 104, start + 105, number))
        others.append(kernel(start + 110, start + 120, number, stream=13))
    timeline = queued(*others)
    ends = call_ends(timeline, faster("step"))
    calls = timeline.events.calls["correlation"].to_list()
    held = ends[calls.index(1041)]
    assert held > 17 * 100 > ends[calls.index(1040)]


@pytest.mark.parametrize(("done", "end"), [(24, 2053), (25, 2098)])
def test_a_launch_that_found_1000_before_it_was_held_up(done: int, end: float) -> None:
    """1024 launches of 1 us, then one of 50 us; so many kernels are done when that begins. If the
    first kernel takes no time, the launch takes 5 us, as is usual, if it was held up."""
    rows: list[Row] = [launch(2 * i, 2 * i + 1, i + 1) for i in range(1024)]
    starts = [110 + i if i < done else 3000 + i for i in range(1, 1025)]
    kernels = [kernel(at, at + 1, number) for number, at in enumerate(starts, start=2)]
    first = kernel(10, 110, 1, name="slow")
    timeline = timeline_of(*rows, launch(2048, 2098, 1025), first, *kernels)
    assert call_ends(timeline, slower(0.0, "slow"))[1024] == end


def test_a_copy_that_the_host_prepares_does_not_say_how_fast_kernels_follow() -> None:
    timeline = timeline_of(
        *(launch(0, 4, 1), kernel(5, 105, 1), call(5, 107, "cudaThreadSynchronize")),
        *(launch(108, 112, 2), kernel(113, 213, 2)),
        *(launch(114, 450, 3, name="cudaMemcpy"), upload(333, 449, 3, source="pageable")),
    )
    assert kernel_starts(timeline, without("sync"))[:2] == [5, 106]


def test_a_part_whose_gpu_was_behind_at_first_has_the_usual_launch_lag() -> None:
    """What ran before the first kernel is not in the report: it did not find its GPU idle."""
    behind = 50_000  # us
    rows: list[Row] = []
    for number in range(4):
        begun = behind + 10 * number
        rows += [launch(20 * number, 20 * number + 5, number), kernel(begun, begun + 9, number)]
    assert recorded(timeline_of(*rows)).program.usual_lag_ns == USUAL_LAG_NS
