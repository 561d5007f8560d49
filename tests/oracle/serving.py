"""Steps of serving engines: the numbers in their names, and what follows from them (spec §23)."""

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

from tests.oracle.engine_names import ENGINE_STEP, NUMBERS, is_token, plus
from tests.oracle.gpu_metrics import class_of
from tests.oracle.model import Op, Range
from tests.oracle.once import once
from tests.oracle.phases import AUTOMATIC
from tests.oracle.report import Report, Row, os_pid
from tests.oracle.stats import percentile, std, whole
from tests.oracle.steps import Step, step_numbers, steps, steps_of

BY_HOST = ("sync", "blocking_copy", "alloc", "module_load", "api", "host", "launch")


@once
def engine_steps(report: Report) -> dict[Step, dict[str, Any]]:
    """The steps that are an engine's, or a token of `generate`, with their numbers."""
    numbers = ((step, step_numbers(report, step)) for step in steps_of(report))
    return {step: found for step, found in numbers if found is not None}


def token_end(report: Report, step: Step) -> int | None:
    """§23.5: the end of the last operation launched from the begin of its range to the next
    one's."""
    ranges = {one.range_ for one in engine_steps(report) if one.process == step.process}
    later = [
        one.start_ns
        for one in ranges
        if (one.start_ns, one.row) > (step.range_.start_ns, step.range_.row)
    ]
    until = min(later, default=step.range_.end_ns)
    ends = []
    for index in report.on(step.device):
        launch = report.calls.launch[index]
        if launch is None or report.ops[index].process != step.process:
            continue
        if step.range_.start_ns <= report.calls.calls[launch].start_ns < until:
            ends.append(report.ops[index].end_ns)
    return max(ends, default=None)


def between_tokens(report: Report, step: Step) -> int | None:
    """§23.6: what its requests waited for this token."""
    known = engine_steps(report)
    mine = [one for one in known if (one.process, one.device) == (step.process, step.device)]
    if known[step]["kind"] not in ("mixed", "decode") or step == mine[-1]:
        return None
    before = [one for one in mine if one.index < step.index and known[one]["kind"] is not None]
    decoding = [one for one in before if known[one]["kind"] != "prefill"]
    since = [one for one in before if not decoding or one.index > decoding[-1].index]
    fresh = sum(known[one]["prefill_requests"] or 0 for one in since)
    makes = known[step]["decode_requests"]
    giving = before if makes is not None and makes <= fresh else decoding
    if not giving:
        return None
    end, begin = token_end(report, step), token_end(report, giving[-1])
    return None if end is None or begin is None else end - begin


def token_waits(report: Report) -> list[list[list[int]]]:
    """§14.23: per process and step, the calls that wait for what the step computed."""
    found = []
    named = [step for step in engine_steps(report) if step.range_.name == ENGINE_STEP]
    for process in sorted({step.process for step in named}):
        ranges = {one.range_ for one in named if one.process == process}
        ordered = sorted(ranges, key=lambda one: (one.start_ns, one.row))
        ends = [*(one.start_ns for one in ordered[1:]), *(one.end_ns for one in ordered[-1:])]
        spans = zip((one.start_ns for one in ordered), ends, strict=True)
        found.append([_waits_in(report, process, begin, end) for begin, end in spans])
    return found


def _waits_in(report: Report, process: int, begin: int, end: int) -> list[int]:
    calls = report.calls
    of_op = [(op, launch) for op, launch in zip(report.ops, calls.launch, strict=True)]
    kernels = [
        calls.calls[launch].start_ns
        for op, launch in of_op
        if launch is not None and op.process == process and op.kind in ("kernel", "graph")
    ]
    launched = [start for start in kernels if begin <= start < end]
    to_gpu = {launch for op, launch in of_op if op.short_name == "memcpy HtoD"}
    return [
        index
        for index, call in enumerate(calls.calls)
        if call.process == process
        and calls.classes[index] in ("sync", "blocking_copy")
        and index not in to_gpu
        and launched
        and max(launched) < call.start_ns < end
    ]


def first_token(report: Report, step: Step) -> int | None:
    """§23.13: from the call of `generate` to the end of what was launched in the token's range."""
    prompts = prompt_tokens(report)
    if step not in prompts:
        return None
    token, call = prompts[step]
    ends = []
    for index in report.on(step.device):
        launch, op = report.calls.launch[index], report.ops[index]
        if launch is None or op.process != step.process:
            continue
        at_ns = report.calls.calls[launch].start_ns
        before = [
            one
            for one, _ in prompts.values()
            if one.process == op.process and one.start_ns <= at_ns
        ]
        if before and max(before, key=lambda one: one.start_ns) == token and at_ns < ended(token):
            ends.append(op.end_ns)
    return max(ends) - call.start_ns if ends else None


