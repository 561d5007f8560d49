"""Steps (spec §8)."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any

from tests.oracle.accounting import Keep, common, is_comm, length, parts, union, window
from tests.oracle.engine_names import ENGINE_STEP, engine_numbers, is_token
from tests.oracle.gaps import Gap
from tests.oracle.integrity import (
    graph_operations_into_other_launches,
    in_stretches,
    kernel_launches,
    long_graph_kernels,
)
from tests.oracle.loops import automatic_steps, loops_of, ranges_give_none, step_paths
from tests.oracle.model import Op
from tests.oracle.once import grouped_by, once
from tests.oracle.phase_table import begins
from tests.oracle.phases import AUTOMATIC, Open
from tests.oracle.report import Report, Row, causes_of
from tests.oracle.stats import percentile, whole
from tests.oracle.waited import bound, exposed, idle, unhidden, waits_of


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
    """Whether none of its loop follows it."""
    loop: int = 0
    """0 for a step; else which other loop it is an instance of."""

    def holds(self, t: int) -> bool:
        """§8.2: whether a gap that starts at `t` counts in the step."""
        return self.start_ns <= t < self.end_ns


def track_of(step: Step) -> tuple[int, int]:
    """The process and the device of a step."""
    return step.process, step.device


@once
def steps_of(report: Report, name: str | None = None) -> list[Step]:
    """§8.2, §8.3: the steps."""
    return [step for step in instances_of(report, name) if step.loop == 0]


@once
def instances_of(report: Report, name: str | None = None) -> list[Step]:
    """§8.2: the instances of the steps and of the other loops, per process and device."""
    found = []
    processes = {*report.ops_by_instance, *report.phases.automatic_steps}
    for process in sorted(processes | {call.process for call in report.calls.calls}):
        launched = launched_by(report, process, name)
        for device in report.devices:
            bounds: list[tuple[int, int, int, Open]] = []
            for (loop, range_), ops in launched.items():
                here = from_begin(report, device, ops)
                bounds += [(first, last, loop, range_) for first, last in window(here)]
            bounds.sort(key=lambda bound: (bound[0], bound[3].start_ns, bound[3].row))
            counts: dict[int, int] = defaultdict(int)
            for place, (first, last_end, loop, range_) in enumerate(bounds):
                after = bounds[place + 1] if place + 1 < len(bounds) else None
                is_last = after is None or after[2] != loop
                end = min(last_end, after[0]) if after and is_last else last_end
                if after and not is_last:
                    end = after[0]
                found.append(Step(process, device, counts[loop], first, end, range_, is_last, loop))
                counts[loop] += 1
    return found


def from_begin(report: Report, device: int, ops: list[int]) -> list[Op]:
    """§8.2: the operations of a step on a device from its begin on."""
    here = [report.ops[i] for i in ops if report.ops[i].device == device]
    mine = {*ops}
    ends = [gap.end_ns for gap in report.gaps_on(device) if gap.unseen and gap.next_op in mine]
    early = [op for op in here if op.start_ns < max(ends, default=op.start_ns)]
    total = sum(op.end_ns - op.start_ns for op in here)
    if 100 * sum(op.end_ns - op.start_ns for op in early) > total:
        return here
    return [op for op in here if op not in early]


def launched_by(
    report: Report, process: int, name: str | None
) -> dict[tuple[int, Open], list[int]]:
    """Per loop (0 for the steps) and instance the operations launched in it."""
    loops = loops_of(report, process, name)
    paths = step_paths(report, process, name)
    launched: dict[tuple[int, Open], list[int]] = defaultdict(list)
    for (path, range_), ops in report.ops_by_instance.get(process, {}).items():
        for number, loop in enumerate(loops, start=1):
            if path == loop.path and range_ in loop.instances:
                launched[number, range_] += ops
        if path in paths:
            launched[0, range_] += ops
    for step in automatic_steps(report, process, name):
        launched[0, step] = launched_in(report, step)
    for number, loop in enumerate(loops, start=1):
        if loop.inferred:
            launched.update(((number, one), launched_in(report, one)) for one in loop.instances)
    others = [one for loop in loops for one in loop.instances]
    taken = {index for (of_loop, _), ops in launched.items() if of_loop for index in ops}
    for (of_loop, range_), ops in launched.items():
        if of_loop == 0:
            begun = [one.start_ns for one in others if one.start_ns < range_.end_ns]
            inside = [at for at in begun if at >= range_.start_ns]
            ops[:] = [
                index
                for index in ops
                if index not in taken and (not inside or launch_start(report, index) >= max(inside))
            ]
    return launched


def launch_start(report: Report, op: int) -> int:
    """When the call began that launched an operation."""
    call = report.calls.caller(op)
    assert call is not None
    return call.start_ns


def launched_in(report: Report, step: Open) -> list[int]:
    """§8.20: the operations that its process launched in an automatic step, on any thread."""
    return [
        index
        for index, op in enumerate(report.ops)
        if op.process == step.process
        and (call := report.calls.caller(index)) is not None
        and step.covers(call.start_ns)
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
    for (process, _), mine in sorted(grouped_by(track_of, all_steps).items()):
        left, slowed, leading = list[Step](), list[Step](), True
        for step in mine:
            starts_up = step.index < skipped(report, process, len(mine), skip)
            starts_up = starts_up or loads_much(report, step) or compiles_much(report, step)
            if step.is_last and step.range_.cut_off:
                found[step] = Kind("cut-off")
            elif is_incomplete(report, step, mine):
                found[step] = Kind("incomplete")
            elif leading and starts_up:
                found[step] = Kind("start-up")
            elif is_slowed(report, step):
                leading = False
                slowed.append(step)
            else:
                leading = False
                left.append(step)
        if left:
            found |= dict.fromkeys(slowed, Kind("start-up"))
        else:
            left = slowed
        alike = [step for step in left if is_compared(report, step)]
        lengths = [step.end_ns - step.start_ns for step in alike]
        compared = zip(alike, excesses(lengths), one_offs(lengths), strict=True)
        known = {step: (excess_ns, outlier) for step, excess_ns, outlier in compared}
        for step in left:
            excess_ns, outlier = known.get(step, (None, False))
            is_one_off = outlier or has_wrong_times(report, step) or compiles_much(report, step)
            kind = "one-off" if is_one_off else "steady"
            if outlier and step.index == 0 and captures_window(report, process):
                kind = "start-up"
            cut = len(left) > 1 or mostly_outside(report, mine, name)
            if cut and ends_early(report, step, all_steps):
                kind = "cut-off"
            found[step] = Kind(kind, excess_ns)
    return found


def step_numbers(report: Report, step: Step) -> dict[str, Any] | None:
    """§23.3, §23.8: the numbers of the step of an engine or of a token of `generate`."""
    mine = [one for one in report.trace.ranges if one.process == step.process]
    if step.range_.name == ENGINE_STEP:
        return engine_numbers(next(one.name for one in mine if one.row == step.range_.row))
    if step.range_ not in report.phases.automatic_steps.get(step.process, []):
        return None
    tokens = [
        one.name
        for one in mine
        if one.domain == AUTOMATIC and is_token(one.name) and one.lasts
        if step.range_.covers(one.start_ns)
    ]
    return engine_numbers(tokens[0]) if len(tokens) == 1 else None


def is_compared(report: Report, step: Step) -> bool:
    """§8.14: steps of an engine that do more than decode are not."""
    numbers = step_numbers(report, step)
    return numbers is None or numbers["kind"] == "decode"


def ends_early(report: Report, step: Step, steps: list[Step]) -> bool:
    """§8.4: whether a step lacks its tail, of ranks in one report on any of them."""
    communicate = communicating(report)
    ranks = [one for one in steps if one.process in communicate]
    mine = [one for one in steps if track_of(one) == track_of(step)]
    if step not in ranks:
        return tail_missing(step, mine)
    if len({one.process for one in ranks}) < 2:
        return False
    tracks = grouped_by(track_of, ranks)
    lost = [
        track[-1].index
        for track in tracks.values()
        if track[-1].range_.cut_off or tail_missing(track[-1], track)
    ]
    return step == mine[-1] and bool(lost) and step.index >= min(lost)


@once
def communicating(report: Report) -> set[int | None]:
    """The processes that run communication kernels."""
    return {op.process for op in report.ops if is_comm(op)}


def tail_missing(step: Step, steps: list[Step]) -> bool:
    """§8.4: whether a step that none follows took less of the GPU than the host takes for one."""
    between = [
        steps[one.index + 1].range_.start_ns - one.range_.end_ns for one in steps if not one.is_last
    ]
    usual = Fraction(median(between)) if between else Fraction(0)
    host_ns = step.range_.end_ns - step.range_.start_ns + usual
    return step.is_last and 100 * (step.end_ns - step.start_ns) < 99 * host_ns


def mostly_outside(report: Report, steps: list[Step], name: str | None) -> bool:
    """§8.4: whether less than half of what is launched from the first step to the last, in no other
    loop, is launched in steps."""
    process, device = track_of(steps[0])
    launched = launched_by(report, process, name)
    in_steps = {index for (loop, _), ops in launched.items() for index in ops if loop == 0}
    in_loops = {index for (loop, _), ops in launched.items() for index in ops if loop}
    begins = [step.range_.start_ns for step in steps]
    total_ns = inside_ns = 0
    for index, op in enumerate(report.ops):
        if (op.process, op.device) != (process, device) or index in in_loops:
            continue
        if report.calls.caller(index) is None:
            continue
        if min(begins) <= launch_start(report, index) < max(begins):
            total_ns += op.end_ns - op.start_ns
            inside_ns += (op.end_ns - op.start_ns) * (index in in_steps)
    return 2 * inside_ns < total_ns


def skipped(report: Report, process: int, count: int, skip: int | None) -> int:
    """§8.13: how many leading steps are start-up in any case."""
    if skip is not None:
        return skip
    engine = any(
        step.range_.name == ENGINE_STEP for step in steps_of(report) if step.process == process
    )
    if engine or captures_window(report, process):
        return 0
    return min(2, count - 5) if count >= 5 else 2


def captures_window(report: Report, process: int) -> bool:
    """Whether a process captured a window of its steps."""
    return process in {capture.process for capture in report.trace.captures}


def loads_much(report: Report, step: Step) -> bool:
    """§8.13: more than 1 % of it is module_load idle."""
    loading_ns = causes_of(gaps_of(report, step))["module_load_ns"]
    return 100 * loading_ns > step.end_ns - step.start_ns


def compiles_much(report: Report, step: Step) -> bool:
    """§8.13: its process compiles for more than 1 % of it."""
    compiling = [(one.start_ns, one.end_ns) for one in report.phases.compiling(step.process)]
    inside = common(union(compiling), union([(step.start_ns, step.end_ns)]))
    return 100 * length(inside) > step.end_ns - step.start_ns


def is_slowed(report: Report, step: Step) -> bool:
    """§8.33: whether an instant `look` of its process lies in its range."""
    return any(
        step.range_.start_ns <= one.start_ns < step.range_.end_ns
        for one in report.phases.looks
        if one.process == step.process
    )


def is_incomplete(report: Report, step: Step, steps: list[Step]) -> bool:
    """§8.12: whether launches that lost their operations start in it."""
    until_ns = step.range_.end_ns
    if step.index + 1 < len(steps):
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
    """§8.14: each duration without the median of the nearest nine, of its kind where two kinds
    take turns."""
    if not take_turns(durations):
        return excesses_of_kind(durations)
    kinds = [iter(excesses_of_kind(durations[turn::2])) for turn in (0, 1)]
    return [next(kinds[place % 2]) for place in range(len(durations))]


def excesses_of_kind(durations: list[int]) -> list[int]:
    """§8.14: each duration without the median of the nearest nine."""
    count = len(durations)
    size = min(9, count)
    found = []
    for place, duration in enumerate(durations):
        first = min(max(place - 4, 0), count - size)
        median = whole(percentile(durations[first : first + size], 50))
        found.append(duration - (median or 0))
    return found


def take_turns(durations: list[int]) -> bool:
    """§8.32: whether two kinds of steps take turns."""
    if len(durations) < 10:
        return False
    kinds = [durations[0::2], durations[1::2]]
    shorter, longer = sorted(kinds, key=lambda kind: whole(percentile(kind, 50)) or 0)
    low, high = (whole(percentile(kind, 50)) or 0 for kind in (shorter, longer))
    right = sum(2 * one < low + high for one in shorter)
    right += sum(2 * one >= low + high for one in longer)
    return 10 * high > 12 * low and 10 * right >= 9 * len(durations)


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
        pieces = [piece for piece in waits_of(report).pieces if piece.device == step.device]
        of_step = exposed(pieces, {step.device: [(step.start_ns, step.end_ns)]})
        of_step |= {"compute": split["compute_ns"], **idle(gaps_of(unhidden(report), step))}
        label, pct = bound(of_step)
        rows.append(
            {
                **report.about(step.process, device=step.device),
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
                "inferred": name is None and ranges_give_none(report),
            }
        )
    return rows


def gaps_of(report: Report, step: Step) -> list[Gap]:
    """§8.2: the gaps that start in a step."""
    return [gap for gap in report.gaps_on(step.device) if step.holds(gap.start_ns)]


def steady_in(
    report: Report, keep: Keep | None, name: str | None, numbers: range | None
) -> tuple[list[Step], list[Step]]:
    """§8.19: the steady steps, and those of them that count in a window and in `--steps`."""
    steady = [step for step, kind in kinds_of(report, name).items() if kind.name == "steady"]
    counted = [
        step for step in steady if (numbers is None or step.index in numbers) and begins(step, keep)
    ]
    return steady, counted


@dataclass(frozen=True)
class Piece:
    """§19.1, §25.3: a step, or the whole window of a GPU without steps."""

    device: int
    start_ns: int
    end_ns: int
    process: int | None = None
    step: int | None = None

    def holds(self, t: int) -> bool:
        """Whether what starts at `t` belongs to it."""
        return self.start_ns <= t < self.end_ns

    def part_of(self, start_ns: int, end_ns: int) -> int:
        """How much of a stretch lies in it."""
        return max(0, min(end_ns, self.end_ns) - max(start_ns, self.start_ns))


def pieces_of(report: Report, keep: Keep | None = None) -> list[Piece]:
    """§19.1, §25.3: each step, and each window of a GPU without steps."""
    windows = report.windows if keep is None else keep
    steps = steps_of(report)
    return [
        *(Piece(one.device, one.start_ns, one.end_ns, one.process, one.index) for one in steps),
        *(
            Piece(device, *window)
            for device in report.devices
            if device not in {step.device for step in steps}
            for window in windows.get(device, [])
        ),
    ]
