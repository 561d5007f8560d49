"""Idle time made on purpose: how it is told from the report, and that nsysflow names it so."""

import lzma
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

from benchmarks.constructed.__main__ import CALLS, Element, Score, Span, score

REPORT: Final = Path(__file__).with_name("constructed.sqlite.xz")
"""42 elements of `program.py --seed 100 --elements 42` on an H100 (nsys 2025.3, 2026-11-28),
packed."""


def made(element: Element, *gaps: Span) -> dict[str, int]:
    return {one.what: one.idle_ns for one in element.made(gaps)}


def waits(kind: str, *, call: Span, python: Span) -> Element:
    """An element that calls, and then computes."""
    return Element(kind=kind, ranges={"call": call, "python": python}, calls=[call])


def test_a_wait_costs_as_long_as_it_took_where_python_is_longer_than_the_kernel() -> None:
    element = waits("sync", call=Span(0, 100), python=Span(100, 400))
    assert made(element, Span(90, 400)) == {"sync": 100, "python": 210, "around": 0}


def test_a_wait_costs_all_of_the_idle_time_where_python_would_fit_beside_the_kernel() -> None:
    element = waits("early_sync", call=Span(0, 500), python=Span(500, 700))
    assert made(element, Span(490, 700)) == {"early_sync": 210, "python": 0, "around": 0}


def test_what_does_not_wait_for_the_gpu_costs_the_idle_time_inside_it() -> None:
    element = waits("load", call=Span(0, 500), python=Span(500, 700))
    assert made(element, Span(100, 700)) == {"load": 400, "python": 200, "around": 0}


def test_what_lies_between_a_call_and_python_is_around_it() -> None:
    element = Element(
        kind="instantiate",
        ranges={"call": Span(0, 500), "python": Span(500, 700)},
        calls=[Span(50, 450)],
    )
    assert made(element, Span(0, 700)) == {"instantiate": 400, "python": 200, "around": 100}


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Score]:
    path = tmp_path_factory.mktemp("constructed") / "report.sqlite"
    path.write_bytes(lzma.decompress(REPORT.read_bytes()))
    found: defaultdict[str, Score] = defaultdict(Score)
    score(path, found, Counter())
    return found


def test_every_way_to_make_the_gpu_wait_is_in_the_report(scores: dict[str, Score]) -> None:
    assert {*CALLS, "python", "around", "loop", "held"} == {*scores}
    assert all(one.made_ns > 0 for one in scores.values())


def test_idle_time_has_the_cause_that_it_was_made_with(scores: dict[str, Score]) -> None:
    for what, one in scores.items():
        assert one.named_ns >= 0.97 * one.made_ns, what
        assert one.placed_ns >= 0.97 * one.made_ns, what
