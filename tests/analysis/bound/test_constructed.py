"""A real report in which each phase has one bottleneck by construction (h200-bottlenecks.py)."""

from typing import Final

import nsysflow
from tests.analyses import analysed

REPORT: Final = "h200-bottlenecks"

BOUNDS: Final = {
    "step/compute": "compute",
    "step/launch": "launch",
    "step/python": "host",
    "step/pageable": "copies",
    "step/pinned_blocking": "copies",
    "step/alloc": "alloc",
    "step/two_streams": "copies",
    "step/fp32": "compute",
    "step/unaligned": "compute",
    "step/attention": "compute",
    "step/elementwise": "compute",
}

FOUND: Final = {
    ("pageable-copy", "step/pageable"),
    ("unaligned-matmul", "step/unaligned"),
    ("allocator-churn", "step/alloc"),
    ("host-code", "step/python"),
    ("fp32-matmul", "step/fp32"),
}


def analysis() -> nsysflow.Analysis:
    """Of the whole report; its five steps are all judged."""
    return analysed(REPORT)


def test_each_phase_is_bound_by_what_was_built_into_it() -> None:
    found = dict(analysis().judged.phases.select("path", "bound").rows())
    assert {path: found[path] for path in BOUNDS} == BOUNDS


def test_each_bottleneck_is_found_in_its_phase() -> None:
    assert {*analysis().findings.select("rule", "phase").rows()} >= FOUND


def test_the_copy_from_pageable_memory_comes_first_as_it_takes_half_of_the_step() -> None:
    assert analysis().findings["rule"][0] == "pageable-copy"
