"""What-if by replay (spec §14): waits removed from a trace that names no events."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from itertools import combinations, pairwise
from statistics import median

from nsysflow.analysis.idle.samples import WAITS
from nsysflow.analysis.phases.names import LOADS_DATA
from tests.oracle.accounting import communication
from tests.oracle.calls import MEMCPY, Calls
from tests.oracle.gpu_metrics import class_of
from tests.oracle.host_stacks import HostStacks
from tests.oracle.model import LOW_24_BITS, Frame, LoaderTime, Op, PlainTrace
from tests.oracle.once import grouped_by
from tests.oracle.report import Report
from tests.oracle.retries import is_in, retries

FREE = re.compile(r"(cudaFree|cuMemFree|hipFree|hipHostFree).*")
EVENT_SYNC = re.compile(r"(cuda|cu|hip)EventSynchronize")
NEVER = -(10**30)
WORK = ("matmul", "conv", "attention", "optimizer", "triton")


def _waits(frames: tuple[Frame, ...]) -> bool:
    """Whether a thread with this stack waits for another thread or process."""
    return bool(frames) and re.search(WAITS, frames[0].function or "") is not None


def middle(values: Iterable[int], default: int) -> int:
    """A median in whole ns, halves to even; the default where there are no values."""
    found = list(values)
    return round(median(found)) if found else default


def _rate_ns(batches: Iterable[LoaderTime]) -> int | None:
    """How often workers that never wait have a batch, by the slowest of them; None if each made one
    at most."""
    means, workers = [], 1
    for mine in grouped_by(lambda time: time.worker, batches).values():
        first, *later = sorted(mine, key=lambda time: (time.start_ns, time.end_ns))
        free_ns, busy_ns = first.end_ns, 0
        for time in later:
            busy_ns += max(0, time.end_ns - max(time.start_ns, free_ns))
            free_ns = max(free_ns, time.end_ns)
            workers = max(workers, time.workers or 1)
        if later:
            means.append(busy_ns // len(later))
    return max(means) // workers if means else None


class Replay:
    """A trace as a program. Calls and operations are named by their index."""

    def __init__(self, trace: PlainTrace) -> None:
        self.trace = trace
        known = Calls(trace)
        self.calls, self.classes = known.calls, known.classes
        order = sorted(
            range(len(known.ops)),
            key=lambda o: (known.ops[o].device, known.ops[o].start_ns, *known.order(o)),
        )
        self.ops: list[Op] = [known.ops[o] for o in order]
        launch = [known.launch[o] for o in order]
        self.limits_ns = [
            10_000 if known.launch[o] is None else known.queue_delay_limit_ns(o) for o in order
        ]
        self._outermost()
        self.launch = [None if c is None else self.holder[c] for c in launch]
        self.nodes = sorted(
            {c for c in self.launch if c is not None}
            | {c for c in self.outer if self.classes[c] != "api"},
            key=lambda c: (self.calls[c].thread, self.calls[c].start_ns),
        )
        self._predecessors()
        self._batches()
        self._feeds()
        self._targets()
        self._queue()
        self._bounds()

    def _thread(self, c: int) -> int:
        return self.calls[c].thread

    def _outermost(self) -> None:
        """*Calls* are the outermost ones of a thread."""
        self.outer: list[int] = []
        self.holder: dict[int, int] = {}
        for indices in grouped_by(self._thread, range(len(self.calls))).values():
            until = NEVER
            for c in indices:
                if self.calls[c].start_ns >= until:
                    self.outer.append(c)
                self.holder[c] = self.outer[-1]
                until = max(until, self.calls[c].end_ns)

    def _predecessors(self) -> None:
        """Rules 1 and 2."""
        threads = grouped_by(self._thread, self.nodes)
        autograd = {t.thread for t in self.trace.threads if t.name.startswith("pt_autograd")}
        helpers: dict[int, set[int]] = defaultdict(set)
        for one, other in combinations(threads, 2):
            if one >> 24 != other >> 24:
                continue
            main = [t for t in (one, other) if t & LOW_24_BITS == (t >> 24) & LOW_24_BITS]
            backward = len({one, other} & autograd) == 1 and bool(set(main) - autograd)
            merged = sorted((self.calls[c].start_ns, t) for t in (one, other) for c in threads[t])
            turns = sum(a[1] != b[1] for a, b in pairwise(merged))
            fewer = min(len(threads[one]), len(threads[other]))
            if backward or turns <= fewer / 5:
                helpers[one].add(other)
                helpers[other].add(one)
        self.before: dict[int, int | None] = {}
        self.pred: dict[int, int | None] = {}
        for thread, indices in threads.items():
            for place, c in enumerate(indices):
                own = indices[place - 1] if place else None
                ended = [
                    d
                    for t in helpers[thread]
                    for d in threads[t]
                    if self.calls[d].end_ns <= self.calls[c].start_ns
                ]
                pred = own
                for d in ended:
                    if pred is None or self.calls[d].end_ns > self.calls[pred].end_ns:
                        pred = d
                self.before[c], self.pred[c] = own, pred

    def _targets(self) -> None:
        """Rules 3 and 4."""
        self.after: dict[int, tuple[int, int]] = {}
        self.cost = {c: self.calls[c].end_ns - self.calls[c].start_ns for c in self.nodes}
        for c in self.nodes:
            call = self.calls[c]
            frees = FREE.fullmatch(call.name) and "Async" not in call.name
            if self.classes[c] == "blocking_copy":
                found = [o for o, launch in enumerate(self.launch) if launch == c]
            elif EVENT_SYNC.fullmatch(call.name):
                found = [o for o, op in enumerate(self.ops) if op.process == call.process]
            elif self.classes[c] == "sync" or frees:
                tails: dict[tuple[int, int], tuple[int, int, int]] = {}
                for o, op in enumerate(self.ops):
                    launch = self.launch[o]
                    if launch is None or op.process != call.process:
                        continue
                    begun = self.calls[launch].start_ns
                    if begun < call.start_ns:
                        key = (op.device, op.stream)
                        tails[key] = max(tails.get(key, (NEVER, 0, 0)), (begun, op.end_ns, o))
                found = [o for _, _, o in tails.values()]
            else:
                continue
            skewed = self.classes[c] == "blocking_copy" and call.name.startswith("hip")
            limit_ns = call.end_ns + 10_000 * skewed
            found = [o for o in found if self.ops[o].end_ns <= limit_ns]
            if found:
                target = max(found, key=lambda o: (self.ops[o].end_ns, o))
                own = call.end_ns - max(call.start_ns, self.ops[target].end_ns)
                self.after[c] = (target, own)
                self.cost[c] = own

    def _queue(self) -> None:
        """Rule 5."""
        lanes: dict[tuple[int | None, int, int], dict[int, int]] = defaultdict(dict)
        lane_of: dict[int, tuple[int | None, int, int]] = {}
        for o, launch in enumerate(self.launch):
            if launch is not None:
                op = self.ops[o]
                of_first = lane_of.setdefault(launch, (op.process, op.device, op.stream))
                lanes[of_first][launch] = o
        for lane in lanes.values():
            launches = sorted(lane, key=lambda c: self.calls[c].start_ns)
            ends = sorted(self.ops[o].end_ns for o in lane.values())
            full: list[tuple[int, int]] = []
            costs: dict[str, list[int]] = defaultdict(list)
            for k, c in enumerate(launches[1024:], 1024):
                if c in self.after:
                    continue
                done = bisect_right(ends, self.calls[c].start_ns)
                ahead = lane[launches[k - 1024]]
                since = self.calls[c].end_ns - self.ops[ahead].end_ns
                if k - done >= 1000:
                    full.append((c, ahead))
                else:
                    costs[self.calls[c].name].append(self.cost[c])
                    if k % 16 == 0 and since >= 0:
                        self.after[c] = (ahead, 0)
            for c, ahead in full:
                since = self.calls[c].end_ns - self.ops[ahead].end_ns
                if since >= 0:
                    self.cost[c] = min(self.cost[c], middle(costs[self.calls[c].name], 5_000))
                    self.after[c] = (ahead, since)

    def _bounds(self) -> None:
        """Rules 6 to 9."""
        self.sources: list[list[list[int]]] = []  # of each operation, [operation or -1, lag]
        prev: list[int | None] = []
        last: dict[tuple[int, int | None, int], int] = {}
        for o, op in enumerate(self.ops):
            key = (op.device, op.process, op.stream)
            before = last.get(key)
            prev.append(before)
            if before is None or op.end_ns >= self.ops[before].end_ns:
                last[key] = o
        lags, gaps = [], []
        firsts: set[int] = set()
        busy_until: dict[int, int] = {}
        in_time = sorted(range(len(self.ops)), key=lambda o: (self.ops[o].start_ns, o))
        for o in in_time:
            launch, before, op = self.launch[o], prev[o], self.ops[o]
            busy = busy_until.get(op.device, NEVER)
            busy_until[op.device] = max(busy, op.end_ns)
            if launch is None:
                continue
            begun = self.calls[launch].start_ns
            first, done = launch not in firsts, None if before is None else self.ops[before].end_ns
            firsts.add(launch)
            if op.kind not in ("kernel", "graph"):
                continue  # the host may copy before a copy starts
            if first and NEVER < busy <= begun:
                lags.append(op.start_ns - begun)
            if done is not None and begun + 5_000 <= done <= op.start_ns + 2_000:
                gaps.append(op.start_ns - done)
        self.lag, gap = max(0, middle(lags, 5_000)), max(0, middle(gaps, 1_000))
        turns = self._turns()
        for o, op in enumerate(self.ops):
            bounds: list[list[int]] = []
            if (launch := self.launch[o]) is not None:
                bounds.append([-1, min(self.lag, op.start_ns - self.calls[launch].start_ns)])
            if (before := prev[o]) is not None:
                bounds.append([before, min(gap, op.start_ns - self.ops[before].end_ns)])
            if o in turns and (seen := op.start_ns - self.ops[turns[o]].end_ns) >= 0:
                bounds.append([turns[o], min(gap, seen)])
            self.sources.append(bounds)
            if not bounds:
                continue
            limit_ns = self.limits_ns[o]
            if op.start_ns - self._reached(o) > limit_ns:
                near = [
                    (self.ops[d].end_ns, d)
                    for d in range(len(self.ops))
                    if self.ops[d].device == op.device
                    and op.start_ns - limit_ns <= self.ops[d].end_ns <= op.start_ns
                ]
                if near and max(near)[1] < o:
                    bounds.append([max(near)[1], op.start_ns - max(near)[0]])
            missing, reached = op.start_ns - self._reached(o), self._reached(o)
            at = [self._at(o, bound) for bound in bounds]
            binding = [b for b, time in zip(bounds, at, strict=True) if time == reached]
            binding[-1][1] += missing

    def _at(self, op: int, bound: list[int]) -> int:
        source, lag = bound
        launch = self.launch[op]
        if source >= 0:
            return self.ops[source].end_ns + lag
        assert launch is not None
        return self.calls[launch].start_ns + lag

    def _reached(self, op: int) -> int:
        return max(self._at(op, bound) for bound in self.sources[op])

    def _turns(self) -> dict[int, int]:
        """Of each kernel the one before it on its device, where two streams take turns."""
        overlap: set[frozenset[object]] = set()
        pairs: list[tuple[int, int]] = []
        longest: dict[int, int] = {}
        before: dict[int, int] = {}

        def lane(o: int) -> tuple[object, ...]:
            return self.ops[o].device, self.ops[o].process, self.ops[o].stream

        for o, op in enumerate(self.ops):
            if op.kind != "kernel" or op.end_ns == op.start_ns:
                continue
            for d in {*longest.values(), *before.values()}:
                same_device = self.ops[d].device == op.device
                if same_device and lane(d) != lane(o) and self.ops[d].end_ns > op.start_ns:
                    overlap.add(frozenset({lane(d), lane(o)}))
            if op.device in before and lane(before[op.device]) != lane(o):
                pairs.append((o, before[op.device]))
            before[op.device] = o
            if op.end_ns >= self.ops[longest.get(op.device, o)].end_ns:
                longest[op.device] = o
        return {o: d for o, d in pairs if frozenset({lane(o), lane(d)}) not in overlap}

    def ends_without(self, classes: Iterable[str], *, retried: bool | None = None) -> list[int]:
        """Rule 12: the ends without calls of these classes: all, or only in or outside retries."""
        gone = {c for c in self.nodes if self.classes[c] in set(classes)}
        if retried is not None:
            found = retries(self.calls, self.trace.failed_calls)
            gone = {c for c in gone if is_in(self.calls[c], found) == retried}
        return self.run(gone, {})[1]

    def ends_overlapped(self, waits: Iterable[list[list[int]]]) -> list[int]:
        """Rule 24: the ends, if the calls of each process's steps wait a step later."""
        after = dict(self.after)
        taken: set[int] = set()
        for steps in waits:
            before: int | None = None
            for step in steps:
                held = dict.fromkeys(self.holder[call] for call in step)
                known = [c for c in held if c in self.after]
                taken |= {*known}
                for c in known:
                    del after[c]
                if known:
                    target, back = self.after[known[-1]]
                    if before is not None:
                        after[known[-1]] = (before, back)
                    before = target
        late = copy(self)
        late.after = after
        copies = {c for c in taken if self.classes[c] == "blocking_copy"}
        return late.run(copies, {}, late=copies & {*after})[1]

    def ends_without_loops(self) -> list[int]:
        """Rule 21: the ends without syncs, blocking copies and their loops."""
        reads = {c for c in self.nodes if self.classes[c] in ("sync", "blocking_copy")}
        return self.run(reads, {}, loops=self.loops(reads))[1]

    def loops(self, reads: set[int]) -> list[list[int]]:
        """The calls of each loop that only reads."""
        kernels: dict[int, int] = defaultdict(int)
        stops = {c for c in self.nodes if self.classes[c] in ("sync", "alloc", "blocking_copy")}
        stops -= reads
        for op, launch in zip(self.ops, self.launch, strict=True):
            if launch is None:
                continue
            kernels[launch] += op.kind == "kernel"
            is_work = op.kind == "kernel" and class_of(op) in WORK
            if is_work or op.kind == "graph" or communication(op) is not None:
                stops.add(launch)
        chains: list[list[list[int]]] = []
        for of_thread in grouped_by(self._thread, self.nodes).values():
            chains.append([])
            since: list[int] = []
            for c in of_thread:
                since.append(c)
                if c not in reads:
                    continue
                if stops & {*since} or sum(kernels[d] for d in since) > 4 or not chains[-1]:
                    chains.append([])
                chains[-1].append(since)
                since = []
        found = []
        for first, *others in (chain for chain in chains if len(chain) >= 3):
            behind = first[1 + max((k for k, c in enumerate(first) if c in stops), default=-1) :]
            begun = behind[-min(len(calls) for calls in others) :]
            found.append([*begun, *(c for calls in others for c in calls)])
        return found

    def _batches(self) -> None:
        """How long each call waits for batches (rule 2)."""
        self.batch: dict[int, int] = {}
        loading = [
            one
            for one in self.trace.ranges
            if one.lasts and one.end_ns is not None and one.end_ns - one.start_ns >= 1_000_000
            if re.search(LOADS_DATA, one.name)
        ]
        stacks = HostStacks(Report(self.trace)) if loading else None
        for c in self.nodes:
            pred = self.pred[c]
            if stacks is None or pred is None or pred != self.before[c]:
                continue
            for one in loading:
                end_ns = one.end_ns or 0
                between = (
                    self.calls[pred].end_ns <= one.start_ns and end_ns <= self.calls[c].start_ns
                )
                if one.thread == self.calls[c].thread and between:
                    waited_ns = sum(
                        ns
                        for at_ns, ns in stacks.runs(one.thread, one.start_ns, end_ns)
                        if at_ns is not None and _waits(stacks.stacks[one.thread, at_ns])
                    )
                    if 2 * waited_ns >= end_ns - one.start_ns:
                        self.batch[c] = self.batch.get(c, 0) + end_ns - one.start_ns

    def _paced(self, c: int) -> bool:
        """Whether a call's batch comes when it came (rule 2)."""
        of_process = (t for t in self.trace.loader_times if t.process == self.calls[c].process)
        batches = (time for time in of_process if time.worker is not None)
        loaders = grouped_by(lambda time: time.loader, batches)
        return not loaders or any(
            2 * sum(time.end_ns - time.start_ns for time in mine)
            >= max(max(time.workers or 0 for time in mine), 1)
            * (max(time.end_ns for time in mine) - min(time.start_ns for time in mine))
            for mine in loaders.values()
        )

    def _feeds(self) -> None:
        """For each call that uses a batch the one that used the batch before it, and how long after
        that one starts it may start (rule 2)."""
        told = [time for time in self.trace.loader_times if time.start_ns <= time.end_ns]
        last: dict[int, tuple[int, int, int, int]] = {}
        for (process, loader), mine in grouped_by(lambda t: (t.process, t.loader), told).items():
            rate_ns = _rate_ns([time for time in mine if time.worker is not None])
            main = [
                c
                for c in self.nodes
                if self.calls[c].process == process
                and self.calls[c].thread & LOW_24_BITS == (process >> 24) & LOW_24_BITS
            ]
            users: list[tuple[int, int]] = []
            for fed_ns in sorted(time.end_ns for time in mine if time.worker is None):
                behind = [c for c in main if self.calls[c].start_ns >= fed_ns]
                if behind and users and users[-1][0] == behind[0]:
                    users.pop()
                users += [(c, fed_ns) for c in behind[:1]]
            for (earlier, _), (c, fed_ns) in pairwise(users):
                if rate_ns is not None and self.pred[c] is not None:
                    later_ns = self.calls[c].start_ns - self.calls[earlier].start_ns
                    fed = (fed_ns, loader, earlier, min(rate_ns, later_ns))
                    last[c] = max(last.get(c, fed), fed)
        self.fed = {
            c: (earlier, feed_ns)
            for c, (_, _, earlier, feed_ns) in last.items()
            if self.pred[c] == self.before[c]
        }

    def ends_without_cost(
        self, permille: int, backtrace_ns: int, gap_ns: int, traced: Collection[int]
    ) -> list[int]:
        """When each operation ends, without what recording costs (rule 16); `traced` are the calls
        that have a backtrace."""
        return self.run(set(), {}, self.costs(permille, backtrace_ns, traced), nearer_ns=gap_ns)[1]

    def costs(
        self, permille: int, backtrace_ns: int = 0, traced: Collection[int] = ()
    ) -> dict[int, tuple[int, int]]:
        """What recording costs at each call: of its work, and of its own cost (rule 16)."""
        less = {}
        for c in self.nodes:
            if self.pred[c] is None:
                continue
            host_ns = self._work(c) + max(0, self.cost[c])
            traced_ns = min(host_ns, backtrace_ns) if self.pred[c] in traced else 0
            rest_ns = host_ns - traced_ns
            longer_ns = min(max(0, rest_ns - 100_000), self._work(c))
            thirds = 3 * min(rest_ns, 100_000) + longer_ns
            all_ns = traced_ns + permille * thirds // 3_000
            own_ns = min(max(0, self.cost[c]), 100_000)
            call_ns = min(all_ns, permille * 600 * own_ns // 1_000_000)
            less[c] = min(self._work(c), all_ns - call_ns), call_ns
        return less

    def _span(self, c: int) -> int:
        """From the call before it to a call."""
        pred = self.pred[c]
        return self.calls[c].start_ns - (0 if pred is None else self.calls[pred].end_ns)

    def _work(self, c: int) -> int:
        """The host's work before a call."""
        return max(0, self._span(c) - self.batch.get(c, 0))

    def run(
        self,
        gone: set[int],
        ended: Mapping[int, int],
        less: Mapping[int, tuple[int, int]] | None = None,
        loops: Iterable[list[int]] = (),
        late: Collection[int] = (),
        nearer_ns: int = 0,
    ) -> tuple[list[int], list[int]]:
        """When each operation starts and ends.

        Args:
            gone: the calls that are removed.
            ended: the ends that other ranks decide, by operation.
            less: what a call takes less of its work, and of its own cost.
            loops: the calls of loops that go.
            late: removed calls that wait all the same.
            nearer_ns: how much sooner operations follow others, 500 ns behind them at the nearest.
        """
        free = {c for loop in loops for c in loop}
        behind = {c for loop in loops for c in loop[1:]}
        launching = [
            self.cost[c]
            for c in self.nodes
            if self.classes[c] == "launch" and MEMCPY.fullmatch(self.calls[c].name)
        ]
        copying = middle(launching, 5_000)
        events: list[tuple[int, int, int]] = []
        for c in self.nodes:
            events.append((self.calls[c].start_ns, 1, c))
            if c in self.after:
                events.append((self.calls[c].end_ns, 0, c))
        events += [(op.start_ns, 2, o) for o, op in enumerate(self.ops)]
        start: dict[int, int] = {}
        end: dict[int, int] = {}
        starts = [op.start_ns for op in self.ops]
        ends = [op.end_ns for op in self.ops]
        for _, kind, i in sorted(events):
            if kind == 1:
                less_work_ns, less_cost_ns = (less or {}).get(i, (0, 0))
                if i in behind:
                    less_work_ns = self._span(i)
                start[i] = self._start(i, start, end, less_work_ns, fed=i not in behind)
                cost_ns = self.cost[i] - less_cost_ns
                copies = self.classes[i] == "blocking_copy"
                removed = min(self.cost[i], copying) if copies else 0
                end[i] = start[i] + (removed if i in gone else cost_ns) * (i not in free)
            elif kind == 0 and (i in late or i not in gone | free):
                target, back = self.after[i]
                end[i] = max(end[i], ends[target] + back)
            elif kind == 2:
                starts[i] = self._op_start(i, start, ends, gone, free, nearer_ns)
                lasts_ns = self.ops[i].end_ns - self.ops[i].start_ns
                lasts_ns *= self.launch[i] not in free
                ends[i] = ended.get(i, starts[i] + lasts_ns)
        return starts, ends

    def _start(
        self, c: int, start: dict[int, int], end: dict[int, int], less_ns: int, *, fed: bool
    ) -> int:
        """When a call starts, whose work is so much shorter; `fed` if it waits for batches."""
        pred, before = self.pred[c], self.before[c]
        if pred is None:
            return self.calls[c].start_ns - less_ns
        if fed and c in self.batch and self._paced(c):
            return max(end[pred] + self._span(c) - self.batch[c] - less_ns, self.calls[c].start_ns)
        work = self.calls[c].start_ns - self.calls[pred].end_ns - less_ns
        if fed and c in self.fed:
            earlier, feed_ns = self.fed[c]
            return max(end[pred] + work, start[earlier] + feed_ns)
        return max(end[pred] + work, NEVER if before is None else end[before])

    def _op_start(
        self,
        o: int,
        start: dict[int, int],
        ends: list[int],
        gone: set[int],
        free: set[int],
        nearer_ns: int,
    ) -> int:
        launch, times = self.launch[o], []
        for source, lag in self.sources[o]:
            if source >= 0:
                lag -= min(nearer_ns, max(0, lag - 500))
                times.append(ends[source] + (min(lag, 0) if launch in free else lag))
            elif launch is not None:
                removed = launch in gone and self.classes[launch] == "blocking_copy"
                times.append(start[launch] + (min(lag, self.lag) if removed else lag))
        return max(times, default=self.ops[o].start_ns)
