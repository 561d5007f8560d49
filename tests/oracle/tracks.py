"""The picture of a report (spec §22). Rows of other tracks are written out, not numbered."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any

from tests.oracle.clocks import TRAFFIC, rates_held
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.gpu_metrics import METRICS
from tests.oracle.host_stacks import Frames, HostStacks
from tests.oracle.idle_places import main_place
from tests.oracle.memory import Use, uses
from tests.oracle.model import LoaderTime, Op
from tests.oracle.once import grouped_by, once, unmeasured
from tests.oracle.phases import end_of_trace, start_of_trace
from tests.oracle.report import Report, Row, joined, os_pid, os_tid
from tests.oracle.steps import kinds_of, steps_of
from tests.oracle.waited import waits_of

Slice = tuple[int, int]
Lane = dict[str, Any]

NOTHING: Lane = dict.fromkeys(("process", "thread", "device", "stream"))


def of_thread(kind: str, thread: int) -> Lane:
    """§22.1: a lane of a thread."""
    return {**NOTHING, "kind": kind, "process": os_pid(thread), "thread": os_tid(thread)}


def of_stream(op: Op) -> Lane:
    """§22.1: the lane of an operation."""
    lane = {**NOTHING, "kind": "stream", "process": os_pid(op.process)}
    return {**lane, "device": op.device, "stream": op.stream}


def of_steps(process: int, device: int) -> Lane:
    """§22.1: the lane of a process's steps on a GPU."""
    return {**NOTHING, "kind": "steps", "process": os_pid(process), "device": device}


def of_counter(device: int) -> Lane:
    """§22.1: a lane of values of a GPU."""
    return {**NOTHING, "kind": "counter", "device": device}


def slice_of(lane: Lane, spans: Any, **more: Any) -> Row:
    """A row of a lane."""
    return {"lane": lane, "start_ns": spans.start_ns, "end_ns": spans.end_ns, **more}


def first_free(slices: Iterable[Slice]) -> list[int]:
    """§22.4: the depth of each slice of a lane."""
    ends: list[int] = []
    found = []
    for start, end in slices:
        free = [depth for depth, until in enumerate(ends) if until <= start]
        depth = free[0] if free else len(ends)
        ends[depth : depth + 1] = [end]
        found.append(depth)
    return found


def with_depths(rows: list[Row]) -> list[Row]:
    """§22.4: rows in order, each with its depth on its lane."""
    for mine in grouped_by(lambda row: str(row["lane"]), rows).values():
        depths = first_free((row["start_ns"], row["end_ns"]) for row in mine)
        for row, depth in zip(mine, depths, strict=True):
            row["depth"] = depth
    return rows


def longest_first(rows: list[Row]) -> list[Row]:
    """§22.4: in the order of their starts, of equal ones the longest first, then by name."""
    order = sorted(rows, key=lambda row: (row["start_ns"], -row["end_ns"], row["name"]))
    return with_depths(order)


def a_call(report: Report, index: int | None) -> tuple[Any, ...] | None:
    """A call, written out."""
    if index is None:
        return None
    call = report.calls.calls[index]
    return call.start_ns, call.end_ns, call.name, os_tid(call.thread)


def an_op(report: Report, index: int | None) -> tuple[Any, ...] | None:
    """An operation, written out."""
    if index is None:
        return None
    op = report.ops[index]
    return op.start_ns, op.end_ns, op.short_name, op.name, op.device, op.stream


def operations(report: Report) -> list[Row]:
    """One row per operation."""
    rank = waits_of(report).rank
    rows = []
    for index in sorted(rank, key=lambda index: rank[index]):
        op = report.ops[index]
        about = {
            "name": op.short_name,
            "full_name": op.name,
            "call": a_call(report, report.calls.launch[index]),
            "phase": joined(report.op_place(index).path) or None,
            "bytes": None if op.copy is None else op.copy.bytes,
            "shape": None if op.shape is None else astuple(op.shape),
            "copy": None if op.copy is None else astuple(op.copy),
            "correlation": op.correlation,
            "graph_node": op.graph_node,
        }
        rows.append(slice_of(of_stream(op), op, **about))
    return with_depths(rows)


