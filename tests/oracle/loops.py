"""Which ranges are the steps and the other loops of a program (spec §8.1, §8.21, §8.22)."""

from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.accounting import covered, length
from tests.oracle.engine_names import ENGINE_STEP
from tests.oracle.inferred import inferred_loops
from tests.oracle.model import Op
from tests.oracle.once import once
from tests.oracle.phase_table import phases_in, phases_of
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, joined

LEAST_REPEATS = 3
PROFILER_STEP = "ProfilerStep"
WHOLE_MODELS = ("forward", "eval", "generate")


def step_paths(report: Report, process: int, name: str | None) -> list[Path]:
    """§8.1: the paths of `--step NAME`, or the path that is the step by default."""
    of_process = phases_in(report, process)
    if name is not None:
        named = {path for path in of_process if name in (path[-1], joined(path))}
        # where instances nest, the outermost counts
        return sorted(p for p in named if not any(p[:k] in named for k in range(1, len(p))))

    # §8.1: the steps of a serving engine, however often they repeat
    engines = {path for path, p in of_process.items() if path[-1] == ENGINE_STEP and p.ops}
    whole_ns = busy_ns([op for op in report.ops if op.process == process])
    most_ns = (busy_ns([report.ops[i] for i in of_process[path].ops]) for path in engines)
    if 2 * max(most_ns, default=0) > whole_ns:
        return sorted(p for p in engines if not any(p[:k] in engines for k in range(1, len(p))))

    # the steps of frameworks may repeat less often and hold little, and so may a range `step` in a
    # process that captured a window of its steps
    captured = process in {capture.process for capture in report.trace.captures}
    called = {ENGINE_STEP, PROFILER_STEP, *(["step"] if captured else [])}
    repeating = {
        path
        for path, p in of_process.items()
        if p.ops and (path[-1] in called or len(p.instances) >= LEAST_REPEATS)
        if path[-1] in called or holds_work(report, process, p.ops)
        # an operator is not a step, nor is compiling or an automatic range
        if not all(one.operator or one.compiling or one.automatic for one in p.instances)
        if overrules(report, process, path, p.ops)
    }
    outermost = {p for p in repeating if not any(p[:k] in repeating for k in range(1, len(p)))}

    def order(path: Path) -> tuple[int, int, Path]:
        busy = busy_ns([report.ops[index] for index in of_process[path].ops])
        return (-busy, len(path), path)

    return [min(outermost, key=order)] if outermost else []


def holds_work(report: Report, process: int, launched: list[int]) -> bool:
    """§8.1: whether a hundredth of the kernel time from their begin on is in these steps."""
    begun = min(report.ops[index].start_ns for index in launched)
    ended = max(report.ops[index].end_ns for index in launched)
    kernels = [op for op in report.ops if op.process == process and op.kind in ("kernel", "graph")]
    from_begin = [op for op in kernels if op.start_ns >= begun]
    inside = [op for op in from_begin if op.start_ns < ended]
    return 100 * sum(op.end_ns - op.start_ns for op in inside) >= sum(
        op.end_ns - op.start_ns for op in from_begin
    )


def busy_ns(ops: list[Op]) -> int:
    """The union of operations per device, summed over devices."""
    devices = {op.device for op in ops}
    return sum(length(covered(op for op in ops if op.device == d)) for d in devices)


def overrules(report: Report, process: int, path: Path, launched: list[int]) -> bool:
    """§8.21: whether a range may be the step although there are automatic ones."""
    automatic = report.phases.automatic_steps.get(process)
    if not automatic:
        return True
    begun = [report.phases.at(process, one.thread, one.start_ns).path for one in automatic]
    of_process = [op for op in report.ops if op.process == process]
    return any(where[: len(path)] == path for where in begun) and 2 * busy_ns(
        [report.ops[index] for index in launched]
    ) > busy_ns(of_process)


def automatic_steps(report: Report, process: int, name: str | None) -> list[Open]:
    """§8.21: the automatic steps, where they are the steps; §8.24: else the inferred ones."""
    if (inferred := judged_inferred(report, name)) is not None:
        return inferred_loops(report).get(process, {}).get(inferred, [])
    if name is None:
        count = not step_paths(report, process, None)
    else:
        taken = any(name in (path[-1], joined(path)) for _, path in phases_of(report))
        count = name == "step" and not taken
    return report.phases.automatic_steps.get(process, []) if count else []


def judged_inferred(report: Report, name: str | None) -> str | None:
    """§8.24, §8.30: the name of the inferred steps that are judged, if inferred ones are."""
    if not ranges_give_none(report):
        return None
    taken = any(name in (path[-1], joined(path)) for _, path in phases_of(report))
    return None if name is not None and taken else name or "step"


