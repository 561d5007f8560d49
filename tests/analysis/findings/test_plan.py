"""The order of a plan: what comes before a CUDA graph."""

from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.plan import _in_order
from tests.analysis.findings.subjects import Row, launched, loop
from tests.in_us import call, opened

STARVED: Final = [row for at in range(0, 60 * 30, 30) for row in launched(at, 3, took=10)]
"""60 kernels of 3 us, whose launches take 30 us each."""


def planned(wait_us: int) -> tuple[Valued, ...]:
    """The plan of steps with these launches, and a wait behind the last one."""
    waits: list[Row] = [opened(1_805, 1_805 + wait_us, "log")]
    waits.append(call(1_806, 1_804 + wait_us, "cudaDeviceSynchronize"))
    return find(loop([*STARVED, *waits], every=1_805 + wait_us + 10, steps=12)).valued


def test_a_small_wait_does_not_stand_before_a_graph_which_says_that_it_goes_first() -> None:
    graph, wait, *_ = planned(60)
    assert (graph.finding.rule, wait.finding.rule) == ("launch-bound", "sync-in-loop")
    assert 0 < wait.alone_ns < 0.05 * wait.step_ns < graph.high_ns
    assert graph.finding.change[1] == (
        "first remove the waits at step/log: a CUDA graph cannot contain them"
    )
    assert wait.step_after_ns <= graph.step_after_ns


def test_a_large_wait_stands_before_a_graph() -> None:
    wait, graph, *_ = planned(600)
    assert (wait.finding.rule, graph.finding.rule) == ("sync-in-loop", "launch-bound")
    assert not any(text.startswith("first remove") for text in graph.finding.change)


@pytest.mark.parametrize(
    ("pct", "saves_more", "first"), [(4, False, False), (6, False, True), (4, True, True)]
)
def test_a_wait_comes_before_a_graph_if_it_saves_a_twentieth_or_more_than_is_known(
    pct: int, *, saves_more: bool, first: bool
) -> None:
    wait, graph = planned(600)[:2]
    finding = replace(wait.finding, exact=not saves_more, saves_more=saves_more)
    saved_ns = pct * wait.step_ns // 100
    wait = replace(wait, finding=finding, alone_ns=saved_ns, alone_low_ns=saved_ns)
    graph = replace(graph, alone_ns=wait.step_ns // 2, alone_low_ns=wait.step_ns // 2)
    plan = _in_order([graph, wait], wait.step_ns)
    assert (plan[0] is wait) == first
