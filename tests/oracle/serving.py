"""Steps of serving engines: the numbers in their names, what follows from them, and what attention
and matrix products take (spec §23)."""

import json
import math
import re
from collections import defaultdict
from fractions import Fraction
from math import prod
from typing import Any

from tests.oracle.engine_names import ENGINE_STEP, NUMBERS, is_token, plus
from tests.oracle.gpu_metrics import class_of
from tests.oracle.model import Op, Operator, OperatorShape, Range
from tests.oracle.once import once
from tests.oracle.operators import SIZES, link_of, roof, tensors, unit_of, work_of
from tests.oracle.phases import AUTOMATIC
from tests.oracle.report import Report, Row, os_pid
from tests.oracle.stats import percentile, std, whole
from tests.oracle.steps import Step, step_numbers, steps, steps_of, track_of

BY_HOST = ("sync", "blocking_copy", "alloc", "module_load", "api", "host", "launch")


@once
def engine_steps(report: Report) -> dict[Step, dict[str, Any]]:
    """The steps that are an engine's, or a token of `generate`, with their numbers."""
    numbers = ((step, step_numbers(report, step)) for step in steps_of(report))
    return {step: found for step, found in numbers if found is not None}


def token_end(report: Report, step: Step) -> int | None:
    """§23.5: the end of the last operation launched from its begin to the next one."""
    ranges = {one.range_ for one in engine_steps(report) if one.process == step.process}
    later = [
        one.start_ns
        for one in ranges
        if (one.start_ns, one.row) > (step.range_.start_ns, step.range_.row)
    ]
    until = min(later, default=step.range_.end_ns)
    launched = launched_by(report, step)
    ends = (end_ns for at_ns, end_ns in launched if step.range_.start_ns <= at_ns < until)
    return max(ends, default=None)


def launched_by(report: Report, step: Step) -> list[tuple[int, int]]:
    """Of each operation of its process on its device, when it was launched and when it ended."""
    known = ((report.calls.caller(index), report.ops[index]) for index in report.on(step.device))
    return [
        (call.start_ns, op.end_ns)
        for call, op in known
        if call is not None and op.process == step.process
    ]


def between_tokens(report: Report, step: Step) -> int | None:
    """§23.6: what its requests waited for this token."""
    known = engine_steps(report)
    mine = [one for one in known if track_of(one) == track_of(step)]
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
    mine = [one for one, _ in prompts.values() if one.process == step.process]
    ends = []
    for at_ns, end_ns in launched_by(report, step):
        before = [one for one in mine if one.start_ns <= at_ns]
        if before and max(before, key=lambda one: one.start_ns) == token and at_ns < ended(token):
            ends.append(end_ns)
    return max(ends) - call.start_ns if ends else None


@once
def prompt_tokens(report: Report) -> dict[Step, tuple[Range, Range]]:
    """§23.13: the token and the call of each step that reads a prompt in `generate`."""
    found = {}
    for step, numbers in engine_steps(report).items():
        mine = [one for one in report.trace.ranges if one.process == step.process and one.lasts]
        ours = [one for one in mine if one.domain == AUTOMATIC]
        tokens = [one for one in ours if is_token(one.name) and step.range_.covers(one.start_ns)]
        if step.range_.name == ENGINE_STEP or not tokens or numbers["kind"] != "prefill":
            continue
        token = tokens[0]
        calls = [one for one in ours if (one.name, one.thread) == ("generate", token.thread)]
        calls = [one for one in calls if one.start_ns <= token.start_ns]
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
        dict(zip(("report", "process", "device", "kind"), key, strict=True)) | sums(rows)
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


PAGED = {
    "vllm::unified_attention_with_output": 0,
    "sglang_profiler::attention_paged_attention_ragged": 2,
}


def serving_work(report: Report) -> list[Row]:
    """§23.9: a row per kind and class."""
    times = {(row["process"], row["device"], row["step"]): row for row in serving_steps(report)}
    groups: dict[tuple[Any, ...], list[Step]] = defaultdict(list)
    said = engine_steps(report)
    for step in said:
        for name in WORK_CLASSES:
            if said[step]["kind"] is not None:
                groups[step.process, step.device, said[step]["kind"], name].append(step)
    rows = []
    for (process, device, kind, name), of_kind in groups.items():
        about = [times[os_pid(process), device, step.index] for step in of_kind]
        ns = [row[f"{name}_ns"] for row in about]
        total, time_ns = sum(ns), sum(row["time_ns"] for row in about)
        tokens = [
            said[step]["context_tokens" if name == "attention" else "tokens"] for step in of_kind
        ]
        calls = [call for step in of_kind for call in calls_in(report, step, name)]
        rows.append(
            {
                **report.about(process, device=device),
                "kind": kind,
                "class": name,
                "steps": len(of_kind),
                "total_ns": total,
                "share_pct": 100.0 * total / time_ns if time_ns else None,
                "median_ns": whole(percentile(ns, 50)),
                "ns_per_token": growth(tokens, ns),
                **rates(calls, total),
            }
        )
    return rows


