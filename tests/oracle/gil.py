"""Who holds the GIL while the thread that launches waits for it (spec §28)."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nsysflow.analysis.idle.gil import WAITING_FILES
from nsysflow.analysis.idle.samples import WAITS
from tests.oracle.accounting import Keep, common, length
from tests.oracle.cpu import Stretch, launching, open_time, ran_and_waited, stretches
from tests.oracle.gaps import Gap
from tests.oracle.host_stacks import Frames, HostStacks, Part
from tests.oracle.idle_places import Spot, name_of
from tests.oracle.model import PROCESS_MASK
from tests.oracle.phases import end_of_trace, start_of_trace
from tests.oracle.report import Report, Row, os_tid

Times = list[tuple[int, int]]


class GilWaits(HostStacks):
    """§28.4: the thread that holds the GIL stands for an instant; it is in `Part.at_ns`."""

    def __init__(self, report: Report) -> None:
        self.report = report
        rows = report.trace.gil
        self.recorded = bool(rows)
        self.spans: dict[str, dict[int, Times]] = {
            "holding": defaultdict(list),
            "waiting": defaultdict(list),
        }
        self.first_ns, self.last_ns = start_of_trace(report.trace), end_of_trace(report.trace)
        for row in rows:
            end_ns = self.last_ns if row.end_ns is None else row.end_ns
            start_ns, end_ns = max(row.start_ns, self.first_ns), min(end_ns, self.last_ns)
            if end_ns > start_ns:
                self.spans[row.state][row.thread].append((start_ns, end_ns))

    def holder(self, thread: int, instant: int) -> int | None:
        """§28.3: who has the GIL that a thread waits for; None if it does not wait for another."""
        waits = self.spans["waiting"].get(thread, [])
        if not any(start <= instant < end for start, end in waits):
            return None
        holding = [
            (-start, other)
            for other, spans in self.spans["holding"].items()
            if other & PROCESS_MASK == thread & PROCESS_MASK
            for start, end in spans
            if start <= instant < end
        ]
        found = min(holding, default=(0, thread))[1]
        return None if found == thread else found

    def runs(self, thread: int, begin: int, end: int) -> Iterator[tuple[int | None, int]]:
        """The holder at the instants `[begin, end)` of a thread, and for how many of them."""
        if begin < end:
            for start, stop in pairwise([begin, *self._changes(begin, end), end]):
                yield self.holder(thread, start), stop - start

    def _changes(self, begin: int, end: int) -> list[int]:
        """Where the holder can change."""
        threads = (spans for state in self.spans.values() for spans in state.values())
        borders = {at for spans in threads for span in spans for at in span}
        return sorted(at for at in borders if begin < at < end)

    def of_gap(self, gap: Gap, keep: Keep | None = None) -> int | None:
        """§28.5: `gil_ns` of a gap."""
        if not self.recorded:
            return None
        return sum(ns for *_, part, ns in self.shares_of(gap, keep) if not part.missing)

    def holders(self, keep: Keep | None) -> Iterator[tuple[str, Part, int]]:
        """§28.6: phase, part and ns of all gaps."""
        for gap in self.report.gaps.gaps if self.recorded else ():
            for _, spot, part, ns in self.shares_of(gap, keep):
                yield name_of(spot), part, ns

    def code(self, thread: int, holder: int) -> tuple[str | None, str | None]:
        """§28.7: the function and line that a holder ran for most of the time."""
        stacks, ran = HostStacks(self.report), Counter[tuple[str, str | None]]()
        for start, stop in self.held(thread, holder):
            for at_ns, ns in stacks.runs(holder, start, stop):
                if at_ns is not None and self.counts(stacks.stacks[holder, at_ns]):
                    frames = stacks.stacks[holder, at_ns]
                    ran[frames[0].function or "", self.report.sources.lines(frames)[0]] += ns
        most = min(ran, key=lambda c: (-ran[c], c[0], c[1] or ""), default=None)
        return most or (None, None)

    def held(self, thread: int, holder: int) -> Times:
        """§28.7: when a thread waits for this holder."""
        borders = pairwise(self._changes(-(2**62), 2**62))
        return [(start, stop) for start, stop in borders if self.holder(thread, start) == holder]

    def counts(self, frames: Frames) -> bool:
        """§28.7: whether a sample of a holder counts: each does."""
        return bool(frames)


@dataclass(frozen=True)
class Estimate:
    """§28.9: of a group its thread, stretches, holder, L, V, and its instants at work."""

    thread: int
    stretches: tuple[Stretch, ...]
    holder: int
    lock_ns: int
    open_ns: int
    at_work: tuple[tuple[int, int], ...]


class EstimatedWaits(GilWaits):
    """§28.8 to §28.11; `recorded` is whether there is any group of §28.9."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.sampled = HostStacks(report)
        known = report.trace.samples and not report.trace.gil and not self.sampled.exact
        self.estimates = list(self._estimates()) if known else []
        self.recorded = bool(self.estimates)

    def counts(self, frames: Frames) -> bool:
        """§28.8: whether a thread with this stack is at work, and does not wait."""
        file, function = frames[0].file or "", frames[0].function or ""
        in_library = re.search("(^|/)(site|dist)-packages/", file) and re.search(WAITS, function)
        autograd = re.search(r"(^|/)torch/autograd/__init__\.py$", file)
        return not (
            re.search(WAITING_FILES, file)
            or in_library
            or function == "_engine_run_backward"
            or (autograd and function in ("backward", "grad"))
        )

    def own_readers(self) -> set[int]:
        """§28.9: the threads of the recording itself."""
        found = set()
        for (thread, _), frames in self.sampled.stacks.items():
            files = [frame.file or "" for frame in frames]
            begun = [name for name in files if not re.search(r"/python3[^/]*/threading\.py$", name)]
            if begun and re.search("(^|/)nsysflow/runtime/", begun[-1]):
                found.add(thread)
        return found

    def at_work(self, thread: int, start: int, end: int) -> Times:
        """§28.8: the instants of a thread that are sampled at work."""
        found, at = [], max(start, self.first_ns)
        for at_ns, ns in self.sampled.runs(thread, at, min(end, self.last_ns)):
            if at_ns is not None and self.counts(self.sampled.stacks[thread, at_ns]):
                found.append((at, at + ns))
            at += ns
        return found

    def ran(self, thread: int, group: Sequence[Stretch]) -> int | None:
        """§28.9: how long a thread ran meanwhile; None where none of its stretches overlaps."""
        parts = [
            ran_and_waited((first, last))[0] * overlap // (last.time_ns - first.time_ns)
            for begun, ended in group
            for first, last in stretches(self.report).get(thread, [])
            for overlap in [
                min(ended.time_ns, last.time_ns, self.last_ns)
                - max(begun.time_ns, first.time_ns, self.first_ns)
            ]
            if overlap > 0
        ]
        return sum(parts) if parts else None

    def open_at_work(self, stretch: Stretch) -> int:
        """§28.9: V of a stretch."""
        first, last = stretch
        at_work = self.at_work(first.thread, first.time_ns, last.time_ns)
        return length(common(open_time(self.report, stretch), at_work))

    def _estimates(self) -> Iterator[Estimate]:
        known, launch = stretches(self.report), launching(self.report)
        groups = defaultdict[tuple[int, int], list[Stretch]](list)
        for thread in launch & known.keys():
            for stretch in known[thread]:
                if self.open_at_work(stretch):
                    since_ns = max(stretch[0].time_ns - self.first_ns, 0)
                    groups[thread, since_ns // 1_000_000_000].append(stretch)
        for (thread, _), group in groups.items():
            others = {of for of in known if of & PROCESS_MASK == thread & PROCESS_MASK}
            others -= launch | self.own_readers()
            met = {of: ns for of in others if (ns := self.ran(of, group)) is not None}
            if met:
                yield self._estimate(thread, group, met)

    def _estimate(self, thread: int, group: list[Stretch], met: dict[int, int]) -> Estimate:
        at_work, slept, open_ns, delayed = Times(), 0, 0, 0
        for first, last in group:
            _, waited = ran_and_waited((first, last))
            worked = self.at_work(thread, first.time_ns, last.time_ns)
            delayed += min(waited, length(open_time(self.report, (first, last))))
            slept += length(worked) - (last.ran_ns - first.ran_ns)
            open_ns += self.open_at_work((first, last))
            at_work += worked
        lock_ns = max(0, min(slept - delayed, sum(met.values()), open_ns - delayed))
        holder = min(met, key=lambda of: (-met[of], of))
        return Estimate(thread, tuple(group), holder, lock_ns, open_ns, tuple(at_work))

    def parts(self, gap: Gap) -> dict[tuple[str, Spot], Counter[Part]]:
        """§28.10: step 2's instants of a gap by cause, place, thread and holder."""
        found = defaultdict[tuple[str, Spot], Counter[Part]](Counter)
        inside = Counter[tuple[tuple[str, Spot], bool, Estimate]]()
        for key, of_next, thread, start, stop in self.looked_up(gap):
            found[key][Part(of_next, True, 0, thread)] += max(stop - start, 0)
            for one in self.estimates if key[0] == "host" and start < stop else ():
                if one.thread == thread:
                    inside[key, of_next, one] += length(common([(start, stop)], [*one.at_work]))
        for (key, of_next, one), ns in inside.items():
            held = one.lock_ns * ns // one.open_ns
            found[key][Part(of_next, True, 0, one.thread)] -= held
            found[key][Part(of_next, False, one.holder, one.thread)] += held
        return {key: +parts for key, parts in found.items()}

    def held(self, thread: int, holder: int) -> Times:
        """§28.11: the stretches in which a thread waits for this holder at some time."""
        return [
            (max(first.time_ns, self.first_ns), min(last.time_ns, self.last_ns))
            for one in self.estimates
            for first, last in one.stretches
            if (one.thread, one.holder) == (thread, holder) and one.lock_ns
        ]


def lock_waits(report: Report) -> GilWaits:
    """§28: the waits, recorded or estimated."""
    return GilWaits(report) if report.trace.gil else EstimatedWaits(report)


def gil(report: Report, keep: Keep | None = None) -> list[Row]:
    """§28.6: a row per thread, phase and holder."""
    waits, held, whole = lock_waits(report), Counter[tuple[int, str, int]](), 0
    for phase, part, ns in waits.holders(keep):
        whole += ns
        if not part.missing:
            held[part.thread, phase, part.at_ns] += ns
    names = {row.thread: row.name for row in reversed(report.trace.threads)}
    rows = []
    for (thread, phase, holder), ns in held.items():
        function, source = waits.code(thread, holder)
        rows.append(
            {
                **report.about(thread & PROCESS_MASK, thread=os_tid(thread)),
                "phase": phase,
                "holder": os_tid(holder),
                "holder_name": names.get(holder),
                "function": function,
                "source": source,
                "gil_ns": ns,
                "estimated": not report.trace.gil,
                "share_pct": 100 * ns / whole,
            }
        )
    return rows
