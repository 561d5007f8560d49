"""Reports as rules look at them: real ones, tiny loops, and GPUs that are always busy."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.load.kernel_names import short_kernel_name
from nsysflow.analysis.replay.changes import Changes
from tests import in_us, tiny
from tests.analyses import analysed
from tests.in_us import US as US
from tests.oracle.model import Device, Op, Operator, OperatorShape, PlainTrace, Shape, to_trace
from tests.tiny import Row as Row

MS: Final = 1_000_000

Body = Iterable[Row] | Callable[[int], Iterable[Row]]
"""The rows of each step, or those that a function gives for its number; times from its start."""

Kernels = list[tuple[str, int]]
"""Full names and lengths in us."""

_MOVED: Final = ("start_ns", "end_ns", "time_ns", "row", "correlation")
"""What of a row another step has later."""

_QUEUED: Final = 1_000 * US
"""The first kernel starts when all are launched, so that the host limits nothing."""


@cache
def real(name: str) -> JudgedReport:
    """The judged part of a real report."""
    return JudgedReport(analysed(name))


def valued(name: str) -> tuple[Valued, ...]:
    return analysed(name).found.valued


def found(rule: Rule, subject: JudgedReport) -> list[Finding]:
    return list(rule(subject))


def asked(rule: Rule, subject: JudgedReport) -> Finding:
    """What the rule finds first."""
    return found(rule, subject)[0]


def valued_of(rule: str, subject: JudgedReport) -> Valued:
    """The one finding of that rule among all of a report."""
    (one,) = (each for each in find(subject).valued if each.finding.rule == rule)
    return one


def changes_of(finding: Finding) -> Changes:
    """The replay that values a finding."""
    assert finding.changes is not None
    return finding.changes


def options_of(finding: Finding) -> str:
    """The options of the replay that values a finding."""
    return " ".join(finding.changes.options()) if finding.changes else ""


def left_of(finding: Finding) -> dict[str, float]:
    """The factor of each kernel's time in the replay, rounded."""
    return {name: round(factor, 2) for name, factor in changes_of(finding).scaled}


def judged(*rows: Row, **more: Any) -> JudgedReport:
    """These rows as recorded, without skipping a step; `more` are other frames of the trace."""
    return JudgedReport(as_recorded(replace(tiny.plain_of(*rows), **more)))


def as_recorded(plain: PlainTrace) -> nsysflow.Analysis:
    """The analysis of a trace as recorded, without skipping a step."""
    return nsysflow.analyze(to_trace(plain), replace(tiny.AS_RECORDED, skip=0))


def one_gpu(name: str | None, sms: int = 100) -> tuple[Device]:
    """The only GPU."""
    return (Device(device=0, name=name, uuid=None, sm_count=sms, memory_bytes_per_s=None),)


def loop(
    body: Body,
    *,
    every: int,
    steps: int = 8,
    within: tuple[int, int] | None = None,
    name: str = "step",
) -> JudgedReport:
    """Steps of `every` us with these rows; a range `name` around each, or `within` these us."""
    begin, end = within or (0, every)
    step = tiny.opened(begin * US, end * US - 1, name)
    rows = (([step, *(body(i) if callable(body) else body)], i) for i in range(steps))
    return judged(*(row for own, i in rows for row in later(own, i * every)))


def repeated(rows: Iterable[Row], every: int, steps: int = 8) -> Iterator[Row]:
    """The same rows in each of so many steps of `every` us."""
    return (row for i in range(steps) for row in later(rows, i * every))


def later(rows: Iterable[Row], us: int) -> Iterator[Row]:
    """The same rows so much later, with other numbers of launches."""
    for row in rows:
        times = {name: getattr(row, name, None) for name in _MOVED}
        yield replace(row, **{name: at + us * US for name, at in times.items() if at is not None})


def launched(
    at: int,
    kernel_us: int,
    *,
    took: int = 5,
    queued: int = 2,
    name: str = "k",
    call: str = "cudaLaunchKernel",
) -> tuple[Row, Op]:
    """A launch at that us, which is its number too, and its kernel `queued` us behind its end."""
    begun = at + took + queued
    op = named(in_us.kernel(begun, begun + kernel_us, at), name)
    return in_us.launch(at, at + took, at, name=call), op


def subject_of(
    kernels: Kernels,
    *,
    gpu: str = "NVIDIA H200",
    blocks: tuple[int, ...] = (1_000,),
    ranges: tuple[Row, ...] = (),
    pause_us: int = 1,
    operators: tuple[OperatorShape, ...] = (),
) -> JudgedReport:
    """A GPU that runs these, one launch a us, with a short pause between two kernels; their grids
    take turns in having so many `blocks`, and the GPU has 100 SMs. `operators` are those of the
    first kernels."""
    rows: list[Row] = [*ranges]
    at = _QUEUED
    for number, (name, us) in enumerate(kernels, start=1):
        rows.append(tiny.launch(number * US, number * US + US // 2, number))
        op = named(tiny.kernel(at, at + us * US, number), name)
        rows.append(replace(op, shape=Shape(grid_x=blocks[number % len(blocks)])))
        at += (us + pause_us) * US
    links = tuple(
        Operator(tiny.PROCESS, number, number, shape) for number, shape in enumerate(operators, 1)
    )
    trace = to_trace(replace(tiny.plain_of(*rows), devices=one_gpu(gpu), operators=links))
    return JudgedReport(nsysflow.analyze(trace))


def seen(*launches: tuple[str, int, str], threads: dict[str, int] | None = None) -> list[Row]:
    """Kernels back to back, launched 20 us apart: name, length in us, and the function that runs
    while each is launched, at its line 1 or as `f:7` says; a function may launch from another
    thread."""
    rows: list[Row] = []
    begun = 100
    for place, (name, us, code) in enumerate(launches):
        function, _, line = code.partition(":")
        at, thread = 20 * (place + 1), (threads or {}).get(function, tiny.MAIN)
        ran = in_us.sample(at + 1, function)
        frames = tuple(replace(frame, line=int(line or 1)) for frame in ran.frames)
        rows += [in_us.launch(at, at + 10, at, thread=thread), replace(ran, frames=frames)]
        rows.append(named(in_us.kernel(begun, begun + us, at), name))
        begun += us
    return rows


def named(op: Op, name: str) -> Op:
    """The kernel with another name, shortened as loaders do."""
    return replace(op, name=name, short_name=short_kernel_name(name))
