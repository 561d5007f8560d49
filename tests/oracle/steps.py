"""Steps (spec §8)."""

from collections import defaultdict
from dataclasses import dataclass

from tests.oracle import bound
from tests.oracle.accounting import Keep, covered, length, parts, union, window
from tests.oracle.gaps import Gap
from tests.oracle.integrity import graph_operations_into_other_launches, long_graph_kernels
from tests.oracle.lost import in_stretches, kernel_launches
from tests.oracle.model import Op
from tests.oracle.once import once
from tests.oracle.phase_table import phases_of
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, Row, causes_of, joined, os_pid
from tests.oracle.stats import percentile, whole
from tests.oracle.waited import waits_of

LEAST_REPEATS = 3


@dataclass(frozen=True)
class Step:
    """One step of one process on one device."""

    process: int
    device: int
    index: int
    start_ns: int
    end_ns: int
    range_: Open
    is_last: bool

    def holds(self, t: int) -> bool:
        """§8.2: whether a gap that starts at `t` counts in the step."""
        return self.start_ns <= t < self.end_ns


def step_paths(report: Report, process: int, name: str | None) -> list[Path]:
    """§8.1: the paths of `--step NAME`, or the path that is the step by default."""
    of_process = {path: p for (owner, path), p in phases_of(report).items() if owner == process}
    if name is not None:
        named = {path for path in of_process if name in (path[-1], joined(path))}
        # where instances nest, the outermost counts
        return sorted(p for p in named if not any(p[:k] in named for k in range(1, len(p))))

    # in a process that captured a window of its steps, a range `step` may repeat less often
    captured = process in {capture.process for capture in report.trace.captures}
    repeating = {
        path
        for path, p in of_process.items()
        if p.ops and (len(p.instances) >= LEAST_REPEATS or (captured and path[-1] == "step"))
        # an operator is not a step, nor is compiling or an automatic range
        if not all(one.operator or one.compiling or one.automatic for one in p.instances)
        if overrules(report, process, path, p.ops)
    }
    outermost = {p for p in repeating if not any(p[:k] in repeating for k in range(1, len(p)))}

    def order(path: Path) -> tuple[int, int, Path]:
        busy = busy_ns([report.ops[index] for index in of_process[path].ops])
        return (-busy, len(path), path)

    return [min(outermost, key=order)] if outermost else []


def busy_ns(ops: list[Op]) -> int:
    """The union of operations per device, summed over devices."""
    devices = {op.device for op in ops}
    return sum(length(covered(op for op in ops if op.device == d)) for d in devices)


def overrules(report: Report, process: int, path: Path, launched: list[int]) -> bool:
    """§8.21: whether a range may be the step although there are automatic ones: one of them begins
    in it, and it has more than half of its process's busy time."""
    automatic = report.phases.automatic_steps.get(process)
    if not automatic:
        return True
    begun = [report.phases.at(process, one.thread, one.start_ns).path for one in automatic]
    of_process = [op for op in report.ops if op.process == process]
    return any(where[: len(path)] == path for where in begun) and 2 * busy_ns(
        [report.ops[index] for index in launched]
    ) > busy_ns(of_process)


def automatic_steps(report: Report, process: int, name: str | None) -> list[Open]:
    """§8.21: the automatic steps, where they are the steps of the process."""
    if name is None:
        count = not step_paths(report, process, None)
    else:
        taken = any(name in (path[-1], joined(path)) for _, path in phases_of(report))
        count = name == "step" and not taken
    return report.phases.automatic_steps.get(process, []) if count else []


@once
def steps_of(report: Report, name: str | None = None) -> list[Step]:
    """§8.2, §8.3: step i on a device runs from its first operation to the next step's first.

    The last step runs to the end of the last operation launched in it. An instance that launched
    nothing on a device is not a step there.
    """
    found = []
    for process in sorted({*report.ops_by_instance, *report.phases.automatic_steps}):
        paths = step_paths(report, process, name)
        launched: dict[Open, list[int]] = defaultdict(list)
        for (path, range_), ops in report.ops_by_instance.get(process, {}).items():
            if path in paths:
                launched[range_] += ops
        for step in automatic_steps(report, process, name):
            launched[step] = launched_in(report, step)
        for device in report.devices:
            bounds: list[tuple[int, int, Open]] = []
            for range_, ops in launched.items():
                here = [report.ops[i] for i in ops if report.ops[i].device == device]
                bounds += [(first, last, range_) for first, last in window(here)]
            bounds.sort(key=lambda bound: (bound[0], bound[2].start_ns, bound[2].row))
            for index, (first, last_end, range_) in enumerate(bounds):
                is_last = index == len(bounds) - 1
                end = last_end if is_last else bounds[index + 1][0]
                found.append(Step(process, device, index, first, end, range_, is_last))
    return found


def launched_in(report: Report, step: Open) -> list[int]:
    """§8.20: the operations that its process launched in an automatic step, on any thread."""
    launches = report.calls.launch
    return [
        index
        for index, op in enumerate(report.ops)
        if op.process == step.process
        and (launch := launches[index]) is not None
        and step.covers(report.calls.calls[launch].start_ns)
    ]


@dataclass(frozen=True)
class Kind:
    """§8.4: what a step is; §8.14: its excess, None for steps that are not compared."""

    name: str
    excess_ns: int | None = None


