"""Steps (spec §8)."""

from collections import defaultdict
from dataclasses import dataclass

from tests.oracle import bound
from tests.oracle.accounting import covered, length, parts, window
from tests.oracle.phase_table import phases_of
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, Row, causes_of, joined, os_pid
from tests.oracle.waited import waits_of

SKIP = 2
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
        # an operator is not a step
        if not all(range_.operator for range_ in p.instances)
    }
    outermost = {p for p in repeating if not any(p[:k] in repeating for k in range(1, len(p)))}

    def order(path: Path) -> tuple[int, int, Path]:
        ops = [report.ops[index] for index in of_process[path].ops]
        devices = {op.device for op in ops}
        busy = sum(length(covered(op for op in ops if op.device == d)) for d in devices)
        return (-busy, len(path), path)

    return [min(outermost, key=order)] if outermost else []


def steps_of(report: Report, name: str | None = None) -> list[Step]:
    """§8.2, §8.3: step i on a device runs from its first operation to the next step's first.

    The last step runs to the end of the last operation launched in it. An instance that launched
    nothing on a device is not a step there.
    """
    found = []
    for process, by_instance in sorted(report.ops_by_instance.items()):
        paths = step_paths(report, process, name)
        launched: dict[Open, list[int]] = defaultdict(list)
        for (path, range_), ops in by_instance.items():
            if path in paths:
                launched[range_] += ops
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


def skipped(report: Report, process: int) -> int:
    """§8.4: the default of `--skip`: 2, or 0 for a process that captured a window of its steps."""
    return 0 if process in {capture.process for capture in report.trace.captures} else SKIP


def steps(report: Report, name: str | None = None, skip: int | None = None) -> list[Row]:
    """§8.2 to §8.4: one row per step. A gap counts in the step that contains its start."""
    rows = []
    for step in steps_of(report, name):
        ops = [report.ops[index] for index in report.on(step.device)]
        gaps = [gap for gap in report.gaps_on(step.device) if step.holds(gap.start_ns)]
        causes = causes_of(gaps)
        split = parts(ops, [(step.start_ns, step.end_ns)] if step.end_ns > step.start_ns else [])
        duration = step.end_ns - step.start_ns
        cut_off = step.is_last and step.range_.cut_off
        first = skipped(report, step.process) if skip is None else skip
        unhidden = [
            g for g in bound.unhidden(report).gaps_on(step.device) if step.holds(g.start_ns)
        ]
        pieces = [piece for piece in waits_of(report).pieces if piece.device == step.device]
        of_step = bound.waited(pieces, {step.device: [(step.start_ns, step.end_ns)]})
        name, pct = bound.bound({"compute": split["compute_ns"], **of_step, **bound.idle(unhidden)})
        loads_little = 100 * causes["module_load_ns"] <= duration
        rows.append(
            {
                "report": report.trace.report,
                "process": os_pid(step.process),
                "device": step.device,
                "step": step.index,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "duration_ns": duration,
                "compute_ns": split["compute_ns"],
                "comm_exposed_ns": split["comm_exposed_ns"],
                "copy_exposed_ns": split["copy_exposed_ns"],
                "idle_ns": sum(gap.duration_ns for gap in gaps),
                **causes,
                "bound": name,
                "bound_pct": pct,
                "steady": step.index >= first and loads_little and not cut_off,
            }
        )
    return rows
