"""`gil-contention`: the launching thread waits for a lock that another thread holds."""

from dataclasses import replace
from functools import cache
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.tables.gil import GIL
from tests import tiny
from tests.oracle.model import Gil, to_trace

MS: Final = 1_000_000
STEPS: Final = 12


@cache
def steps(waits_ms: float, *, sampled: bool = False, held: bool = True) -> nsysflow.Analysis:
    """Steps of 10 ms, of which the GPU computes 2 and the host needs 8 until the next launch, which
    begin with a wait for the lock."""
    rows: list[tiny.Row] = []
    for step in range(STEPS):
        at, until = step * 10 * MS, round((step * 10 + 2 + waits_ms) * MS)
        rows += [tiny.opened(at, at + 10 * MS, f"step {step}")]
        rows += [tiny.launch(at + 1_000, at + 6_000, step + 1)]
        rows.append(tiny.kernel(at + 7_000, at + 2 * MS, step + 1))
        rows.append(Gil(at + 2 * MS, until, tiny.MAIN, "waiting"))
        rows.append(Gil(at + MS, until, tiny.WORKER if held else tiny.MAIN, "holding"))
        if sampled:
            times = range(at, at + 10 * MS, MS)
            rows += [tiny.sample(t, "decode", "run", thread=tiny.WORKER) for t in times]
    return nsysflow.analyze(to_trace(tiny.plain_of(*rows)), replace(tiny.AS_RECORDED, skip=0))


def found(analysis: nsysflow.Analysis, rule: str = "gil-contention") -> Valued | None:
    return next((one for one in analysis.found.valued if one.finding.rule == rule), None)


@pytest.mark.parametrize("waits_ms", [1.0, 3.0, 6.0])
def test_a_wait_saves_up_to_its_length_before_the_host_code_that_waits(waits_ms: float) -> None:
    """Even where the other host code takes longer; and what the lock takes, it keeps."""
    valued = found(steps(waits_ms))
    assert valued is not None
    assert valued.finding.size_ns == pytest.approx(waits_ms * MS, rel=0.01)
    assert valued.alone_ns == valued.high_ns == pytest.approx(waits_ms * MS, rel=0.02)
    assert valued.finding.method == "bound"
    assert "thread 3 (nameless) holds it" in valued.finding.title
    rules = [one.finding.rule for one in steps(waits_ms).found.valued]
    assert ("host-code" in rules[rules.index("gil-contention") :]) == (waits_ms < 6)


def test_samples_name_the_code_that_holds_the_lock() -> None:
    valued = found(steps(3.0, sampled=True))
    assert valued is not None
    assert valued.finding.title.endswith(": decode (train.py:1) holds it")


@pytest.mark.parametrize(
    "analysis", [steps(0.3), steps(3.0, held=False)], ids=["too short", "a single thread"]
)
def test_short_waits_and_single_threads_are_no_finding(analysis: nsysflow.Analysis) -> None:
    assert found(analysis) is None
    assert analysis.gil.schema == GIL


@pytest.mark.parametrize(("waits_ms", "said"), [(0.2, [False]), (3.0, [True]), (6.0, [])])
def test_host_code_is_no_place_to_begin_where_most_of_it_waits(
    waits_ms: float, said: list[bool]
) -> None:
    """And where a part of it waits, it says so."""
    valued = found(steps(waits_ms), "host-code")
    evidence = [] if valued is None else [valued.finding.evidence]
    assert [any("Python's lock" in each for each in texts) for texts in evidence] == said
