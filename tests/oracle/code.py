"""Which line of the program launched each kernel (spec §17.9 to §17.14)."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.accounting import Keep
from tests.oracle.model import Frame
from tests.oracle.once import once
from tests.oracle.report import Report, Row
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import launched_by

Frames = tuple[Frame, ...]
Line = tuple[str | None, str | None, bool, bool]
"""Source, via, whether that line waits for another thread, or it computes gradients of it."""

Key = tuple[int | None, int, str | None, str | None, bool, bool]
"""Process, device, and the same."""

UNKNOWN = (None, None, False, False)


@dataclass(frozen=True)
class Seen:
    """A stack that a thread was seen with, from the first instant to the last."""

    first_ns: int
    last_ns: int
    frames: Frames

    def apart_ns(self, start_ns: int, end_ns: int) -> int:
        """§17.11: how far it is from a call."""
        return max(0, start_ns - self.last_ns, self.first_ns - end_ns)


def seen_by_thread(report: Report) -> dict[int, list[Seen]]:
    """§17.9: the stacks that count, by thread and time."""
    trace = report.trace
    every = [
        (stretch.thread, Seen(stretch.start_ns, stretch.end_ns - 1, stretch.frames))
        for stretch in trace.running
    ] or [
        *((one.thread, Seen(one.time_ns, one.time_ns, one.frames)) for one in trace.samples),
        *((one.thread, Seen(one.start_ns, one.start_ns, one.frames)) for one in trace.backtraces),
    ]
    found = defaultdict(list)
    for thread, seen in every:
        if report.sources.lines(seen.frames) != (None, None):
            found[thread].append(seen)
    return {thread: sorted(seen, key=lambda one: one.first_ns) for thread, seen in found.items()}


def lender(report: Report, seen: dict[int, list[Seen]], thread: int, process: int) -> int | None:
    """§17.10: the thread whose stacks stand for the launches of this one."""
    autograd = report.phases.autograd
    if thread in seen and thread not in autograd:
        return thread
    others = [other for other in {*seen} - autograd if process_of(report, other) == process]
    return min(others, key=lambda other: (-len(seen[other]), other), default=None)


def process_of(report: Report, thread: int) -> int:
    """§1.7: the process of a thread."""
    return thread & ~0xFFFFFF


def reach_ns(report: Report) -> int:
    """§17.11: two periods of the samples; 0 without two of one thread."""
    times = defaultdict(set)
    for sample in report.trace.samples:
        times[sample.thread].add(sample.time_ns)
    apart = [b - a for one in times.values() for a, b in pairwise(sorted(one))]
    return 2 * (whole(percentile(apart, 50)) or 0)


@once
def lines_of_launches(report: Report) -> dict[int, Line]:
    """§17.12: source and via by launch call, and whether they are lent (§17.10), or those of the
    forward pass (§17.14)."""
    seen, calls = seen_by_thread(report), report.calls.calls
    exact = bool(report.trace.running)
    limit_ns = 0 if exact else reach_ns(report)
    near: dict[tuple[object, ...], list[tuple[int, int, Frames]]] = defaultdict(list)
    place_of: dict[int, tuple[object, ...]] = {}
    for place, call in places(report):
        row = calls[call]
        place_of[call] = (call,) if exact else place
        asked = lender(report, seen, row.thread, row.process)
        end_ns = row.start_ns if exact else row.end_ns
        for one in candidates(seen.get(asked, []) if asked is not None else [], end_ns):
            apart = one.apart_ns(row.start_ns, end_ns)
            near[place_of[call]].append((apart, row.start_ns, one.frames))
    found = {}
    for call, place in place_of.items():
        best = min(near[place], key=lambda one: one[:2], default=None)
        if best is not None and best[0] <= limit_ns:
            row = calls[call]
            lent = lender(report, seen, row.thread, row.process) != row.thread
            found[call] = (*report.sources.lines(best[2]), lent, False)
        if (frames := differentiated(report, call)) is not None:
            found[call] = (*report.sources.lines(frames), False, True)
    return found


def differentiated(report: Report, call: int) -> Frames | None:
    """§17.14: the stack of what the launch computes gradients of; ties: the earlier row."""
    launch = report.calls.calls[call]
    around = [
        one
        for one in report.trace.gradients
        if one.thread == launch.thread
        and one.start_ns <= launch.start_ns < one.end_ns
        and report.sources.lines(one.frames) != (None, None)
    ]
    inner = min(around, key=lambda one: (-one.start_ns, one.end_ns), default=None)
    return None if inner is None else inner.frames


def candidates(seen: list[Seen], end_ns: int) -> Iterator[Seen]:
    """§17.11: the last stack seen up to the end of a call, and the first one behind."""
    before = [one for one in seen if one.first_ns <= end_ns]
    yield from before[-1:]
    yield from seen[len(before) :][:1]


def places(report: Report) -> Iterator[tuple[tuple[object, ...], int]]:
    """§17.12: the place of each launch: its thread, its number in the step, and what it starts."""
    step_of = {
        index: (process, range_.start_ns, range_.row)
        for process in report.processes
        for (loop, range_), ops in launched_by(report, process, None).items()
        if loop == 0
        for index in ops
    }
    numbers: Counter[object] = Counter()
    launched = {call: ops for call, ops in report.calls.launched.items() if ops}
    for call in sorted(launched, key=lambda at: (report.calls.calls[at].start_ns, at)):
        first = min(
            launched[call], key=lambda at: (report.ops[at].start_ns, report.calls.order(at))
        )
        thread, step = report.calls.calls[call].thread, step_of.get(first)
        if step is None:
            yield (call,), call
            continue
        yield (thread, report.ops[first].name, numbers[thread, step]), call
        numbers[thread, step] += 1


def code(report: Report, keep: Keep | None = None) -> list[Row]:
    """§17.13: a row per process, device and line."""
    if not seen_by_thread(report):
        return []
    lines = lines_of_launches(report)
    took: dict[Key, Counter[str]] = defaultdict(Counter)
    counts: Counter[Key] = Counter()
    whole_ns: Counter[int] = Counter()
    for index, op in enumerate(report.ops):
        inside = keep is None or any(a <= op.start_ns < b for a, b in keep.get(op.device, []))
        if op.kind != "kernel" or not inside:
            continue
        launch = report.calls.launch[index]
        key: Key = (
            op.process,
            op.device,
            *lines.get(-1 if launch is None else launch, UNKNOWN),
        )
        took[key][op.short_name] += op.end_ns - op.start_ns
        counts[key] += 1
        whole_ns[op.device] += op.end_ns - op.start_ns
    rows = []
    for key, names in took.items():
        process, device, source, via, waits, backward = key
        kernel = min(names, key=lambda name: (-names[name], name))
        ns = names.total()
        rows.append(
            {
                **report.about(process, device=device),
                "source": source,
                "via": via,
                "waits": waits,
                "backward": backward,
                "kernels": counts[key],
                "total_ns": ns,
                "share_pct": 100 * ns / whole_ns[device] if whole_ns[device] else None,
                "kernel": kernel,
                "kernel_pct": 100 * names[kernel] / ns if ns else None,
            }
        )
    return rows
