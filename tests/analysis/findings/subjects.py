"""Reports as rules look at them: real ones, tiny loops, and GPUs that are always busy."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.load.kernel_names import short_kernel_name
from tests import tiny
from tests.analyses import analysed
from tests.oracle.model import Device, Op, Operator, OperatorShape, Range, Shape, to_trace
from tests.tiny import Row as Row

US: Final = 1_000
MS: Final = 1_000_000

Kernels = list[tuple[str, int]]
"""Full names and lengths in us."""

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


def asked(rule: Rule, subject: JudgedReport) -> Finding | None:
    """What the rule finds first."""
    return next(rule(subject), None)


def options_of(finding: Finding) -> str:
    """The options of the replay that values a finding."""
    return " ".join(finding.changes.options()) if finding.changes else ""


def left_of(finding: Finding | None) -> dict[str, float]:
    """The factor of each kernel's time in the replay, rounded."""
    assert finding is not None
    assert finding.changes is not None
    return {name: round(factor, 2) for name, factor in finding.changes.scaled}


def judged(*rows: Row) -> JudgedReport:
    """These rows as recorded, without skipping a step."""
    return JudgedReport(tiny.analysis_of(*rows, options=replace(tiny.AS_RECORDED, skip=0)))


def loop(
    body: Callable[[int, int], Iterable[Row]],
    *,
    steps: int = 8,
    every: int,
    within: tuple[int, int] | None = None,
    name: str = "step",
) -> JudgedReport:
    """Steps of `every` us, each with the rows that `body` gives for its start and number; a range
    `name` around each, or `within` these us of it. Calls of step i have correlations from `100 * i`
    on."""
    begin, end = within or (0, every)

    def rows() -> Iterator[Row]:
        for i in range(steps):
            start = i * every * US
            yield tiny.opened(start + begin * US, start + end * US - 1, name)
            yield from body(start, i)

    return judged(*rows())


def launched(
    start: int, number: int, *, at: int, took: int, kernel_ns: int, queued: int = 2
) -> Iterator[Row]:
    """A launch `at` us into a step that takes `took` us, and its kernel `queued` us behind it."""
    begin = start + at * US
    yield tiny.launch(begin, begin + took * US, number)
    ran = begin + (took + queued) * US
    yield tiny.kernel(ran, ran + kernel_ns, number)


def subject_of(
    kernels: Kernels,
    *,
    gpu: str = "NVIDIA H200",
    blocks: tuple[int, ...] = (1_000,),
    ranges: tuple[Range, ...] = (),
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
    device = Device(device=0, name=gpu, uuid=None, sm_count=100, memory_bytes_per_s=None)
    links = tuple(
        Operator(tiny.PROCESS, number, number, shape) for number, shape in enumerate(operators, 1)
    )
    trace = to_trace(replace(tiny.plain_of(*rows), devices=(device,), operators=links))
    return JudgedReport(nsysflow.analyze(trace))


def named(op: Op, name: str) -> Op:
    """The kernel with another name, shortened as loaders do."""
    return replace(op, name=name, short_name=short_kernel_name(name))
