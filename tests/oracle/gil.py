"""Who holds the GIL while the thread that launches waits for it (spec §28)."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.oracle.accounting import Keep
from tests.oracle.gaps import Gap
from tests.oracle.host_stacks import HostStacks, Part
from tests.oracle.idle_places import name_of
from tests.oracle.model import PROCESS_MASK, Call, Op, Overhead, Range
from tests.oracle.phases import end_of_trace
from tests.oracle.report import Report, Row, os_pid, os_tid

Times = list[tuple[int, int]]


class GilWaits(HostStacks):
    """§28.4: what stands for an instant is the thread that holds the GIL then; `Part.at_ns` is that
    thread."""

    def __init__(self, report: Report) -> None:
        self.report = report
        rows = report.trace.gil
        self.recorded = bool(rows)
        self.spans: dict[str, dict[int, Times]] = {
            "holding": defaultdict(list),
            "waiting": defaultdict(list),
        }
        trace, last_ns = report.trace, end_of_trace(report.trace)
        begun: list[Op | Call | Range | Overhead] = [
            *trace.ops,
            *trace.calls,
            *trace.ranges,
            *trace.overhead,
        ]
        starts = (r.start_ns for r in begun if r.end_ns is None or r.end_ns >= r.start_ns)
        first_ns = min(starts, default=0)
        for row in rows:
            end_ns = last_ns if row.end_ns is None else row.end_ns
            start_ns, end_ns = max(row.start_ns, first_ns), min(end_ns, last_ns)
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
        """§28.7: the function and line that a holder ran for most of the time in which a thread of
        the report waits for it."""
        stacks, ran = HostStacks(self.report), Counter[tuple[str, str | None]]()
        borders = self._changes(-(2**62), 2**62)
        for start, stop in pairwise(borders):
            if self.holder(thread, start) == holder:
                for at_ns, ns in stacks.runs(holder, start, stop):
                    if at_ns is not None:
                        frames = stacks.stacks[holder, at_ns]
                        ran[frames[0].function or "", self.report.sources.lines(frames)[0]] += ns
        most = min(ran, key=lambda c: (-ran[c], c[0], c[1] or ""), default=None)
        return most or (None, None)


def gil(report: Report, keep: Keep | None = None) -> list[Row]:
    """§28.6: a row per thread, phase and holder."""
    waits, held, whole = GilWaits(report), Counter[tuple[int, str, int]](), 0
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
                "report": report.trace.report,
                "process": os_pid(thread & PROCESS_MASK),
                "thread": os_tid(thread),
                "phase": phase,
                "holder": os_tid(holder),
                "holder_name": names.get(holder),
                "function": function,
                "source": source,
                "gil_ns": ns,
                "share_pct": 100 * ns / whole,
            }
        )
    return rows
