"""Phases as a table (spec §7, §5)."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.oracle.accounting import Keep, common, covered, length, union
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.idle_places import places_in
from tests.oracle.model import Op
from tests.oracle.once import once
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, Row, joined, prefixes
from tests.oracle.stats import spread
from tests.oracle.waited import bound, compute_of, exposed, unhidden, waits_of

if TYPE_CHECKING:
    from tests.oracle.steps import Step

GRAPH_NS_PER_OP = 500
"""§5.7: what a CUDA graph takes per operation, in addition to the operation's duration."""


@dataclass
class Phase:
    """§7.9: one path of one process."""

    instances: set[Open] = field(default_factory=set)
    host_ns: int = 0
    ops: list[int] = field(default_factory=list)
    launched: dict[Open, list[int]] = field(default_factory=dict)
    """All its operations by instance; in a narrowed window, `ops` are those that start in it."""
    spans: list[int] = field(default_factory=list)
    idle_ns: Counter[str] = field(default_factory=Counter)
    """§3.17 to §3.19: the idle time of each cause for which this is the place."""
    gaps: list[tuple[Gap, int]] = field(default_factory=list)
    """The same by gap."""

    @property
    def span_ns(self) -> int:
        return sum(self.spans)


def phases_of(report: Report, keep: Keep | None = None) -> dict[tuple[int, Path], Phase]:
    """§7.8, §7.11: every path of every process, with everything nested in it."""
    return _all_phases(report) if keep is None else _phases_in(report, keep)


@once
def phases_in(report: Report, process: int) -> dict[Path, Phase]:
    """Those of a process in the whole report."""
    return {path: one for (owner, path), one in phases_of(report).items() if owner == process}


@once
def _all_phases(report: Report) -> dict[tuple[int, Path], Phase]:
    """Those of the whole report, found once: most tables ask for them."""
    return _phases_in(report, None)


def _phases_in(report: Report, keep: Keep | None) -> dict[tuple[int, Path], Phase]:
    found: dict[tuple[int, Path], Phase] = defaultdict(Phase)
    _add_host(report, found, keep)
    for process, by_instance in report.ops_by_instance.items():
        for (path, range_), launched in by_instance.items():
            phase = found[process, path]
            phase.launched[range_] = launched
            ops = [index for index in launched if begins(report.ops[index], keep)]
            if not ops:
                continue
            phase.instances.add(range_)
            phase.ops += ops
            # §7.9: a span is from the first to the last operation of an instance
            first = min(report.ops[index].start_ns for index in ops)
            last = max(report.ops[index].end_ns for index in ops)
            phase.spans.append(last - first)
    for gap in report.gaps.gaps:
        process_of_launch = report.launch_process(gap)
        if process_of_launch is not None:
            for cause in gap.causes:
                for spot, ns in places_in(report, gap, cause, keep).items():
                    for depth in range(1, len(spot or ()) + 1):
                        phase = found[process_of_launch, (spot or ())[:depth]]
                        phase.idle_ns[cause] += ns
                        phase.gaps.append((gap, ns))
    return dict(found)


def begins(what: "Op | Step", keep: Keep | None) -> bool:
    """§7.11, §8.10: whether it starts in the window of its device."""
    kept = () if keep is None else keep.get(what.device, ())
    return keep is None or any(start <= what.start_ns < end for start, end in kept)


def _add_host(
    report: Report, found: dict[tuple[int, Path], Phase], keep: Keep | None = None
) -> None:
    """§7.10, §7.11: add instances and host wall time, also of ranges without GPU work."""
    windows = None if keep is None else union(span for spans in keep.values() for span in spans)

    def kept_ns(begin: int, end: int) -> int:
        return end - begin if windows is None else length(common([(begin, end)], windows))

    for thread, ranges in report.phases.push_pop.items():
        process = ranges[0].process
        times = report.phases.boundaries(thread)
        for begin, end in pairwise(times):
            host_ns = kept_ns(begin, end)
            if host_ns and (own := report.phases.stack(thread, begin)):
                for path, range_ in prefixes(report.phases.at(process, thread, begin)):
                    found[process, path].instances.add(range_)
                    if range_ in own:  # the host time of an inherited range is its own thread's
                        found[process, path].host_ns += host_ns
    for process, ranges in report.phases.start_end.items():
        for range_ in ranges:
            # §7.1: one of zero length is never open
            host_ns = max(0, range_.end_ns - range_.start_ns)
            if host_ns and (host_ns := kept_ns(range_.start_ns, range_.end_ns)):
                phase = found[process, (range_.name,)]
                phase.instances.add(range_)
                phase.host_ns += host_ns


