"""Steps inferred from what repeats: their launches, and the ranges of what is found (spec §8.24,
§8.29, §8.30)."""

import re
from bisect import bisect_right
from collections import Counter

from tests.oracle.comm import started_order
from tests.oracle.once import once
from tests.oracle.phases import Open
from tests.oracle.repetition import Launch, Repetition, lasts, moved, repetition
from tests.oracle.report import Report

OPTIMIZERS = ("multi_tensor_apply", "adam", "addcdiv", "adagrad", "rmsprop")
OPTIMIZER_WORDS = re.compile(r"(?<![a-z])(sgd|lamb|lion|muon)(?![a-z])")
SOLVERS = (
    *("gesvd", "svd_", "offa_stage", "sytrd", "sytrf", "hetrd", "hetrf", "syev", "heev", "stedc"),
    *("laed", "steqr", "geqr", "gebrd", "larf", "potrf", "potrs", "getrf", "getrs", "laswp"),
)
SOLVER_WORDS = re.compile(r"(trsm|trsv)(?![a-z])")


@once
def inferred_loops(report: Report) -> dict[int, dict[str, list[Open]]]:
    """§8.29, §8.30: the steps of each process and those of its other loops, by name."""
    found = {}
    for process in sorted({call.process for call in report.calls.calls}):
        launches = launches_of(report, process)
        steps = repetition(launches)
        if not steps[0]:
            continue
        others = sorted(other_loops(report, process, launches, *steps))
        named = {"step": steps, **{f"loop {n}": one for n, one in enumerate(others, start=1)}}
        opened = {
            name: opened_steps(report, process, launches, *one) for name, one in named.items()
        }
        found[process] = {name: steps for name, steps in opened.items() if steps}
    return found


def opened_steps(
    report: Report, process: int, launches: list[Launch], begins: list[int], end: int, cut: bool
) -> list[Open]:
    """§8.29: these steps as ranges."""
    calls = [report.calls.calls[launches[at].call] for at in begins]
    until = report.calls.calls[launches[end - 1].call].end_ns
    if end < len(launches):
        until = min(until, report.calls.calls[launches[end].call].start_ns)
    steps = []
    for place, call in enumerate(calls):
        last = place == len(calls) - 1
        end_ns = until if last else calls[place + 1].start_ns
        if end_ns > call.start_ns:
            where = call.start_ns, end_ns, process, call.thread, "step", place
            cut_off = last and cut
            steps.append(Open(*where, cut_off=cut_off, operator=False, compiling=False))
    return steps


def other_loops(
    report: Report, process: int, launches: list[Launch], begins: list[int], end: int, _: bool
) -> list[Repetition]:
    """§8.30: what repeats before and after these steps, and so on."""
    found = []
    loading = [
        call.start_ns
        for call, class_ in zip(report.calls.calls, report.calls.classes, strict=True)
        if call.process == process and class_ == "module_load"
    ]
    rests = [(0, begins[0]), (end, len(launches))]
    for first, past in rests:
        within = repetition(launches[first:past])
        if not within[0]:
            continue
        loop = moved(within, first)
        rests += [(first, loop[0][0]), (loop[1], past)]
        steps = opened_steps(report, process, launches, *loop)
        load = sum(any(one.start_ns <= at < one.end_ns for at in loading) for one in steps)
        if lasts(launches, loop) and 2 * load < len(steps):
            found.append(loop)
    return found


def launches_of(report: Report, process: int) -> list[Launch]:
    """§8.24: the launches of a process, in order."""
    calls, ops = report.calls.calls, report.ops

    def by_start(index: int) -> tuple[object, ...]:
        return (ops[index].start_ns, ops[index].device, *started_order(report, index))

    mine = {call: launched for call, launched in report.calls.launched.items() if launched}
    mine = {call: launched for call, launched in mine.items() if calls[call].process == process}
    counts = Counter(ops[index].device for launched in mine.values() for index in launched)
    if not counts:
        return []
    largest = min(counts, key=lambda device: (-counts[device], device))
    first = {call: min(launched, key=by_start) for call, launched in mine.items()}
    there = [call for call in mine if ops[first[call]].device == largest]
    there.sort(key=lambda call: (calls[call].start_ns, by_start(first[call])))
    threads = report.trace.threads
    autograd = {one.thread for one in threads if one.name.startswith("pt_autograd")}
    waits = [
        call.start_ns
        for call, class_ in zip(calls, report.calls.classes, strict=True)
        if call.process == process and class_ == "sync"
    ]
    waited = set()
    for wait in waits:
        before = bisect_right(there, wait, key=lambda call: calls[call].start_ns)
        waited |= {before - 1} if before else set()
    found = []
    for place, call in enumerate(there):
        op = ops[first[call]]
        name = (bool(re.match("(cuda|cu|hip)GraphLaunch", calls[call].name)), op.name)
        grid = (op.shape.grid_x, op.shape.grid_y, op.shape.grid_z) if op.shape else ()
        found.append(
            Launch(
                call,
                name,
                (name, grid),
                calls[call].thread in autograd,
                sum(ops[index].end_ns - ops[index].start_ns for index in mine[call]),
                copies=op.kind in ("memcpy", "memset"),
                solves=op.kind == "kernel" and is_solver(op.name),
                optimizer=op.kind == "kernel" and is_optimizer(op.name),
                exchange=place in waited
                or (op.kind == "memcpy" and any(way in op.name for way in ("HtoD", "DtoH"))),
            )
        )
    return found


def is_optimizer(name: str) -> bool:
    """§8.24."""
    low = name.lower()
    return any(part in low for part in OPTIMIZERS) or bool(OPTIMIZER_WORDS.search(low))


def is_solver(name: str) -> bool:
    """§8.24."""
    low = name.lower()
    return any(part in low for part in SOLVERS) or bool(SOLVER_WORDS.search(low))
