"""What the host was running in the idle time of `host` and `launch` (spec §17)."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.oracle.accounting import Keep
from tests.oracle.gaps import Gap
from tests.oracle.idle_places import Spot, name_of, places_in
from tests.oracle.model import Frame
from tests.oracle.report import Report, Row, os_tid
from tests.oracle.stats import percentile, whole

Frames = tuple[Frame, ...]
NOT_SAMPLED = "(not sampled)"


@dataclass(frozen=True, order=True)
class Part:
    """§17.5: who stands for some instants; in the order of §17.6, ties."""

    of_next: bool
    """Whether it is looked up on the thread of `L`, not on that of `P`."""
    missing: bool
    """Whether nothing stands for it."""
    at_ns: int
    """When the sample was taken, or the stretch began."""
    thread: int


class HostStacks:
    """The samples or stretches of a report, and what they stand for."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.exact = bool(report.trace.running)
        self.stacks: dict[tuple[int, int], Frames] = {}
        """§17.1: by thread and time; the first row counts."""
        self.ends: dict[tuple[int, int], int] = {}
        for stretch in report.trace.running:
            self.stacks[stretch.thread, stretch.start_ns] = stretch.frames
            self.ends[stretch.thread, stretch.start_ns] = stretch.end_ns
        for sample in () if self.exact else report.trace.samples:
            self.stacks.setdefault((sample.thread, sample.time_ns), sample.frames)
        self.times: dict[int, list[int]] = defaultdict(list)
        for thread, at_ns in sorted(self.stacks):
            self.times[thread].append(at_ns)

    @cached_property
    def reach_ns(self) -> int | None:
        """§17.1, §17.2: 2 periods; None where there is no period."""
        apart = [b - a for times in self.times.values() for a, b in pairwise(times)]
        period = whole(percentile(apart, 50))
        return None if period is None else 2 * period

    def standing(self, thread: int, instant: int) -> int | None:
        """§17.2, §17.3: the time of the sample or stretch that stands for an instant."""
        times = self.times[thread]
        after = bisect_right(times, instant)
        if self.exact:
            at_ns = times[after - 1] if after else None
            return None if at_ns is None or self.ends[thread, at_ns] <= instant else at_ns
        near = min(
            times[max(after - 1, 0) : after + 1], key=lambda t: (abs(instant - t), t), default=None
        )
        if near is None or self.reach_ns is None or abs(instant - near) > self.reach_ns:
            return None
        return near

    def runs(self, thread: int, begin: int, end: int) -> Iterator[tuple[int | None, int]]:
        """What stands for the instants `[begin, end)` of a thread, and for how many of them."""
        if begin < end:
            for start, stop in pairwise([begin, *self._borders(thread, begin, end), end]):
                yield self.standing(thread, start), stop - start

    def _borders(self, thread: int, begin: int, end: int) -> list[int]:
        """Where what stands for a thread's instants can change."""
        times = self.times[thread]
        near = times[max(bisect_right(times, begin) - 1, 0) : bisect_right(times, end) + 1]
        borders = {t for at in near for t in (at, self.ends.get((thread, at), at))}
        if not self.exact and self.reach_ns is not None:
            borders |= {t for at in near for t in (at - self.reach_ns, at + self.reach_ns + 1)}
            borders |= {(a + b) // 2 + 1 for a, b in pairwise(near)}
        return sorted(t for t in borders if begin < t < end)

    def parts(self, gap: Gap) -> dict[tuple[str, Spot], Counter[Part]]:
        """§17.4, §17.5: step 2's instants of a gap by cause, place and who stands for them."""
        found = defaultdict[tuple[str, Spot], Counter[Part]](Counter)
        for key, of_next, thread, start, stop in self.looked_up(gap):
            for at_ns, ns in self.runs(thread, start, stop):
                found[key][Part(of_next, at_ns is None, at_ns or 0, thread)] += ns
        return found

    def looked_up(self, gap: Gap) -> Iterator[tuple[tuple[str, Spot], bool, int, int, int]]:
        """§17.4: step 2's instants: cause and place, whether of `L`'s thread, thread, times."""
        if not gap.instants:
            return
        report, launch = self.report, self.report.calls.launch[gap.next_op]
        assert launch is not None
        of_next = report.calls.calls[launch].thread
        of_previous, change_ns = self.before(gap, launch)
        host = gap.host_place.path if gap.starts_before_launch else report.place(launch).path
        for cause, call, begin, end in gap.instants:
            spot = host if call is None else report.place(call).path
            middle = min(max(change_ns, begin), end)
            for thread, start, stop in ((of_previous, begin, middle), (of_next, middle, end)):
                yield (cause, spot), thread == of_next, thread, start, stop

    def before(self, gap: Gap, launch: int) -> tuple[int, int]:
        """§17.4: the thread of `P`, and until when its samples count."""
        calls = self.report.calls.calls
        previous = self.report.calls.launch[gap.prev_op]
        next_thread = calls[launch].thread
        if previous is None or calls[previous].process != calls[launch].process:
            return next_thread, gap.start_ns
        if calls[previous].thread == next_thread:
            return next_thread, gap.start_ns
        timeline = self.report.gaps.timelines[next_thread]
        first = timeline.indices[bisect_right(timeline.latest_end, gap.start_ns)]
        return calls[previous].thread, calls[first].start_ns

    def shares(self, keep: Keep | None = None) -> Iterator[tuple[str, Spot, Part, int]]:
        """§17.6: what is left of the parts of all gaps: cause, place, part, ns."""
        for gap in self.report.gaps.gaps if self.stacks else ():
            yield from self.shares_of(gap, keep)

    def shares_of(self, gap: Gap, keep: Keep | None) -> Iterator[tuple[str, Spot, Part, int]]:
        """§17.6: the same of one gap."""
        for (cause, spot), parts in self.parts(gap).items():
            left = places_in(self.report, gap, cause, keep)[spot]
            total = parts.total()
            given = Counter({part: ns * left // total for part, ns in parts.items()})
            ranked = sorted(parts, key=lambda part: (-(parts[part] * left % total), part))
            given.update(ranked[: left - given.total()])
            for part, ns in (+given).items():
                yield cause, spot, part, ns

    def summed(
        self, keep: Keep | None, key_of: Callable[[Part, Frames | None], tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        """§17.7: cause, phase, a key of the part and its frames; then idle ns and samples."""
        idle: Counter[tuple[Any, ...]] = Counter()
        sampled = defaultdict[tuple[Any, ...], set[tuple[int, int]]](set)
        for cause, spot, part, ns in self.shares(keep):
            frames = None if part.missing else self.stacks[part.thread, part.at_ns]
            key = (cause, name_of(spot), *key_of(part, frames))
            idle[key] += ns
            if frames is not None:
                sampled[key].add((part.thread, part.at_ns))
        for key, ns in idle.items():
            yield *key, ns, None if self.exact else len(sampled[key])


def host_stacks(report: Report, keep: Keep | None = None) -> list[Row]:
    """§17.7: a row per thread, phase, cause, function and line."""

    def key_of(part: Part, frames: Frames | None) -> tuple[Any, ...]:
        if frames is None:
            return part.thread, NOT_SAMPLED, None, None
        return part.thread, frames[0].function or "(nameless)", *report.sources.lines(frames)

    rows = list(HostStacks(report).summed(keep, key_of))
    total = sum(ns for *_, ns, _ in rows)
    return [
        {
            **report.about(thread, thread=os_tid(thread)),
            "phase": phase,
            "cause": cause,
            "function": function,
            "source": source,
            "via": via,
            "idle_ns": ns,
            "samples": samples,
            "share_pct": 100 * ns / total,
        }
        for cause, phase, thread, function, source, via, ns, samples in rows
    ]


def idle_stacks(report: Report, keep: Keep | None = None) -> list[Row]:
    """§17.7, §17.8: a row per phase, cause and list of frames."""

    def key_of(_: Part, frames: Frames | None) -> tuple[Any, ...]:
        return tuple(map(report.sources.frame, reversed(frames))) if frames else (NOT_SAMPLED,)

    return [
        {
            "report": report.trace.report,
            "phase": phase,
            "cause": cause,
            "stack": stack,
            "idle_ns": ns,
            "samples": samples,
        }
        for cause, phase, *stack, ns, samples in HostStacks(report).summed(keep, key_of)
    ]
