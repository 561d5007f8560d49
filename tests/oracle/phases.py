"""Where an operation was launched: stacks of NVTX ranges, inherited and captured paths (§7)."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from tests.oracle.calls import Calls
from tests.oracle.engine_names import ENGINE_STEP
from tests.oracle.model import LOW_24_BITS, Call, GraphNode, Op, Overhead, PlainTrace, Range
from tests.oracle.once import grouped_by
from tests.oracle.range_names import grouped, is_compiling, is_operator, may_be_tuning

LIBRARY_DOMAINS_ANY_CASE = ("nccl", "cccl", "cublas", "cudnn", "cusparse", "cufft")
LIBRARY_DOMAINS = ("Python Periodic Sampling", "Python Backtrace on CUDA", "nsysflow.window")

AUTOMATIC = "nsysflow.auto"


def is_library(domain: str | None) -> bool:
    """§7.2: ranges of library domains are not phases."""
    if domain is None:
        return False
    return domain.lower() in LIBRARY_DOMAINS_ANY_CASE or domain in LIBRARY_DOMAINS


def lasting(trace: PlainTrace) -> list[Op | Call | Range | Overhead]:
    """§1.6: the rows that are not dropped."""
    rows: list[Op | Call | Range | Overhead]
    rows = [*trace.ops, *trace.calls, *trace.ranges, *trace.overhead]
    return [row for row in rows if row.end_ns is None or row.end_ns >= row.start_ns]


def start_of_trace(trace: PlainTrace) -> int:
    """§1.6: the earliest start of any row."""
    return min((row.start_ns for row in lasting(trace)), default=0)


def end_of_trace(trace: PlainTrace) -> int:
    """§1.6: the latest end of any row."""
    ends = [row.end_ns for row in lasting(trace) if row.end_ns is not None]
    return max([*ends, *(t + 1 for t in times_of_memory(trace))], default=0)


def times_of_memory(trace: PlainTrace) -> list[int]:
    """§26.4: when memory changed in the recording, where nothing else says how long that was."""
    return [] if trace.ops else [c.time_ns for c in trace.memory if c.time_ns > -(1 << 61)]


@dataclass(frozen=True)
class Open:
    """A range that is a phase. A range without an end has the end of the trace."""

    start_ns: int
    end_ns: int
    process: int
    thread: int
    name: str
    row: int
    cut_off: bool
    operator: bool
    compiling: bool
    automatic: bool = False
    """§7.19: whether `nsysflow profile` put it there."""
    replay: int | None = None
    """§7.17: the launch of the graph in which this range was captured."""

    def covers(self, t: int) -> bool:
        """§7.1: whether it is open at t. One of zero length never is."""
        return self.start_ns <= t < self.end_ns


MOST_DEEP: Final = 100
"""§7.1: so many ranges of a stack count."""


def stack_order(range_: Open) -> tuple[int, int, int]:
    """§7.1: ordered by start, then longer, then row."""
    return (range_.start_ns, -range_.end_ns, range_.row)


def outside_compiling(known: list[tuple[str, Open]]) -> list[tuple[str, Open]]:
    """§7.18: the ranges that are not a part of compiling."""
    pushed = [one for kind, one in known if kind == "push_pop"]
    compiling = {one for one in pushed if one.compiling}
    tuning = {one for one in pushed if one.compiling or may_be_tuning(one.name)}
    parts = tuning & opened_in(compiling, pushed, "process")
    gone = parts | opened_in(compiling | parts, pushed, "thread")
    return [(kind, one) for kind, one in known if kind != "push_pop" or one not in gone]


def opened_in(outers: set[Open], ranges: list[Open], same: str) -> set[Open]:
    """Those of `ranges` that start in one of `outers` before them in stack order."""
    found, until_ns = set(), dict[int, int]()
    for one in sorted(ranges, key=stack_order):
        where = getattr(one, same)
        if until_ns.get(where, one.start_ns) > one.start_ns:
            found.add(one)
        if one in outers:
            until_ns[where] = max(one.end_ns, until_ns.get(where, one.end_ns))
    return found


def is_border(range_: Open) -> bool:
    """§8.20: whether an automatic range is no phase, but begins or ends a step."""
    return range_.automatic and range_.name in ("step", "call")


def is_look(range_: Open) -> bool:
    """§8.33: whether it is no phase, but lies in a step that was slowed down."""
    return range_.automatic and range_.name == "look"


def automatic_steps(borders: list[Open]) -> dict[int, list[Open]]:
    """§8.20: per process, the steps from one border to the next. One of zero length is none."""
    found = defaultdict(list)
    for process in {border.process for border in borders}:
        mine = [one for one in borders if one.process == process and one.start_ns < one.end_ns]
        trains = sum(one.name == "step" for one in mine) > 1
        mine = [one for one in mine if one.name == "step" or not trains]
        mine.sort(key=lambda one: (one.start_ns, one.row))
        for begin, end in pairwise(mine):
            if begin.start_ns < end.start_ns:
                found[process].append(
                    replace(begin, end_ns=end.start_ns, name="step", cut_off=False)
                )
    return found


def without_doubles(ranges: list[Open]) -> list[Open]:
    """§7.19, §7.21: the ranges of a thread, in stack order, without doubles inside others."""
    found: list[Open] = []
    any_until_ns: dict[str, int] = {}
    automatic_until_ns: dict[str, int] = {}
    for inner in ranges:
        joins = inner.automatic or inner.name == ENGINE_STEP
        until_ns = any_until_ns if joins else automatic_until_ns
        if until_ns.get(inner.name, inner.start_ns) <= inner.start_ns:
            found.append(inner)
        for ends in (any_until_ns, automatic_until_ns)[: 1 + inner.automatic]:
            ends[inner.name] = max(inner.end_ns, ends.get(inner.name, inner.end_ns))
    return found


def with_losses(ranges: list[Open]) -> list[Open]:
    """§7.20: a thread's ranges, and what lies between a forward and its backward."""
    ours = [one for one in ranges if one.automatic and one.start_ns < one.end_ns]
    losses = []
    for one in ours:
        later = [other for other in ours if other.start_ns >= one.end_ns]
        if one.name == "forward" and later and later[0].name == "backward":
            begin_ns, end_ns = one.end_ns, later[0].start_ns
            if begin_ns < end_ns:
                between = replace(one, start_ns=begin_ns, end_ns=end_ns, name="loss")
                losses.append(replace(between, cut_off=False))
    return sorted([*ranges, *losses], key=stack_order)