def phases(
    report: Report, keep: Keep | None = None, name: str | None = None, numbers: range | None = None
) -> list[Row]:
    """§7.8, §7.9, §7.11: one row per process and path, inclusive, also without GPU work."""
    from tests.oracle.steps import steady_in  # which steps there are is known from the phases

    rows = []
    steady = steady_in(report, keep, name, numbers)
    waited_for = phases_of(unhidden(report), keep)
    for (process, path), phase in sorted(phases_of(report, keep).items()):
        busy_ns = _busy_ns(report, phase, keep)
        if not (phase.instances or phase.idle_ns or busy_ns):
            continue
        ops = [report.ops[index] for index in phase.ops]
        kernels = [op for op in ops if op.kind == "kernel"]
        how = Counter(report.op_place(index).how for index in phase.ops)
        causes = {f"{cause}_ns": phase.idle_ns[cause] for cause in CAUSES}
        exclusive = [i for i in phase.ops if report.op_place(i).path == path]
        rows.append(
            {
                **report.about(process, path=joined(path)),
                "depth": len(path),
                "instances": len(phase.instances),
                "ops": len(ops),
                "kernels": len(kernels),
                "kernel_ns": sum(op.end_ns - op.start_ns for op in kernels),
                "busy_ns": busy_ns,
                "span_ns": phase.span_ns,
                "launches": len(_launches(report, path, phase)),
                "idle_ns": sum(causes.values()),
                **causes,
                "host_wall_ns": phase.host_ns,
                **_bound(report, phase, waited_for.get((process, path), Phase()), keep),
                **spread(phase.spans),
                "exclusive_kernel_ns": sum(
                    report.ops[i].end_ns - report.ops[i].start_ns
                    for i in exclusive
                    if report.ops[i].kind == "kernel"
                ),
                "graph_estimate_ns": graph_estimate_ns(report, phase.ops),
                "own_ops": how["own"],
                "borrowed_ops": how["borrowed"],
                "process_range_ops": how["process_range"],
                "captured_ops": how["captured"],
                "steady_per_step_ns": _steady_per_step(report, process, phase, keep, *steady),
            }
        )
    return rows


def _launches(report: Report, path: Path, phase: Phase) -> set[int]:
    """§7.9: the launches of its operations that were made in it, and not only captured work."""
    launches = {report.calls.launch[index] for index in phase.ops}
    made = {launch for launch in launches if launch is not None}
    return {launch for launch in made if report.place(launch).path[: len(path)] == path}


def _steady_per_step(
    report: Report,
    process: int,
    phase: Phase,
    keep: Keep | None,
    steady: "list[Step]",
    counted: "list[Step]",
) -> int | None:
    """§8.19: busy and idle time in steady steps, per step."""
    count = len({step.range_ for step in counted if step.process == process})
    if not count:
        return None
    mine: Keep = {}
    for step in steady:
        if step.process == process:
            mine.setdefault(step.device, []).append((step.start_ns, step.end_ns))
    windows = {device: union(spans) for device, spans in mine.items()}
    if keep is not None:
        windows = {d: common(spans, union(keep.get(d, []))) for d, spans in windows.items()}
    busy_ns = _busy_ns(report, phase, {d: windows.get(d, []) for d in report.devices})
    idle_ns = 0
    for gap, ns in phase.gaps:
        ended_by = report.ops[gap.next_op].process
        if any(
            (step.process, step.device) == (ended_by, gap.device) and step.holds(gap.start_ns)
            for step in steady
        ):
            idle_ns += ns
    return round(Fraction(busy_ns + idle_ns, count))


def _bound(
    report: Report, phase: Phase, waited_for: Phase, keep: Keep | None
) -> dict[str, str | float | None]:
    """§15.7, §15.8."""
    ops = [index for launched in phase.launched.values() for index in launched]
    compute_ns = 0
    for device in report.devices:
        here = [index for index in ops if report.ops[index].device == device]
        busy = compute_of(report, here)
        compute_ns += length(busy if keep is None else common(busy, keep.get(device, [])))
    mine = set(ops)
    pieces = [piece for piece in waits_of(report).pieces if piece.op in mine]
    idle = {cause: waited_for.idle_ns[cause] for cause in CAUSES}
    parts = {"compute": compute_ns, **exposed(pieces, keep), **idle}
    name, pct = bound(parts)
    return {"bound": name, "bound_pct": pct}


def _busy_ns(report: Report, phase: Phase, keep: Keep | None) -> int:
    """§7.9: the union of its operations per device, summed over devices."""
    ops = [report.ops[index] for launched in phase.launched.values() for index in launched]
    found = 0
    for device in {op.device for op in ops}:
        busy = covered(op for op in ops if op.device == device)
        found += length(busy if keep is None else common(busy, keep.get(device, [])))
    return found


def graph_estimate_ns(report: Report, ops: list[int]) -> int:
    """§5.7: Σ operation durations + 500 ns per operation."""
    durations = sum(report.ops[index].end_ns - report.ops[index].start_ns for index in ops)
    return durations + GRAPH_NS_PER_OP * len(ops)
