"""Reports as rules look at them, and tiny loops."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.options import Options
from tests import tiny
from tests.pairs import trace
from tests.reports import PACKED
from tests.tiny import Row as Row

US: Final = 1_000
MS: Final = 1_000_000


@cache
def of_sample(name: str) -> JudgedReport:
    """The typical steps of a sample."""
    return JudgedReport(nsysflow.analyze(trace(name)))


@cache
def of_report(name: str) -> JudgedReport:
    """The typical steps of a report in tests/data."""
    return JudgedReport(nsysflow.analyze(nsysflow.load(PACKED[name])))


@cache
def valued(name: str) -> tuple[Valued, ...]:
    """The findings of a sample."""
    return find(of_sample(name)).valued


def found(rule: Rule, subject: JudgedReport) -> list[Finding]:
    """What a rule finds."""
    return list(rule(subject))


def loop(body: Callable[[int, int], Iterable[Row]], *, steps: int = 8, every: int) -> JudgedReport:
    """Steps of `every` us, each with the rows that `body` gives for its start and number; a range
    `step` around each. Calls of step i have correlations from `100 * i` on."""

    def rows() -> Iterator[Row]:
        for i in range(steps):
            start = i * every * US
            yield tiny.opened(start, start + every * US - 1, "step")
            yield from body(start, i)

    return JudgedReport(tiny.analysis_of(*rows(), options=Options(skip=0)))


def launched(
    start: int, number: int, *, at: int, took: int, kernel_ns: int, queued: int = 2
) -> Iterator[Row]:
    """A launch `at` us into a step that takes `took` us, and its kernel `queued` us behind it."""
    begin = start + at * US
    yield tiny.launch(begin, begin + took * US, number)
    ran = begin + (took + queued) * US
    yield tiny.kernel(ran, ran + kernel_ns, number)