@dataclass(frozen=True)
class Place:
    """Where a call was made: the open ranges, outermost first, and §7.5: how it got them."""

    ranges: tuple[Open, ...] = ()
    how: str | None = None

    @cached_property
    def path(self) -> tuple[str, ...]:
        """§7.8: a path is a list of names."""
        return tuple(range_.name for range_ in self.ranges)


NOWHERE = Place()


class Phases:
    """Finds the path of a call, given its thread and its start."""

    def __init__(self, trace: PlainTrace) -> None:
        end = end_of_trace(trace)
        phases = [range_ for range_ in trace.ranges if not is_library(range_.domain)]
        opened = [(range_.kind, self.opened(range_, end)) for range_ in phases]
        found = [(kind, one) for kind, one in opened if one is not None]
        self.automatic_steps = automatic_steps([one for _, one in found if is_border(one)])
        self.looks = [one for _, one in found if is_look(one)]
        found = [(kind, one) for kind, one in found if not (is_border(one) or is_look(one))]
        known = outside_compiling(found)
        # §7.7: names are compared over the report's phases; §7.1: zero length is never open
        names = grouped(one.name for _, one in known if one.start_ns < one.end_ns)
        self.push_pop: dict[int, list[Open]] = defaultdict(list)
        self.start_end: dict[int, list[Open]] = defaultdict(list)
        for kind, one in known:
            named = replace(one, name=names.get(one.name, one.name))
            if kind == "push_pop":
                self.push_pop[one.thread].append(named)
            else:
                self.start_end[one.process].append(named)
        for ranges in (*self.push_pop.values(), *self.start_end.values()):
            ranges.sort(key=stack_order)
        for thread, ranges in self.push_pop.items():
            self.push_pop[thread] = with_losses(without_doubles(ranges))
        self.threads: dict[int, list[int]] = defaultdict(list)
        for thread, ranges in sorted(self.push_pop.items()):
            self.threads[ranges[0].process].append(thread)
        self.autograd = {t.thread for t in trace.threads if t.name.startswith("pt_autograd")}
        self._stacks: dict[int, tuple[list[int], list[tuple[Open, ...]]]] = {}

    @staticmethod
    def opened(range_: Range, end_of_trace_ns: int) -> Open | None:
        """§7.1: a range without an end is open to the end of the trace."""
        cut_off = range_.end_ns is None
        end_ns = end_of_trace_ns if range_.end_ns is None else range_.end_ns
        if end_ns < range_.start_ns and not cut_off:
            return None  # §1.6: dropped
        where = range_.start_ns, end_ns, range_.process, range_.thread, range_.name, range_.row
        says = is_operator(range_.name), is_compiling(range_.name), range_.domain == AUTOMATIC
        return Open(*where, cut_off, *says)

    def compiling(self, process: int) -> list[Open]:
        """§7.18: the process's compiling ranges."""
        ranges = (*self.push_pop.values(), *self.start_end.values())
        return [one for each in ranges for one in each if one.compiling and one.process == process]

    def boundaries(self, thread: int) -> list[int]:
        """The instants at which the thread's own stack can change."""
        ranges = [one for one in self.push_pop.get(thread, ()) if one.end_ns > one.start_ns]
        return sorted({t for one in ranges for t in (one.start_ns, one.end_ns)})

    def stack(self, thread: int, t: int) -> tuple[Open, ...]:
        """§7.1: `stack(T, t)`, the open push/pop ranges of thread T at t."""
        if thread not in self._stacks:
            times = self.boundaries(thread)
            ranges = self.push_pop.get(thread, ())  # in stack order
            starting = grouped_by(lambda range_: range_.start_ns, ranges)
            stacks: list[tuple[Open, ...]] = [()]
            for time in times:
                stacks.append(tuple(r for r in (*stacks[-1], *starting[time]) if r.covers(time)))
            self._stacks[thread] = (times, stacks[1:])
        times, stacks = self._stacks[thread]
        at = bisect_right(times, t) - 1
        return stacks[at][:MOST_DEEP] if at >= 0 else ()

    def inherited(self, process: int, thread: int, t: int) -> tuple[Open, ...]:
        """§7.3: the stack of the main thread, else of the only other one, but for autograd."""
        main = process | ((process >> 24) & LOW_24_BITS)
        if thread == main:
            return ()  # the main thread never inherits
        if main not in self.autograd and (stack := self.stack(main, t)):
            return stack
        others = [
            stack
            for other in self.threads.get(process, ())
            if other not in (thread, main) and other not in self.autograd
            if (stack := self.stack(other, t))
        ]
        return others[0] if len(others) == 1 else ()

    def at(self, process: int, thread: int, t: int) -> Place:
        """§7.3, §7.4: the path of a call of `thread` at `t`, with inherited ranges."""
        own = self.stack(thread, t)
        inherits = thread in self.autograd or not own
        if inherits and (inherited := self.inherited(process, thread, t)):
            # an autograd thread has an own stack too; any other that inherits has an empty one
            return Place(inherited + own, "borrowed")
        if own:
            return Place(own, "own")
        # §7.4: the latest-started start/end range of the process, else unattributed
        covering = [range_ for range_ in self.start_end.get(process, ()) if range_.covers(t)]
        return Place((covering[-1],), "process_range") if covering else NOWHERE