def growth(tokens: list[int | None], ns: list[int]) -> float | None:
    """§23.10: the slope, if it explains half of the variance of three steps or more."""
    points = [(x, y) for x, y in zip(tokens, ns, strict=True) if x is not None]
    if len(points) < 3:
        return None
    middle_x = Fraction(sum(x for x, _ in points), len(points))
    middle_y = Fraction(sum(y for _, y in points), len(points))
    xx = sum((x - middle_x) ** 2 for x, _ in points)
    yy = sum((y - middle_y) ** 2 for _, y in points)
    xy = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return float(xy / xx) if xx and 2 * xy * xy >= xx * yy else None


def calls_in(report: Report, step: Step, name: str) -> list[Row]:
    """§23.11: what each call of an operator with kernels of the class took in a step."""
    by_shape: dict[OperatorShape, list[tuple[Op, Operator]]] = defaultdict(list)
    for op in kernels_in(report, step, name):
        link = link_of(report, op)
        if link is not None:
            by_shape[link.shape].append((op, link))
    return [
        row
        for shape, kernels in by_shape.items()
        if (row := call_of(report, step, shape, kernels)) is not None
    ]


def call_of(
    report: Report, step: Step, shape: OperatorShape, kernels: list[tuple[Op, Operator]]
) -> Row | None:
    """The calls with one shape in a step."""
    ns = sum(op.end_ns - op.start_ns for op, _ in kernels)
    tf32_ns = sum(op.end_ns - op.start_ns for op, _ in kernels if "tf32" in op.name)
    count = len({link.operator for _, link in kernels})
    found = paged(shape, engine_steps(report)[step])
    if found is None:
        takes = work_of(shape)
        if takes["least_flops"] is None:
            return None
        unit = unit_of(tensors(shape), tf32_ns, ns)
        found = takes["least_flops"], takes["bytes"], unit
    each, moved, unit = found
    if each is None or moved is None or not ns:
        return None
    peak, bandwidth = roof(report, step.device, unit)
    return {
        "ns": ns,
        "flops": count * each,
        "bytes": count * moved,
        "compute_ns": 1e9 * count * each / peak if peak else None,
        "memory_ns": 1e9 * count * moved / bandwidth if bandwidth else None,
    }


def paged(shape: OperatorShape, said: Row) -> tuple[int | None, int | None, Any] | None:
    """§23.11: attention over a cache, by the tokens of its step."""
    first = PAGED.get(re.sub("_[0-9]+$", "", shape.name))
    if first is None:
        return None
    dims, types = (json.loads(text or "[]") for text in (shape.dims, shape.types))
    (q, k, v), kinds = dims[first:][:3], types[first:][:3]
    size, of_keys, of_values = (SIZES[kind][0] for kind in kinds)
    heads, width = q[-2:]
    pairs, context = said["query_key_pairs"], said["context_tokens"]
    each = None if pairs is None else 2 * heads * (width + v[-1]) * pairs
    kept = k[-2] * (width * of_keys + v[-1] * of_values)
    own = prod(q[:-2]) * heads * (width + v[-1]) * size
    moved = None if context is None else kept * context + own
    units = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "float32"}
    return each, moved, units.get(kinds[0])


def rates(calls: list[Row], total_ns: int) -> Row:
    """§23.12: what the kernels with known work reached."""
    known_ns = sum(row["ns"] for row in calls)
    row: Row = dict.fromkeys(("flops_per_s", "bytes_per_s", "limit", "roofline_pct"))
    row["known_pct"] = 100.0 * known_ns / total_ns if total_ns else None
    if known_ns:
        for name in ("flops", "bytes"):
            row[f"{name}_per_s"] = 1e9 * sum(call[name] for call in calls) / known_ns
        pairs = [(call["compute_ns"], call["memory_ns"]) for call in calls]
        if all(None not in pair for pair in pairs):
            compute, memory = (sum(each) for each in zip(*pairs, strict=True))
            row["limit"] = "compute" if compute > memory else "memory"
            row["roofline_pct"] = 100 * sum(map(max, pairs)) / known_ns
    return row
