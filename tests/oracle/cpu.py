"""Waits of threads for a CPU (spec §29)."""

from collections import Counter
from itertools import pairwise
from typing import Any

from tests.oracle.accounting import length
from tests.oracle.gaps import Gap
from tests.oracle.host_stacks import HostStacks
from tests.oracle.model import ProcessCpu, ThreadCpu
from tests.oracle.once import grouped_by, once
from tests.oracle.report import Report, Row, os_tid

Stretch = tuple[ThreadCpu, ThreadCpu]
"""Two neighbouring readings of a thread."""


def ran_and_waited(stretch: Stretch) -> tuple[int, int]:
    """§29.2: by how much each counter rose, at most the time."""
    first, last = stretch
    lasted = last.time_ns - first.time_ns
    return min(last.ran_ns - first.ran_ns, lasted), min(last.waited_ns - first.waited_ns, lasted)


@once
def stretches(report: Report) -> dict[int, list[Stretch]]:
    """§29.2: by thread."""
    found = {}
    by_thread = grouped_by(lambda reading: reading.thread, report.trace.thread_cpu)
    for thread, readings in by_thread.items():
        readings.sort(key=lambda reading: (reading.time_ns, reading.ran_ns, reading.waited_ns))
        pairs = [
            (first, last)
            for first, last in pairwise(readings)
            if last.time_ns > first.time_ns
            and last.ran_ns >= first.ran_ns
            and last.waited_ns >= first.waited_ns
        ]
        if pairs:
            found[thread] = pairs
    return found


def open_time(report: Report, stretch: Stretch) -> list[tuple[int, int]]:
    """§29.3: U, the time in which the thread may have waited."""
    first, last = stretch
    limit_ns = report.gaps.framework_gap_ns
    closed, reached = [], None
    for index, call in enumerate(report.calls.calls):
        kind = report.calls.classes[index]
        if call.thread != first.thread or kind == "api":
            continue
        if reached is not None and 0 < call.start_ns - reached <= limit_ns:
            closed.append((reached, call.start_ns))
        if call.end_ns - call.start_ns <= limit_ns or kind in ("sync", "blocking_copy"):
            closed.append((call.start_ns, call.end_ns))
        reached = call.end_ns if reached is None else max(reached, call.end_ns)
    found, at = [], first.time_ns
    for start, end in sorted(closed):
        if at < start:
            found.append((at, min(start, last.time_ns)))
        at = min(max(at, end), last.time_ns)
    if at < last.time_ns:
        found.append((at, last.time_ns))
    return found


@once
def launching(report: Report) -> set[int]:
    """§28.8: the threads that launch."""
    launches = (launch for launch in report.calls.launch if launch is not None)
    return {report.calls.calls[launch].thread for launch in launches}


def by_thread(report: Report, gap: Gap) -> dict[int, int]:
    """§29.4: of a whole gap, how much of `host_ns` is a wait of each thread."""
    code = [(begin, end) for cause, _, begin, end in gap.instants if cause == "host"]
    if not code or not stretches(report):
        return {}
    launch = report.calls.launch[gap.next_op]
    assert launch is not None
    of_next = report.calls.calls[launch].thread
    of_previous, change_ns = HostStacks(report).before(gap, launch)
    inside: Counter[tuple[int, int]] = Counter()
    for begin, end in code:
        middle = min(max(change_ns, begin), end)
        for thread, start, stop in ((of_previous, begin, middle), (of_next, middle, end)):
            for number, (first, last) in enumerate(stretches(report).get(thread, [])):
                ns = min(stop, last.time_ns) - max(start, first.time_ns)
                inside[thread, number] += max(ns, 0)
    waited: Counter[int] = Counter()
    for (thread, number), ns in (+inside).items():
        stretch = stretches(report)[thread][number]
        may_wait = length(open_time(report, stretch))
        waited[thread] += min(ran_and_waited(stretch)[1], may_wait) * ns // may_wait
    total = sum(end - begin for begin, end in code)
    return {thread: ns * gap.causes["host"] // total for thread, ns in waited.items()}


def descheduled(report: Report, gap: Gap) -> int | None:
    """§29.4: of all threads; None where no instant lies in a stretch."""
    found = by_thread(report, gap)
    return sum(found.values()) if found else None


def cpu(report: Report) -> list[Row]:
    """§29.5: a row per thread that launches and has a stretch."""
    sums: Counter[int] = Counter()
    for gap in report.gaps.gaps:
        for thread, ns in by_thread(report, gap).items():
            sums[thread] += ns
    rows = []
    for thread, of_thread in stretches(report).items():
        if thread not in launching(report):
            continue
        ran, waited = (sum(values) for values in zip(*map(ran_and_waited, of_thread), strict=True))
        process = thread & ~0xFFFFFF
        rows.append(
            {
                **report.about(process, thread=os_tid(thread)),
                "start_ns": of_thread[0][0].time_ns,
                "end_ns": of_thread[-1][1].time_ns,
                "ran_ns": ran,
                "waited_ns": waited,
                "waited_pct": 100 * waited / sum(b.time_ns - a.time_ns for a, b in of_thread),
                "descheduled_ns": sums.get(thread),
                **of_process(report, process),
            }
        )
    return rows


def of_process(report: Report, process: int) -> dict[str, Any]:
    """§29.6: what its CPUs were used for."""
    readings = [reading for reading in report.trace.process_cpu if reading.process == process]
    names = ("cores", "used_cores", "started_cores", "others_cores", "limit_cores", "throttled_ns")
    if not readings:
        return dict.fromkeys(names)
    readings.sort(key=order)
    first, last = readings[0], readings[-1]
    wall = last.time_ns - first.time_ns

    def grown(name: str) -> int | None:
        before, after = getattr(first, name), getattr(last, name)
        return None if before is None or after is None else after - before

    def share(ns: int | None) -> float | None:
        return ns / wall if wall > 0 and ns is not None and ns >= 0 else None

    used, started, busy = grown("used_ns"), grown("started_ns"), grown("busy_ns")
    assert used is not None
    assert started is not None
    throttled, limit = grown("throttled_ns"), last.limit_millicores
    return {
        "cores": last.cores,
        "used_cores": share(used),
        "started_cores": share(started),
        "others_cores": share(None if busy is None else max(busy - used - started, 0)),
        "limit_cores": None if limit is None else limit / 1000,
        "throttled_ns": throttled if throttled is not None and throttled >= 0 else None,
    }


def order(reading: ProcessCpu) -> tuple[Any, ...]:
    """§29.6: by time, then by the values, null last."""
    values = (reading.cores, reading.used_ns, reading.started_ns, reading.busy_ns)
    values_after = (reading.limit_millicores, reading.throttled_ns)
    return reading.time_ns, *((v is None, v or 0) for v in (*values, *values_after))