@once
def prompt_tokens(report: Report) -> dict[Step, tuple[Range, Range]]:
    """§23.13: the token and the call of each step that reads a prompt in `generate`."""
    found = {}
    for step, numbers in engine_steps(report).items():
        ours = [
            one
            for one in report.trace.ranges
            if one.domain == AUTOMATIC
            and one.process == step.process
            and (one.end_ns is None or one.end_ns >= one.start_ns)
        ]
        tokens = [
            one
            for one in ours
            if is_token(one.name) and step.range_.start_ns <= one.start_ns < step.range_.end_ns
        ]
        if step.range_.name == ENGINE_STEP or not tokens or numbers["kind"] != "prefill":
            continue
        token = tokens[0]
        calls = [
            one
            for one in ours
            if (one.name, one.thread) == ("generate", token.thread)
            and one.start_ns <= token.start_ns
        ]
        last = max(calls, key=lambda one: (one.start_ns, -ended(one)), default=None)
        if last is not None and ended(last) > token.start_ns and token.end_ns is not None:
            found[step] = token, last
    return found


def ended(one: Range) -> float:
    """When a range ended; one that did not is open to the end of the trace."""
    return math.inf if one.end_ns is None else one.end_ns


WORK_CLASSES = ("attention", "matmul")


def kernels_in(report: Report, step: Step, name: str) -> list[Op]:
    """§23.9: the kernels of this class of its process that start in a step."""
    return [
        op
        for op in map(report.ops.__getitem__, report.on(step.device))
        if (op.kind, op.process) == ("kernel", step.process)
        and step.start_ns <= op.start_ns < step.end_ns
        and class_of(op) == name
    ]


def time_of(report: Report, step: Step, name: str) -> int:
    """How long they run."""
    return sum(op.end_ns - op.start_ns for op in kernels_in(report, step, name))


def serving_steps(report: Report) -> list[Row]:
    """§23.3 to §23.6: a row per step of an engine."""
    by_step = {(row["process"], row["device"], row["step"]): row for row in steps(report)}
    rows = []
    for step, said in engine_steps(report).items():
        row = by_step[os_pid(step.process), step.device, step.index]
        rows.append(
            {
                **{name: row[name] for name in ("report", "process", "device", "step")},
                **{name: said[name] for name in NUMBERS},
                "start_ns": row["start_ns"],
                "duration_ns": row["duration_ns"],
                "time_ns": row["duration_ns"] - row["unknown_ns"],
                "idle_ns": row["idle_ns"],
                "host_wait_ns": sum(row[f"{cause}_ns"] for cause in BY_HOST),
                "between_tokens_ns": between_tokens(report, step),
                "first_token_ns": first_token(report, step),
                **{f"{name}_ns": time_of(report, step, name) for name in WORK_CLASSES},
            }
        )
    return rows


def serving(report: Report) -> list[Row]:
    """§23.7: a row per kind, and one for all."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in serving_steps(report):
        for kind in (row["kind"], "all"):
            if kind is not None:
                groups[row["report"], row["process"], row["device"], kind].append(row)
    return [
        {**dict(zip(("report", "process", "device", "kind"), key, strict=True)), **sums(rows)}
        for key, rows in groups.items()
    ]


def sums(rows: list[Row]) -> Row:
    """What the steps of a kind have together."""
    times = [row["time_ns"] for row in rows]
    waits = [row["between_tokens_ns"] for row in rows if row["between_tokens_ns"] is not None]
    firsts = [row["first_token_ns"] for row in rows if row["first_token_ns"] is not None]
    requests = [row["requests"] for row in rows if row["requests"] is not None]
    padded = [row for row in rows if row["padded_requests"] is not None]
    room = sum(row["padded_requests"] for row in padded)
    filled = sum(row["requests"] for row in padded)
    tokens = plus(*(row["tokens"] for row in rows))
    waiting = sum(row["host_wait_ns"] for row in rows)
    total = sum(times)
    return {
        "steps": len(rows),
        "requests_per_step": float(Fraction(sum(requests), len(requests))) if requests else None,
        "tokens": tokens,
        "prefill_tokens": plus(*(row["prefill_tokens"] for row in rows)),
        "decode_tokens": plus(*(row["decode_tokens"] for row in rows)),
        "time_ns": total,
        "tokens_per_s": tokens * 1e9 / total if tokens is not None and total > 0 else None,
        "median_ns": whole(percentile(times, 50)),
        "p95_ns": whole(percentile(times, 95)),
        "std_ns": std(times),
        "between_tokens_ns": whole(percentile(waits, 50)),
        "between_tokens_p95_ns": whole(percentile(waits, 95)),
        "first_token_ns": whole(percentile(firsts, 50)),
        "first_token_max_ns": max(firsts, default=None),
        "host_wait_ns": waiting,
        "host_wait_pct": 100.0 * waiting / total if total else None,
        "padding_pct": 100.0 * (room - filled) / room if room else None,
    }
