"""The memory of each phase, row by row (spec §26)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.model import Frame, MemoryChange
from tests.oracle.once import grouped_by
from tests.oracle.phase_table import phases_in, phases_of
from tests.oracle.phases import Open, end_of_trace, lasting, times_of_memory
from tests.oracle.report import Path, Report, Row, joined
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import Step, steps_of

Span = tuple[int, int]


@dataclass(frozen=True)
class Level:
    """§26.3: how much there is after a change; before the first one without a change."""

    time_ns: int
    level: int | None
    reserved: int | None
    change: MemoryChange | None


@dataclass(frozen=True)
class Peak:
    """§26.6: the most in an instance."""

    level: int | None
    reached_ns: int
    at: Level
    inside: bool

    @property
    def change(self) -> MemoryChange | None:
        """What reached it in the instance."""
        return self.at.change if self.inside else None


class Use:
    """What a process has on a device."""

    def __init__(self, changes: list[MemoryChange]) -> None:
        of_allocator = [change for change in changes if change.source == "allocator"]
        rows = sorted(of_allocator or changes, key=lambda change: (change.time_ns, change.row))
        self.said_by = rows[0].source
        self.allocated = any(row.allocated_bytes is not None for row in rows)
        self.known = self.allocated or any(row.reserved_bytes is not None for row in rows)
        name = "allocated_bytes" if self.allocated else "reserved_bytes"
        levels = [getattr(row, name) for row in rows]
        before = None if None in (levels[0], rows[0].bytes) else levels[0] - rows[0].bytes
        first_reserved = rows[0].reserved_bytes if self.allocated else before
        self.levels = [Level(-(1 << 63), before, first_reserved, None)]
        self.levels += [
            Level(row.time_ns, level, row.reserved_bytes, row)
            for row, level in zip(rows, levels, strict=True)
        ]

    def before(self, t: int) -> Level:
        """The level right before an instant."""
        return [level for level in self.levels if level.time_ns < t][-1]

    def within(self, span: Span) -> list[Level]:
        """§26.6: the level right before the start, and those of the rows inside."""
        start, end = span
        return [
            self.before(start),
            *(level for level in self.levels if start <= level.time_ns < end),
        ]

    def peak(self, span: Span) -> Peak:
        """§26.6: where the level is largest first."""
        known = [level for level in self.within(span) if level.level is not None]
        if not known:
            return Peak(None, 0, self.before(span[0]), inside=False)
        most = max(known, key=lambda level: level.level or 0)  # the first of those that are equal
        reached = max(most.time_ns, span[0])
        return Peak(most.level, reached, most, inside=most.time_ns >= span[0])

    def most_reserved(self, spans: list[Span]) -> int | None:
        """The same of what is reserved."""
        found = [level.reserved for span in spans for level in self.within(span)]
        return max((each for each in found if each is not None), default=None)


def memory(report: Report, judged: list[Step] | None = None) -> list[Row]:
    """§26.5: a row per process, device and path; without `judged` steps of the whole report."""
    rows: list[Row] = []
    for device, process, use in uses(report):
        rows += _of_process(report, use, device, process, judged)
    return rows


def uses(report: Report) -> list[tuple[int, int, Use]]:
    """§26.5: of processes on devices on which something ran, or on any where nothing ran at all."""
    changes = grouped_by(
        lambda change: (change.device, change.process or 0),
        (change for change in report.trace.memory if change.process is not None),
    )
    uses = ((*key, Use(mine)) for key, mine in sorted(changes.items()))
    devices = report.devices or [device for device, _ in changes]
    return [
        (device, process, use) for device, process, use in uses if use.known and device in devices
    ]


def _of_process(
    report: Report, use: Use, device: int, process: int, judged: list[Step] | None
) -> list[Row]:
    steps = host_steps(report, device, process)
    if judged is not None:
        steps = {step: span for step, span in steps.items() if step in judged}
    selected = [*steps.values()] if judged is not None else recorded(report)
    numbered = {step.index: span for step, span in steps.items()}
    found: dict[Path, tuple[list[Span], Row]] = {}
    if selected:
        found[()] = selected, _measured(use, selected, numbered, [*numbered.values()])
    for path, phase in phases_in(report, process).items():
        spans = _sorted_spans(
            range_
            for range_ in phase.instances
            if range_.replay is None and _within(range_.start_ns, selected) is not None
        )
        if spans:
            found[path] = spans, _measured(use, spans, numbered, spans)
    rows = []
    for path, (spans, row) in found.items():
        row |= {
            **report.about(process, device=device),
            "phase": joined(path),
            "instances": len(spans) if path else None,
            "said_by": use.said_by,
            "peak_phase": _peak_phase(report, path, found),
            **_place(report, row["peak"] and row["peak"].change),
        }
        if not path:
            row["begin_bytes"] = use.before(spans[0][0]).level
            row["end_bytes"] = use.before(spans[-1][1]).level
        rows.append(row)
    return rows


def recorded(report: Report) -> list[Span]:
    """§8.17: from the first start to the last end."""
    starts = [row.start_ns for row in lasting(report.trace)]
    starts += times_of_memory(report.trace)
    return [(min(starts, default=0), end_of_trace(report.trace))]


def host_steps(report: Report, device: int, process: int) -> dict[Step, Span]:
    """§26.4: when the host is in each step."""
    mine = [step for step in steps_of(report) if (step.process, step.device) == (process, device)]
    begins = [step.range_.start_ns for step in mine]
    ends = [*begins[1:], *(step.range_.end_ns for step in mine[-1:])]
    return dict(zip(mine, zip(begins, ends, strict=True), strict=True))


def _sorted_spans(ranges: Iterable[Open]) -> list[Span]:
    return sorted((one.start_ns, one.end_ns) for one in ranges)


def _within(t: int, spans: list[Span]) -> int | None:
    """Which of the spans holds an instant."""
    return next((at for at, (start, end) in enumerate(spans) if start <= t < end), None)


def _measured(use: Use, spans: list[Span], steps: dict[int, Span], grown: list[Span]) -> Row:
    """§26.6 to §26.8, with `peak`."""
    peaks = [use.peak(span) for span in spans]
    known = [peak for peak in peaks if peak.level is not None]
    best = min(
        known,
        key=lambda peak: (-(peak.level or 0), peak.reached_ns, use.levels.index(peak.at)),
        default=None,
    )
    return {
        "peak": best,
        "peak_bytes": best.level if best and use.allocated else None,
        "peak_reserved_bytes": use.most_reserved(spans),
        "peak_ns": best.reached_ns if best else None,
        "begin_bytes": _median(use.before(start).level for start, _ in spans),
        "end_bytes": _median(use.before(end).level for _, end in spans),
        "growth_bytes": _growth(use, steps, grown),
    }


def _median(values: Iterable[int | None]) -> int | None:
    return whole(percentile([each for each in values if each is not None], 50))


def _growth(use: Use, steps: dict[int, Span], spans: list[Span]) -> int | None:
    """§26.8: by how much the level at the end of the last instance of each step grows."""
    ends: dict[int, int | None] = {}
    for start, end in spans:  # in order, so that the last one of a step stays
        at = _within(start, [*steps.values()])
        if at is not None:
            ends[[*steps][at]] = use.before(end).level
    pairs = ((ends[step - 1], ends[step]) for step in ends if step - 1 in ends)
    return _median(
        None if before is None or after is None else after - before for before, after in pairs
    )


def _peak_phase(
    report: Report, path: Path, found: dict[Path, tuple[list[Span], Row]]
) -> str | None:
    """§26.9: the deepest path of which a row reached its peak with the same change."""
    peak = found[path][1]["peak"]
    if peak is None:
        return None
    same = [
        inner
        for inner, (_, row) in found.items()
        if inner
        and inner[: len(path)] == path
        and row["peak"] is not None
        and row["peak"].inside
        and row["peak"].at == peak.at
    ]
    if not same:
        return None
    deepest = max(map(len, same))
    return joined(min((p for p in same if len(p) == deepest), key=lambda p: _tree(report, p)))


def _tree(report: Report, path: Path) -> list[tuple[int, str]]:
    """Siblings are in the order of their first appearance in the report."""
    first: dict[Path, int] = {}
    for (_, other), phase in phases_of(report).items():
        starts = [one.start_ns for one in phase.instances]
        if starts:
            first[other] = min([*starts, *([first[other]] if other in first else [])])
    return [(first[path[:depth]], path[depth - 1]) for depth in range(1, len(path) + 1)]


def _place(report: Report, change: MemoryChange | None) -> Row:
    """§26.9: the lines and the operator of a change."""
    operator = None
    if change is None:
        source, via = None, None
    elif change.thread is not None or change.frames is not None:
        ran = (
            one.frames
            for one in report.trace.running
            if one.thread == change.thread and one.start_ns <= change.time_ns < one.end_ns
        )
        frames = next(ran, ()) if change.frames is None else change.frames
        source, via = report.sources.lines(frames)
        operator = _operator(frames)
    else:
        calls = report.calls.named.get((change.process or 0, change.correlation or 0), [])
        source, via = report.sources.of(calls[0] if calls else None)
    return {"source": source, "via": via, "operator": operator}


def _operator(frames: tuple[Frame, ...]) -> str | None:
    names = [frame.function for frame in frames if frame.file is None]
    return next((name for name in reversed(names) if name and "::" in name), None)


def kept_memory(report: Report, judged: list[Step] | None = None) -> list[Row]:
    """§26.10: what was allocated in a step and not freed before the end of the next one."""
    found: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for device, process, use in uses(report):
        steps = host_steps(report, device, process)
        taken = {s.index: span for s, span in steps.items() if judged is None or s in judged}
        followed = [index for index in taken if index + 1 in taken]
        rows = [level.change for level in use.levels if level.change is not None]
        if use.said_by == "allocator":
            followed = [i for i in followed if taken[i][1] <= max(row.time_ns for row in rows)]
        for at, row in enumerate(rows):
            step = next((i for i in followed if _within(row.time_ns, [taken[i]]) is not None), None)
            if step is None or row.address is None or row.bytes <= 0:
                continue
            later = [other.time_ns for other in rows[at + 1 :] if other.address == row.address]
            if not later or later[0] >= taken[step + 1][1]:
                place = _place(report, row)
                phase = _innermost(report, process, row.time_ns)
                key = (device, process, phase, *place.values(), len(followed))
                found[key].append((step, row.bytes))
    return [
        {
            **_of_place(report, process, device, place),
            "steps": len({step for step, _ in kept}),
            "of_steps": of_steps,
            "allocations": len(kept),
            "bytes": sum(bytes_ for _, bytes_ in kept),
        }
        for (device, process, *place, of_steps), kept in found.items()
    ]


def peak_memory(report: Report, judged: list[Step] | None = None) -> list[Row]:
    """§26.11: what the peak of all that is selected consists of."""
    rows = []
    for device, process, use in uses(report):
        if use.said_by != "allocator" or not use.allocated:
            continue
        steps = [
            span
            for step, span in host_steps(report, device, process).items()
            if judged is not None and step in judged
        ]
        selected = steps if judged is not None else recorded(report)
        peak = _measured(use, selected, {}, [])["peak"] if selected else None
        if peak is None:
            continue
        until = use.levels[: use.levels.index(peak.at) + 1]
        last = {level.change.address: level.change for level in until if level.change is not None}
        last.pop(None, None)
        found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for change in last.values():
            if change.bytes > 0:
                place = _place(report, change)
                phase = _innermost(report, process, change.time_ns)
                found[phase, *place.values()].append(change.bytes)
        counts = {place: len(sizes) for place, sizes in found.items()}
        before = peak.level - sum(map(sum, found.values()))
        if before > 0:
            found["", None, None, None].append(before)
        whole_bytes = sum(map(sum, found.values()))
        rows += [
            {
                **_of_place(report, process, device, place),
                "allocations": counts.get(place),
                "bytes": sum(sizes),
                "share_pct": 100 * sum(sizes) / whole_bytes,
            }
            for place, sizes in found.items()
        ]
    return rows


def _of_place(report: Report, process: int, device: int, place: Iterable[Any]) -> Row:
    """The columns of a process, a device and a place: phase, lines and operator."""
    named = dict(zip(("phase", "source", "via", "operator"), place, strict=True))
    return report.about(process, device=device, **named)


def larger_batch(report: Report, judged: list[Step] | None = None) -> list[Row]:
    """§26.15: how many times the batch would fit."""
    usable = {(row.process, row.device): row.usable_bytes for row in report.trace.gpu_memory}
    rows = []
    for device, process, use in uses(report):
        steps = host_steps(report, device, process)
        spans = [span for step, span in steps.items() if judged is None or step in judged]
        if use.said_by == "allocator" and use.allocated and (process, device) in usable and spans:
            found = _larger_batch(use, spans, usable[process, device])
            rows += [report.about(process, device=device) | row for row in found]
    return rows


def _larger_batch(use: Use, spans: list[Span], usable: int) -> list[Row]:
    levels = use.levels[1:]
    changes = [level.change for level in levels if level.change is not None]
    begin, end = min(spans)
    held = {c.address: c for c in changes if c.time_ns < begin and c.address is not None}
    given_back = {c.address for c in changes if begin <= c.time_ns < end}
    sizes = {c.bytes for c in held.values() if c.bytes > 0 and c.address not in given_back}
    step_of = [-1 if (step := _within(c.time_ns, spans)) is None else step for c in changes]
    made = [
        at
        for at, change in enumerate(changes)
        if step_of[at] >= 0 and change.bytes > 0 and change.address is not None
    ]
    freed = {
        at: next(
            (
                later
                for later in range(at + 1, len(changes))
                if changes[later].address == changes[at].address
            ),
            len(changes),
        )
        for at in made
    }

    def live(of: list[int], now: int) -> int:
        return sum(changes[at].bytes for at in of if at <= now < freed[at])

    others = [at for at in made if changes[at].bytes not in sizes]
    most = {
        step: max(
            (at for at in range(len(changes)) if step_of[at] == step),
            key=lambda at: (live(others, at), -at),
        )
        for step in {*step_of} - {-1}
    }
    growing = [at for at in made if at in others or at < most[step_of[at]]]
    of_steps = [level for at, level in enumerate(levels) if step_of[at] >= 0]
    peak = max((level.level for level in of_steps if level.level is not None), default=0)
    known = [level.reserved for level in of_steps if level.reserved is not None]
    reserved = max(known, default=None)
    room = usable * min(1.0, peak / reserved) if reserved else float(usable)
    found = []
    for at, level in enumerate(levels):
        grows = live(growing, at)
        if step_of[at] >= 0 and grows > 0 and level.level is not None:
            fixed = level.level - grows
            found.append(((room - fixed) / grows, at, grows, fixed))
    if not found:
        return []
    times, _, grows, fixed = min(found)
    return [
        {
            "usable_bytes": usable,
            "peak_bytes": peak,
            "peak_reserved_bytes": reserved,
            "growing_bytes": grows,
            "fixed_bytes": fixed,
            "times": times,
        }
    ]


def out_of_memory(report: Report) -> list[Row]:
    """§26.13: allocations that failed, whatever is selected."""
    known = {(device, process): use for device, process, use in uses(report)}
    rows = []
    for failure in sorted(report.trace.out_of_memory, key=lambda failure: failure.time_ns):
        t, process = failure.time_ns, failure.process
        use = None if process is None else known.get((failure.device, process))
        there = None if use is None else [one for one in use.levels if one.time_ns <= t][-1]
        change = MemoryChange(t, 0, failure.device, process, "allocator", 0)
        change = replace(change, thread=failure.thread, frames=failure.frames)
        rows.append(
            {
                **report.about(process, device=failure.device),
                "time_ns": t,
                "asked_bytes": failure.bytes,
                "allocated_bytes": there.level if there and use and use.allocated else None,
                "reserved_bytes": there.reserved if there else None,
                "free_bytes": failure.free_bytes,
                "phase": "" if process is None else _innermost(report, process, t),
                **_place(report, change),
            }
        )
    return rows


def _innermost(report: Report, process: int, t: int) -> str:
    """§26.10: the deepest path that is open at an instant, whatever the thread."""
    around = [
        path
        for path, phase in phases_in(report, process).items()
        if any(one.replay is None and one.start_ns <= t < one.end_ns for one in phase.instances)
    ]
    return joined(max(around, key=lambda path: (len(path), _tree(report, path)), default=()))
