"""Gaps and their causes: the run-ahead model (spec §3)."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from tests.oracle.calls import STALLS, Calls
from tests.oracle.model import Overhead, PlainTrace
from tests.oracle.once import unmeasured
from tests.oracle.phases import NOWHERE, Phases, Place
from tests.oracle.producers import Producers

CAUSES = (
    *("profiler", "sync", "blocking_copy", "alloc", "module_load", "api", "host", "launch"),
    *("queue_delay", "dependency", "unknown"),
)
FRAMEWORK_GAP_NS = 50_000

RANK = {"sync": 0, "blocking_copy": 0, "alloc": 1, "module_load": 2, "launch": 3, "api": 4}
"""§3.6: sync = blocking_copy, alloc, module_load, launch, api."""


@dataclass
class Gap:
    """One gap, the operations beside it, and what each of its nanoseconds is charged to."""

    device: int
    start_ns: int
    end_ns: int
    next_op: int
    prev_op: int
    causes: Counter[str] = field(default_factory=Counter)
    by_call: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    by_overhead: Counter[int] = field(default_factory=Counter)
    between_calls: Counter[str] = field(default_factory=Counter)
    inside_calls: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Per cause, the calls that its time lies in and their ns, in order of time; not the stalls."""
    instants: list[tuple[str, int | None, int, int]] = field(default_factory=list)
    """Step 2's `host` and `launch`: cause, the call that they lie in, and from when to when."""
    host_place: Place = NOWHERE
    places: dict[str, Counter[tuple[str, ...] | None]] = field(default_factory=dict)
    """§3.17: by cause, kept by `idle_places`."""
    unseen: bool = False
    """§3.4: whether `n` waited for what was launched before the recording."""
    starts_before_launch: bool = False
    """Whether the gap starts before `L` does, so that the host was doing something else."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def cause(self) -> str:
        """§3.13: the largest part; ties go to the first in the table."""
        return max(CAUSES, key=self.causes.__getitem__)  # max takes the first of equals


@dataclass
class Rest:
    """§3.9 to §3.12: the state along one device's gaps of one process."""

    stalled: list[tuple[int, int]] = field(default_factory=list)
    """The rest of §3.11: calls and their ns that no gap was charged with yet, in order of time."""
    largest_h: int | None = None
    host_times: list[tuple[int, int]] = field(default_factory=list)
    """`[g0, a)` of the gaps so far, including skipped ones."""


def _without(interval: tuple[int, int], holes: list[tuple[int, int]]) -> int:
    """How much of an interval lies outside the holes, which are disjoint and in order."""
    begin, end = interval
    first = bisect_right(holes, begin, key=lambda hole: hole[1])
    past = bisect_left(holes, end, key=lambda hole: hole[0])
    return end - begin - sum(min(end, b) - max(begin, a) for a, b in holes[first:past])


class Timeline:
    """The calls of one thread; finds those that overlap an interval."""

    def __init__(self, calls: Calls, indices: Iterable[int]) -> None:
        self.indices = sorted(indices)  # calls are sorted by start
        self.starts = [calls.calls[index].start_ns for index in self.indices]
        self.latest_end: list[int] = []
        latest = None
        for index in self.indices:
            end = calls.calls[index].end_ns
            latest = end if latest is None else max(latest, end)
            self.latest_end.append(latest)
        self.calls = calls

    def overlapping(self, lo: int, hi: int) -> list[int]:
        """The calls with an instant in `[lo, hi)`."""
        first = bisect_right(self.latest_end, lo)
        last = bisect_left(self.starts, hi)
        return [index for index in self.indices[first:last] if self.calls.calls[index].end_ns > lo]


