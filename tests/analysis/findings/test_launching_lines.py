"""Findings about kernels name the lines that launched them."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.fusion import unfused_elementwise
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, asked, loop, named


def chain(
    first: str, second: str, *, first_us: int = 60, thread: int = tiny.MAIN, product_us: int = 20
) -> JudgedReport:
    """Two neighbours a step, the second 40 us long and launched by `thread`, and a product; these
    functions, and `multiply`, run while they are launched."""

    def rows(start: int, i: int) -> Iterator[Row]:
        launches = (
            (first, tiny.MAIN, first_us, names.ADD),
            (second, thread, 40, names.MUL),
            ("multiply", tiny.MAIN, product_us, names.PRODUCT),
        )
        begin = start + 100 * US
        for number, (function, by, us, name) in enumerate(launches, 100 * i + 1):
            at = start + 20 * (number % 10) * US
            yield tiny.launch(at, at + 10 * US, number, thread=by)
            yield named(tiny.kernel(begin, begin + us * US, number), name)
            yield tiny.sample(at + US, function)
            begin += us * US

    return loop(rows, every=300)


@pytest.mark.parametrize(
    ("subject", "main", "evidence"),
    [
        (chain("f", "g"), "f", "launched by train.py:1 in f 60 %, train.py:1 in g 40 %"),
        (chain("f", "f"), "f", "launched by train.py:1 in f 100 %"),
        (chain("f", "f", product_us=10), "", "launched by train.py:1 in f 100 %"),
        (
            chain("f", "wait", thread=tiny.AUTOGRAD),
            "f",
            "launched by train.py:1 in f 60 %, the backward pass 40 %",
        ),
        (
            chain("f", "wait", first_us=30, thread=tiny.AUTOGRAD),
            "",
            "launched by train.py:1 in f 43 %, the backward pass 57 %",
        ),
        (
            chain("f", "wait", first_us=4, thread=tiny.AUTOGRAD),
            "",
            "launched by the backward pass 91 %",
        ),
    ],
)
def test_a_finding_names_the_lines(subject: JudgedReport, main: str, evidence: str) -> None:
    """One that has half of the time is its place, unless it launches nearly all kernels; a line
    with a tenth is named at least."""
    finding = asked(unfused_elementwise, subject)
    assert finding is not None
    at = f"train.py:1 in {main}" if main else ""
    assert finding.source == at
    assert finding.title.endswith(f", most at {at}" if main else "of kernel time")
    assert evidence in finding.evidence