@once
def calls(report: Report) -> list[Row]:
    """One row per call."""
    rows = []
    for index, call in enumerate(report.calls.calls):
        source, via = report.sources.of(index)
        about: Row = {"name": call.name, "class": report.calls.classes[index], "source": source}
        about |= {"via": via, "correlation": call.correlation}
        rows.append(slice_of(of_thread("calls", call.thread), call, **about))
    return with_depths(rows)


@once
def ranges(report: Report) -> list[Row]:
    """§22.3: one row per range."""
    phases = report.phases
    groups = (phases.push_pop, phases.start_end, phases.automatic_steps)
    known = [one for group in groups for some in group.values() for one in some]
    last_ns = end_of_trace(report.trace)
    opened = (
        phases.opened(own, last_ns)
        for own in report.trace.ranges
        if (own.domain or "").lower() == "nccl"
    )
    return longest_first(
        [
            slice_of(of_thread("phases", one.thread), one, name=one.name, ended=not one.cut_off)
            for one in (*known, *opened)
            if one is not None and one.end_ns > one.start_ns
        ]
    )


@once
def profiler(report: Report) -> list[Row]:
    """One row per stretch of the profiler's own work."""
    lasting = [row for row in report.trace.overhead if row.end_ns >= row.start_ns]
    return longest_first(
        [slice_of(of_thread("profiler", row.thread), row, name=row.name) for row in lasting]
    )


def of_worker(time: LoaderTime) -> Lane:
    """§22.12: the lane of a worker of a loader."""
    return {**NOTHING, "kind": "worker", "process": os_pid(time.process)}


def batches(report: Report) -> list[Row]:
    """§22.12: one row per batch of a worker."""
    return [
        row
        for _, mine in workers_of(report)
        for row in longest_first([slice_of(of_worker(time), time, name="batch") for time in mine])
    ]


def workers_of(report: Report) -> list[tuple[tuple[int, int, int], list[LoaderTime]]]:
    """The batches of each worker, by process, loader and worker."""
    times = (time for time in report.trace.loader_times if time.start_ns <= time.end_ns)
    found = grouped_by(
        lambda time: (time.process, time.loader, time.worker or 0),
        (time for time in times if time.worker is not None),
    )
    return sorted(found.items())


def steps(report: Report) -> list[Row]:
    """One row per step."""
    kinds = kinds_of(report)
    return [
        slice_of(
            of_steps(step.process, step.device),
            step,
            step=step.index,
            kind=kinds[step].name,
            device=step.device,
        )
        for step in steps_of(report)
    ]


def gaps(report: Report) -> list[Row]:
    """One row per gap."""
    rows = []
    for gap in report.gaps.gaps:
        call, op = culprit(report, gap)
        about = {
            "device": gap.device,
            "prev_op": an_op(report, gap.prev_op),
            "next_op": an_op(report, gap.next_op),
            "cause": gap.cause,
            "culprit_call": a_call(report, call),
            "culprit_op": an_op(report, op),
            "phase": joined(main_place(report, gap) or ()) or None,
            **{f"{cause}_ns": gap.causes[cause] for cause in CAUSES},
        }
        lane = {**NOTHING, "kind": "gaps", "device": gap.device}
        rows.append(slice_of(lane, gap, **about))
    return rows


def culprit(report: Report, gap: Gap) -> tuple[int | None, int | None]:
    """§22.5: the call or the operation to blame."""
    if gap.cause == "dependency":
        awaited = waits_of(report).by_event(gap.next_op)
        if awaited is not None:
            return None, awaited
    call = report.gaps.culprit_call(gap, gap.cause)
    return report.calls.launch[gap.next_op] if call is None else call, None


def threads_of(report: Report) -> set[int]:
    """The threads that did something."""
    trace = report.trace
    found = {call.thread for call in report.calls.calls}
    found |= {row.thread for row in trace.ranges} | {row.thread for row in trace.overhead}
    found |= {row.thread for row in trace.gil} | {row.thread for row in trace.thread_cpu}
    return found | {row.thread for row in trace.graph_nodes if row.thread is not None}