class Gaps:
    """All gaps of a trace, by device and start."""

    def __init__(
        self,
        trace: PlainTrace,
        *,
        framework_gap_ns: int = FRAMEWORK_GAP_NS,
        whole: Calls | None = None,
    ) -> None:
        self.calls = Calls(trace, whole)
        if whole is None:
            self.calls.unseen = Producers(trace, self.calls).unseen()
        self.phases = Phases(trace)
        self.framework_gap_ns = framework_gap_ns
        self.overhead: list[Overhead] = sorted(
            (row for row in trace.overhead if row.end_ns > row.start_ns),
            key=lambda row: (row.start_ns, -row.end_ns, row.thread, row.name),
        )
        self.overhead_until = list(accumulate((row.end_ns for row in self.overhead), max))
        by_thread = self.calls.by_thread
        self.timelines = {t: Timeline(self.calls, indices) for t, indices in by_thread.items()}
        self._busy_edges: dict[int, tuple[list[int], list[int]]] = {}
        for thread, indices in by_thread.items():
            edges = [index for index in indices if self.calls.classes[index] != "api"]
            self._busy_edges[thread] = (
                sorted(self.calls.calls[index].end_ns for index in edges),
                sorted(self.calls.calls[index].start_ns for index in edges),
            )

    @cached_property
    @unmeasured
    def gaps(self) -> list[Gap]:
        """By device and start; not every test asks for them."""
        devices = sorted({op.device for op in self.calls.ops})
        return [gap for device in devices for gap in self._device(device)]

    def _device(self, device: int) -> Iterator[Gap]:
        """§3: the gaps of a device; §1.6: an operation of zero length bounds none."""
        ops = self.calls.ops
        here = [i for i, op in enumerate(ops) if op.device == device and op.end_ns > op.start_ns]
        starting: dict[int, list[int]] = defaultdict(list)
        ending: dict[int, list[int]] = defaultdict(list)
        for index in here:
            starting[ops[index].start_ns].append(index)
            ending[ops[index].end_ns].append(index)
        here.sort(key=lambda index: ops[index].start_ns)
        busy_until: int | None = None
        self.rests: dict[int, Rest] = {}
        self.queued_ns = self._first_queued(device)
        for index in here:
            op = ops[index]
            if busy_until is not None and op.start_ns > busy_until:
                gap = Gap(
                    device,
                    busy_until,
                    op.start_ns,
                    next_op=min(starting[op.start_ns], key=self.calls.order),  # §3.1: `n`
                    prev_op=self._previous(ending[busy_until]),
                )
                self._explain(gap)
                yield gap
            busy_until = op.end_ns if busy_until is None else max(busy_until, op.end_ns)

    def _first_queued(self, device: int) -> dict[int | None, int]:
        """§3.10: by process, when its first operation on the device was queued."""
        queued: dict[int | None, int] = {}
        here = (index for index, op in enumerate(self.calls.ops) if op.device == device)
        for index in sorted(here, key=lambda i: (self.calls.ops[i].start_ns, self.calls.order(i))):
            op, launch = self.calls.ops[index], self.calls.launch[index]
            ends = [] if launch is None else [self.calls.calls[launch].end_ns]
            queued.setdefault(op.process, min([op.start_ns, *ends]))
        return queued

    def _previous(self, candidates: list[int]) -> int:
        """§3.1, §1.10: `p`; what the spec does not order, the other columns do."""

        def order(index: int) -> tuple[Any, ...]:
            op, call = self.calls.ops[index], self.calls.caller(index)
            begun = (False, 0) if call is None else (True, call.start_ns)
            number, node = (-1 if n is None else n for n in (op.correlation, op.graph_node))
            names = op.short_name, op.name, op.process is not None, op.process or 0
            return (*begun, number, op.stream, node, *names)

        return max(candidates, key=order)

    def _explain(self, gap: Gap) -> None:
        """§3.3 to §3.12, and the `host_range` of §3.14."""
        g0, g1 = gap.start_ns, gap.end_ns
        launch = self.calls.launch[gap.next_op]
        if launch is None:
            page = self.calls.ops[gap.next_op].name.startswith("memcpy UVM ")
            gap.causes["host" if page else "unknown"] = gap.duration_ns  # §3.3
            return
        call = self.calls.calls[launch]
        a = min(max(call.end_ns, g0), g1)  # §3.4: where host time ends and queue time begins
        queued = g1 - a
        if queued > 0:
            gap.causes[self._cause_of_queue(gap, queued)] = queued
        # step 2: the thread of `L`, and that of `P` if it is another one of the same process
        previous = self.calls.launch[gap.prev_op]
        linked = previous is not None and self.calls.calls[previous].process == call.process
        threads = {call.thread}
        if previous is not None and linked:
            threads.add(self.calls.calls[previous].thread)
        self._split_host_time(gap, threads, g0, a)
        rest = self.rests.setdefault(call.process, Rest())
        if a > g0:
            if linked:
                self._charge_stall(gap, threads, min(g0, call.start_ns), rest)
            rest.host_times.append((g0, a))
        if call.start_ns > g0:
            instant = (g0 + min(call.start_ns, g1)) // 2
            gap.starts_before_launch = True
            gap.host_place = self.phases.at(call.process, call.thread, instant)

    def _cause_of_queue(self, gap: Gap, queued_ns: int) -> str:
        """§3.4: what time behind the launch of the next operation is due to."""
        if queued_ns <= self.calls.queue_delay_limit_ns(gap.next_op):
            return "queue_delay"
        before, after = (self.calls.ops[index] for index in (gap.prev_op, gap.next_op))
        inside = None not in (before.graph_node, after.graph_node)
        launch = after.process, after.correlation
        one = launch == (before.process, before.correlation)
        lost = inside and one and launch in self.calls.lacking
        calls = (self.calls.launch[index] for index in (gap.prev_op, gap.next_op))
        gap.unseen = launch in self.calls.unseen and len(set(calls)) > 1
        return "unknown" if lost or gap.unseen else "dependency"

    def _elementary(self, threads: set[int], lo: int, hi: int) -> list[tuple[int, int]]:
        """`[lo, hi)` cut wherever anything on these threads begins or ends."""
        if lo >= hi:
            return []
        cuts = {lo, hi}
        for thread in threads:
            if thread in self.timelines:
                # a zero-length call at lo or later has no instant but ends a stretch
                timeline = self.timelines[thread]
                first, last = bisect_left(timeline.starts, lo), bisect_left(timeline.starts, hi)
                touching = {*timeline.overlapping(lo, hi), *timeline.indices[first:last]}
                for index in touching:
                    call = self.calls.calls[index]
                    cuts |= {t for t in (call.start_ns, call.end_ns) if lo < t < hi}
        for row in self.overhead[bisect_right(self.overhead_until, lo) :]:
            if row.start_ns >= hi:
                break
            if row.thread in threads:
                cuts |= {t for t in (row.start_ns, row.end_ns) if lo < t < hi}
        ordered = sorted(cuts)
        return list(pairwise(ordered))

    def _active_overhead(self, threads: set[int], lo: int) -> int | None:
        """§3.5: the first overhead row of these threads that covers the instant."""
        first = bisect_right(self.overhead_until, lo)  # those before it end before
        for index, row in enumerate(self.overhead[first:], first):
            if row.start_ns > lo:
                break
            if row.thread in threads and lo < row.end_ns:
                return index
        return None

    def _active_call(self, threads: set[int], lo: int) -> int | None:
        """§3.6: the active call of either thread with the first class in `RANK`."""
        active = [
            index
            for thread in threads
            if thread in self.timelines
            for index in self.timelines[thread].overlapping(lo, lo + 1)
        ]
        return min(active, key=lambda i: (RANK[self.calls.classes[i]], i), default=None)

    def _in_framework_gap(self, threads: set[int], lo: int, hi: int) -> bool:
        """§3.7: whether the stretch between the calls around `[lo, hi)` is a framework gap."""
        ends, starts = [], []
        for thread in threads:
            all_ends, all_starts = self._busy_edges.get(thread, ([], []))
            before, after = bisect_right(all_ends, lo), bisect_left(all_starts, hi)
            if before > 0:
                ends.append(all_ends[before - 1])
            if after < len(all_starts):
                starts.append(all_starts[after])
        return bool(ends and starts) and min(starts) - max(ends) <= self.framework_gap_ns

    def _split_host_time(self, gap: Gap, threads: set[int], lo: int, hi: int) -> None:
        """§3.5 to §3.8: each instant of `[g0, a)` goes to the first rule that applies."""
        for begin, end in self._elementary(threads, lo, hi):
            length = end - begin
            overhead = self._active_overhead(threads, begin)
            call = self._active_call(threads, begin)
            if overhead is not None:
                gap.causes["profiler"] += length
                gap.by_overhead[overhead] += length
                continue
            cause = None if call is None else self.calls.classes[call]
            if cause in (None, "api"):
                if self._in_framework_gap(threads, begin, end):
                    # §3.8: an `api` call in a framework gap is `launch`, and time between calls
                    cause, call = "launch", None
                else:
                    cause = cause or "host"
            gap.causes[cause] += length
            if cause in ("host", "launch"):
                gap.instants.append((cause, call, begin, end))
            if call is None:
                gap.between_calls[cause] += length
            else:
                gap.by_call[cause][call] += length
                gap.inside_calls.setdefault(cause, []).append((call, length))

    def _charge_stall(self, gap: Gap, threads: set[int], h: int, rest: "Rest") -> None:
        """§3.10 to §3.12: charge the stall that used up the run-ahead; `h` is min(g0, L.start)."""
        new: list[tuple[int, int]] = []  # call, ns
        since = self.queued_ns[self.calls.ops[gap.prev_op].process]
        if rest.largest_h is not None:
            since = max(since, rest.largest_h)
        for begin, end in self._elementary(threads, since, h):
            call = self._active_call(threads, begin)
            if call is None or self.calls.classes[call] not in STALLS:
                continue
            if self._active_overhead(threads, begin) is not None:
                continue
            outside = _without((begin, end), rest.host_times)
            if outside:
                new.append((call, outside))
        rest.largest_h = h if rest.largest_h is None else max(rest.largest_h, h)
        if new:  # §3.11: they become the rest; what was left of the former rest is dropped
            rest.stalled = new
        can_give = sum(gap.causes[cause] for cause in ("host", "api", "launch"))
        x = min(sum(ns for _, ns in rest.stalled), can_give)
        # §3.12: the last x ns of the rest are charged to their calls and leave it
        left = x
        while left > 0:
            call, ns = rest.stalled.pop()
            charged = min(ns, left)
            if ns > charged:
                rest.stalled.append((call, ns - charged))
            cause = self.calls.classes[call]
            gap.causes[cause] += charged
            gap.by_call[cause][call] += charged
            left -= charged
        # §3.12: x is taken from `host` first, then from `api`, then from `launch`
        for cause in ("host", "api", "launch"):
            taken = min(x, gap.causes[cause])
            gap.causes[cause] -= taken
            x -= taken
            # §3.20: `launch` gives what lies between calls first, then the earliest inside them
            inside = gap.inside_calls.get(cause, [])
            too_much = sum(ns for _, ns in inside) - gap.causes[cause]
            while too_much > 0:
                call, ns = inside.pop(0)
                if ns > too_much:
                    inside.insert(0, (call, ns - too_much))
                too_much -= ns

    def culprit(self, gap: Gap, cause: str) -> str:
        """§3.15: the name of the call charged most; for `profiler` the overhead's."""
        if cause == "profiler" and gap.by_overhead:
            most = min(gap.by_overhead, key=lambda i: (-gap.by_overhead[i], i))
            return self.overhead[most].name
        call = self.culprit_call(gap, cause)
        return "" if call is None else self.calls.calls[call].name

    @staticmethod
    def culprit_call(gap: Gap, cause: str) -> int | None:
        """§3.15: the index of that call; None if there is none."""
        charged = gap.by_call[cause]
        if not charged:
            return None
        most = min(charged, key=lambda i: (-charged[i], i))
        return None if gap.between_calls[cause] > charged[most] else most

    def induced(self) -> Counter[int]:
        """§4.1: what steps 2 and 3 charged to each sync, blocking_copy or alloc call."""
        total: Counter[int] = Counter()
        for gap in self.gaps:
            for cause in STALLS:
                total.update(gap.by_call[cause])
        return total