@once
def kinds_of(report: Report, name: str | None = None, skip: int | None = None) -> dict[Step, Kind]:
    """§8.4: the kind of each step."""
    found: dict[Step, Kind] = {}
    all_steps = steps_of(report, name)
    for process, device in sorted({(step.process, step.device) for step in all_steps}):
        mine = [step for step in all_steps if (step.process, step.device) == (process, device)]
        left, leading = [], True
        for step in mine:
            starts_up = step.index < skipped(report, process, len(mine), skip)
            starts_up = starts_up or loads_much(report, step) or compiles_much(report, step)
            if step.is_last and step.range_.cut_off:
                found[step] = Kind("cut-off")
            elif is_incomplete(report, step, mine):
                found[step] = Kind("incomplete")
            elif leading and starts_up:
                found[step] = Kind("start-up")
            else:
                leading = False
                left.append(step)
        excess = excesses([step.end_ns - step.start_ns for step in left])
        outliers = one_offs([step.end_ns - step.start_ns for step in left])
        for step, excess_ns, outlier in zip(left, excess, outliers, strict=True):
            is_one_off = outlier or has_wrong_times(report, step) or compiles_much(report, step)
            found[step] = Kind("one-off" if is_one_off else "steady", excess_ns)
    return found


def skipped(report: Report, process: int, count: int, skip: int | None) -> int:
    """§8.13: how many leading steps are start-up in any case."""
    if skip is not None:
        return skip
    if process in {capture.process for capture in report.trace.captures}:
        return 0
    return min(2, count - 5) if count >= 5 else 2


def loads_much(report: Report, step: Step) -> bool:
    """§8.13: more than 1 % of it is module_load idle."""
    loading_ns = causes_of(gaps_of(report, step))["module_load_ns"]
    return 100 * loading_ns > step.end_ns - step.start_ns


def compiles_much(report: Report, step: Step) -> bool:
    """§8.13: its process compiles for more than 1 % of it."""
    compiling = [
        (max(each.start_ns, step.start_ns), min(each.end_ns, step.end_ns))
        for each in report.phases.compiling(step.process)
    ]
    inside = [(start, end) for start, end in compiling if start < end]
    return 100 * length(union(inside)) > step.end_ns - step.start_ns


def is_incomplete(report: Report, step: Step, steps: list[Step]) -> bool:
    """§8.12: whether launches that lost their operations start in it."""
    until_ns = step.range_.end_ns
    if not step.is_last:
        until_ns = max(until_ns, steps[step.index + 1].range_.start_ns)
    lost = in_stretches(report, kernel_launches(report).get(step.process, []))
    return any(step.range_.start_ns <= call.start_ns < until_ns for call in lost)


def has_wrong_times(report: Report, step: Step) -> bool:
    """§8.15: whether an operation of a graph with a wrong time starts in it."""
    return any(
        (op.process, op.device) == (step.process, step.device) and step.holds(op.start_ns)
        for op in _wrong(report)
    )


@once
def _wrong(report: Report) -> list[Op]:
    """The operations of graphs with wrong times, found once: each step asks for them."""
    return graph_operations_into_other_launches(report) + long_graph_kernels(report)


def excesses(durations: list[int]) -> list[int]:
    """§8.14: each duration without the median of the nearest nine."""
    count = len(durations)
    size = min(9, count)
    found = []
    for place, duration in enumerate(durations):
        first = min(max(place - 4, 0), count - size)
        median = whole(percentile(durations[first : first + size], 50))
        found.append(duration - (median or 0))
    return found


def one_offs(durations: list[int]) -> list[bool]:
    """§8.14: which of them are one-offs."""
    excess = excesses(durations)
    usual = whole(percentile([abs(each) for each in excess], 50)) or 0
    return [
        len(durations) >= 5 and 5 * each > duration - each and each > 5 * usual
        for each, duration in zip(excess, durations, strict=True)
    ]


@once
def steps(report: Report, name: str | None = None, skip: int | None = None) -> list[Row]:
    """§8.2 to §8.4: one row per step. A gap counts in the step that contains its start."""
    rows = []
    kinds = kinds_of(report, name, skip)
    for step in steps_of(report, name):
        ops = [report.ops[index] for index in report.on(step.device)]
        split = parts(ops, [(step.start_ns, step.end_ns)] if step.end_ns > step.start_ns else [])
        gaps = gaps_of(report, step)
        kind = kinds[step].name
        unhidden = gaps_of(bound.unhidden(report), step)
        pieces = [piece for piece in waits_of(report).pieces if piece.device == step.device]
        of_step = bound.waited(pieces, {step.device: [(step.start_ns, step.end_ns)]})
        label, pct = bound.bound(
            {"compute": split["compute_ns"], **of_step, **bound.idle(unhidden)}
        )
        rows.append(
            {
                "report": report.trace.report,
                "process": os_pid(step.process),
                "device": step.device,
                "step": step.index,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "duration_ns": step.end_ns - step.start_ns,
                "compute_ns": split["compute_ns"],
                "comm_exposed_ns": split["comm_exposed_ns"],
                "copy_exposed_ns": split["copy_exposed_ns"],
                "idle_ns": sum(gap.duration_ns for gap in gaps),
                **causes_of(gaps),
                "bound": label,
                "bound_pct": pct,
                "steady": kind == "steady",
                "kind": kind,
            }
        )
    return rows


def gaps_of(report: Report, step: Step) -> list[Gap]:
    """§8.2: the gaps that start in a step."""
    return [gap for gap in report.gaps_on(step.device) if step.holds(gap.start_ns)]


def steady_in(
    report: Report, keep: Keep | None, name: str | None, numbers: range | None
) -> tuple[list[Step], list[Step]]:
    """§8.19: the steady steps, and those of them that count in a window: that start in it, and that
    `--steps` takes."""
    steady = [step for step, kind in kinds_of(report, name).items() if kind.name == "steady"]
    counted = [
        step
        for step in steady
        if (numbers is None or step.index in numbers)
        and (keep is None or any(a <= step.start_ns < b for a, b in keep.get(step.device, [])))
    ]
    return steady, counted