@once
def host_stacks(report: Report) -> list[Row]:
    """§22.7: one row per stretch of a thread's time that a stack stands for."""
    return [
        {
            "lane": of_thread("host_stack", thread),
            "start_ns": start,
            "end_ns": end,
            "name": report.sources.lines(frames)[0] or report.sources.line(frames[0]),
        }
        for thread, (start, end), frames in drawn_stacks(report, HostStacks(report))
    ]


@once
def stack_frames(report: Report) -> list[Row]:
    """§22.9: one row per frame and the time for which it stays on a thread's stack."""
    stacks = HostStacks(report)
    rows: list[Row] = []
    opened: dict[int, list[Row]] = defaultdict(list)
    for thread, stretch, frames in sorted(drawn_stacks(report, stacks)):
        names = [report.sources.function(frame) for frame in reversed(frames)]
        mine = opened[thread]
        if mine and mine[-1]["end_ns"] < stretch[0]:
            mine.clear()
        kept = [row["name"] == name for row, name in zip(mine, names, strict=False)]
        del mine[kept.index(False) if False in kept else len(kept) :]
        for row in mine:
            row["end_ns"], row["stretches"] = stretch[1], row["stretches"] + 1
        for depth in range(len(mine), len(names)):
            row = {
                "lane": of_thread("stack", thread),
                "depth": depth,
                "start_ns": stretch[0],
                "end_ns": stretch[1],
                "name": names[depth],
                "own": report.sources.counts(frames[-1 - depth]),
                "first": stretch,
                "stretches": 1,
            }
            rows.append(row)
            mine.append(row)
    return rows


def drawn_stacks(report: Report, stacks: HostStacks) -> Iterator[tuple[int, Slice, Frames]]:
    """§22.7: thread, stretch and frames of what is drawn of what threads ran."""
    threads = threads_of(report)
    first_ns, last_ns = start_of_trace(report.trace), end_of_trace(report.trace)
    for (thread, at_ns), frames in stacks.stacks.items():
        start, end = _standing(stacks, thread, at_ns)
        start, end = max(start, first_ns), min(end, last_ns)
        if thread in threads and start < end:
            yield thread, (start, end), frames


