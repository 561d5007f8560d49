"""The other loops of a program (spec §8.22)."""

from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.once import once
from tests.oracle.phase_table import phases_of
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, joined
from tests.oracle.step_paths import automatic_steps, busy_ns, step_paths

WHOLE_MODELS = ("forward", "eval", "generate")


@dataclass(frozen=True)
class Loop:
    """Another loop of a process: the path of its range, and its instances."""

    path: Path
    instances: frozenset[Open]


@once
def loops_of(report: Report, process: int, name: str | None = None) -> list[Loop]:
    """§8.22: the other loops of a process, the one with most GPU time first."""
    paths = step_paths(report, process, name)
    of_process = {path: p for (owner, path), p in phases_of(report).items() if owner == process}
    automatic = automatic_steps(report, process, name)
    by_hand = [one for path in paths if path in of_process for one in of_process[path].instances]
    steps = [*by_hand, *automatic]
    candidates = {}
    for path, phase in of_process.items():
        mine = phase.instances
        if path in paths or not steps or not phase.ops or len(mine) < 3:
            continue
        if not all(may_loop(one) for one in mine) or any(holds(one, steps) for one in mine):
            continue
        candidates[path] = {one for one in mine if not begins_in(one, by_hand)}
    found: list[Loop] = []
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
    """The instances that follow each other in rows of three or more (ten of the automatic
    `forward`), if it is no part of a step."""
    borders = [part.start_ns for part in parts]
    if any(one.automatic for one in instances):
        borders += [one.start_ns for one in backward(report, process)]
    rows: dict[int, set[Open]] = {}
    for one in instances:
        rows.setdefault(sum(border <= one.start_ns for border in borders), set()).add(one)
    forward = any(one.automatic and one.name == "forward" for one in instances)
    long = [row for row in rows.values() if len(row) >= (10 if forward else 3)]
    inside = {one for row in long for one in row}
    begins = sorted(step.start_ns for step in steps)
    pairs = list(pairwise(begins))
    with_row = sum(any(a <= one.start_ns < b for one in inside) for a, b in pairs)
    return set() if pairs and 2 * with_row >= len(pairs) else inside


def backward(report: Report, process: int) -> list[Open]:
    """The automatic `backward` ranges of a process."""
    ranges = {
        one
        for (owner, _), p in phases_of(report).items()
        if owner == process
        for one in p.instances
    }
    return [one for one in ranges if one.automatic and one.name == "backward"]