@once
def ranges_give_none(report: Report) -> bool:
    """§8.24: whether no process has steps by its ranges."""
    processes = {process for process, _ in phases_of(report)}
    return not report.phases.automatic_steps and not any(
        step_paths(report, process, None) for process in processes
    )


@dataclass(frozen=True)
class Loop:
    """Another loop of a process: the path of its range, and its instances; of an inferred one, its
    name."""

    path: Path
    instances: frozenset[Open]
    inferred: bool = False


@once
def loops_of(report: Report, process: int, name: str | None = None) -> list[Loop]:
    """§8.22: the other loops of a process, the one with most GPU time first."""
    paths = step_paths(report, process, name)
    of_process = phases_in(report, process)
    automatic = automatic_steps(report, process, name)
    by_hand = [one for path in paths if path in of_process for one in of_process[path].instances]
    steps = [*by_hand, *automatic]
    candidates = {}
    for path, phase in of_process.items():
        mine = phase.instances
        if path in paths or not steps or not phase.ops or len(mine) < 3:
            continue
        if not any(may_loop(one) for one in mine) or any(holds(one, steps) for one in mine):
            continue
        candidates[path] = {one for one in mine if not begins_in(one, by_hand)}
    judged = judged_inferred(report, name)
    found = [
        Loop((of,), frozenset(instances), inferred=True)
        for of, instances in inferred_loops(report).get(process, {}).items()
        if automatic and judged is not None and of != judged
    ]
    inferred = [one for loop in found for one in loop.instances]
    candidates = {
        path: {one for one in mine if not begins_in(one, inferred)}
        for path, mine in candidates.items()
        if not any(holds(one, inferred) for one in mine)
    }
    while True:
        parts = [*steps, *(one for loop in found for one in loop.instances)]
        runs = {
            path: in_runs(report, process, mine, steps, parts) for path, mine in candidates.items()
        }
        left = [path for path in runs if runs[path]]
        if not left:
            return found
        best = min(
            left,
            key=lambda path: (
                -busy_ns([report.ops[index] for index in of_process[path].ops]),
                len(path),
                joined(path),
            ),
        )
        found.append(Loop(best, frozenset(runs[best])))
        others = list(runs[best])
        del candidates[best]
        candidates = {
            path: {one for one in mine if not begins_in(one, others)}
            for path, mine in candidates.items()
            if not any(holds(one, others) for one in mine)
        }


def may_loop(range_: Open) -> bool:
    """Whether a range is of those that can make a loop."""
    if range_.automatic:
        return range_.name in WHOLE_MODELS
    return not range_.operator and not range_.compiling


def holds(range_: Open, others: list[Open]) -> bool:
    """Whether one of the others begins in it."""
    return any(range_.start_ns <= other.start_ns < range_.end_ns for other in others)


def begins_in(range_: Open, others: list[Open]) -> bool:
    """Whether it begins in one of the others."""
    return any(other.start_ns <= range_.start_ns < other.end_ns for other in others)


def in_runs(
    report: Report, process: int, instances: set[Open], steps: list[Open], parts: list[Open]
) -> set[Open]:
    """§8.22: the instances that follow each other in long rows, if that is no part of a step."""
    by_hand = [part.start_ns for part in parts]
    passes = [one.start_ns for one in backward(report, process)]
    by_itself = [*by_hand, *passes]
    forwards = {one for one in instances if one.automatic and one.name == "forward"}
    others = [*by_hand, *(one.start_ns for one in forwards)]
    instances = instances - {one for one in forwards if is_trained(one.start_ns, others, passes)}
    rows: dict[int, set[Open]] = {}
    for one in instances:
        borders = by_itself if one.automatic and one.name in WHOLE_MODELS else by_hand
        rows.setdefault(sum(border <= one.start_ns for border in borders), set()).add(one)
    inside = {
        one
        for row in rows.values()
        for one in row
        if len(row) >= (10 if one.automatic and one.name == "forward" else LEAST_REPEATS)
    }
    begins = sorted(step.start_ns for step in steps)
    pairs = list(pairwise(begins))
    with_row = sum(any(a <= one.start_ns < b for one in inside) for a, b in pairs)
    return set() if pairs and 2 * with_row >= len(pairs) else inside


def is_trained(begun_ns: int, others: list[int], passes: list[int]) -> bool:
    """§8.22: whether a backward follows a `forward` before anything else does."""
    later = min((at for at in passes if at > begun_ns), default=None)
    return later is not None and not any(begun_ns < at <= later for at in others)


def backward(report: Report, process: int) -> list[Open]:
    """The automatic `backward` ranges of a process."""
    ranges = {one for phase in phases_in(report, process).values() for one in phase.instances}
    return [one for one in ranges if one.automatic and one.name == "backward"]