def _standing(stacks: HostStacks, thread: int, at_ns: int) -> Slice:
    """§17.1 to §17.3: the time for which a stretch, or a sample, stands."""
    if stacks.exact:
        return at_ns, stacks.ends[thread, at_ns]
    if stacks.reach_ns is None:
        return at_ns, at_ns
    times = stacks.times[thread]
    place = times.index(at_ns)
    start, end = at_ns - stacks.reach_ns, at_ns + stacks.reach_ns + 1
    if place:
        start = max(start, (times[place - 1] + at_ns) // 2 + 1)
    if place + 1 < len(times):
        end = min(end, (at_ns + times[place + 1]) // 2 + 1)
    return start, end


def counters(report: Report) -> list[Row]:
    """One row per sampled value."""
    return [
        {"lane": of_counter(device), "time_ns": time_ns, "value_pct": pct}
        for device, values in counted(report)
        for time_ns, pct in values
    ]


Values = list[tuple[int, int]]
"""Each with its time."""


@once
def counted(report: Report) -> list[tuple[int, Values]]:
    """§22.2, §22.11, §22.13, §22.14: the GPU and the values of each lane, in their order."""
    samples, states = report.trace.gpu_samples, report.trace.gpu_states
    found = []
    for metric in METRICS:
        found += by_gpu((one.device, one.time_ns, getattr(one, metric)) for one in samples)
    shown = by_gpu((one.device, one.time_ns, one.sm_clock_mhz) for one in states)
    for device in sorted({one.device for one in report.trace.gpu_traffic}):
        for column in TRAFFIC:
            rates = rates_held(report, device, column)
            shown.append((device, [(start_ns, rate) for (start_ns, _), rate in rates]))
    for device, values in shown:
        highest = max((value for _, value in values), default=0)
        found.append((device, [(at, 100 * value // highest) for at, value in values if highest]))
    found += [(device, levels_of(report, use)) for device, _, use in uses(report)]
    return [(device, values) for device, values in found if values]


def by_gpu(rows: Iterable[tuple[int, int, int | None]]) -> list[tuple[int, Values]]:
    """The values that are known, of rows of GPU, time and value."""
    found: dict[int, Values] = defaultdict(list)
    for device, time_ns, value in rows:
        if value is not None:
            found[device].append((time_ns, value))
    return [*found.items()]


def levels_of(report: Report, use: Use) -> Values:
    """§22.13: where what a process has on a GPU changes by a percent of the most."""
    levels = {
        one.time_ns: one.level
        for one in use.levels
        if -(1 << 61) <= one.time_ns < end_of_trace(report.trace) and one.level is not None
    }
    most = max((one.level or 0 for one in use.levels if one.time_ns in levels), default=0)
    found: Values = []
    for time_ns, level in levels.items() if most > 0 else ():
        if not found or 100 * level // most != found[-1][1]:
            found.append((time_ns, 100 * level // most))
    return found


@unmeasured
def lanes(report: Report) -> list[Lane]:
    """§22.1, §22.2: the lanes in display order."""
    threads = threads_of(report)
    stepping = {(step.process, step.device) for step in steps_of(report)}
    processes = {thread & ~0xFFFFFF for thread in threads}
    processes |= {process for process, _ in stepping}
    processes |= {process for (process, _, _), _ in workers_of(report)}
    devices = {*report.devices, *(device for device, _ in counted(report))}
    of_threads = {
        kind: {tuple(row["lane"].values()): row["lane"] for row in made(report)}.values()
        for kind, made in OF_THREAD.items()
    }
    found: list[Lane] = []
    for process in sorted(processes):
        for device in sorted(devices):
            found += [of_steps(process, device)] if (process, device) in stepping else []
        mine = [thread for thread in threads if thread & ~0xFFFFFF == process]
        for thread in sorted(mine, key=lambda thread: _thread_order(report, thread)):
            lanes_ = [of_thread(kind, thread) for kind in OF_THREAD]
            found += [lane for lane in lanes_ if lane in of_threads[lane["kind"]]]
        of_process = [each for (of, _, _), each in workers_of(report) if of == process]
        found += [of_worker(each[0]) for each in of_process]
    for device in sorted(devices):
        found += _gpu_lanes(report, device)
    return found


def _thread_order(report: Report, thread: int) -> tuple[bool, bool, int]:
    """§22.2: the main thread first, then those of autograd."""
    is_main = os_tid(thread) == (thread >> 24) & 0xFFFFFF
    return not is_main, thread not in report.phases.autograd, thread


def _gpu_lanes(report: Report, device: int) -> list[Lane]:
    """§22.2: the lanes of a GPU."""
    found = [{**NOTHING, "kind": "gaps", "device": device}] if report.gaps_on(device) else []
    busy: dict[tuple[bool, int, bool, int], int] = defaultdict(int)
    streams = {}
    for index in report.on(device):
        op = report.ops[index]
        key = (op.process is not None, op.process or 0, op.stream is not None, op.stream or 0)
        busy[key] += op.end_ns - op.start_ns
        streams[key] = of_stream(op)
    found += [streams[key] for key in sorted(busy, key=lambda key: (-busy[key], key))]
    return found + [of_counter(device) for of, _ in counted(report) if of == device]


OF_THREAD = {"phases": ranges, "calls": calls, "host_stack": host_stacks}
OF_THREAD |= {"stack": stack_frames, "profiler": profiler}
"""The tracks of a thread, in their order."""

MADE = (
    *(operations, calls, ranges, steps, gaps, profiler, batches, host_stacks, stack_frames),
    counters,
)
TRACKS = {made.__name__: unmeasured(made) for made in MADE}