class Captured:
    """§7.13 to §7.17: finds the path of an operation of a CUDA graph, given that of its launch."""

    def __init__(self, trace: PlainTrace, calls: Calls, phases: Phases) -> None:
        self.calls, self.phases = calls, phases
        self.listed = Phases(replace(trace, ranges=trace.graph_ranges))
        rows = sorted(trace.graph_nodes, key=lambda row: row.start_ns)
        self.created = grouped_by(lambda row: (row.process, row.node), rows)

    def place(self, op: Op, launch: int, place: Place) -> Place:
        """§7.15: the path of the launch, followed by the captured ranges."""
        opened = self.ranges(op.process, op.graph_node)
        # §7.14: without those of which the name is in the path of the launch
        added = [range_ for range_ in opened if range_.name not in place.path]
        if not added:
            return place
        # §7.17: each launch has instances of its own
        call = self.calls.calls[launch]
        uncut = (replace(range_, thread=call.thread, cut_off=False) for range_ in added)
        mine = [
            replace(range_, start_ns=call.start_ns, end_ns=call.end_ns, replay=launch)
            for range_ in uncut
        ]
        return Place((*place.ranges, *mine), "captured")

    def ranges(self, process: int | None, node: int | None) -> tuple[Open, ...]:
        """§7.14: the ranges around the captured node that opened after the capture began."""
        origin = None if node is None else self._origin(process, node)
        if origin is None or origin.thread is None or origin.process is None:
            return ()
        at = origin.start_ns
        began = self.calls.capture_began(origin.process, at)
        if began is None:  # §7.16
            return self.listed.at(origin.process, origin.thread, at).ranges
        opened = self.phases.at(origin.process, origin.thread, at).ranges
        return tuple(range_ for range_ in opened if range_.start_ns >= began)

    def _origin(self, process: int | None, node: int) -> GraphNode | None:
        """§7.13: where the chain of originals ends; None if it leads back, or to no node."""
        seen: set[int] = set()
        while node not in seen and (process, node) in self.created:
            seen.add(node)
            rows = self.created[process, node]
            originals = [row.original for row in rows if row.original is not None]
            if not originals:
                return rows[0]
            node = originals[0]
        return None
