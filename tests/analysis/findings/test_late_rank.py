"""Which function the host of a late rank runs longer, by samples of Python."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.late_rank import longer_function
from tests import tiny
from tests.analysis.findings.subjects import MS, US, launched, loop
from tests.tiny import Row

STEP_MS = 10


def rank(*stacks: tuple[int, tuple[str, ...]]) -> JudgedReport:
    """Steps of 10 ms with a sample in each ms; one kernel at the end of each.

    Args:
        stacks: for how many ms of a step which functions run, the innermost first.
    """

    def body(start: int, i: int) -> Iterator[Row]:
        at_ns = start + MS // 2
        for ms, functions in stacks:
            for _ in range(ms):
                yield tiny.sample(at_ns, *functions)
                at_ns += MS
        yield from launched(start, i + 1, at=9_000, took=20, kernel_ns=500 * US)

    return loop(body, every=1_000 * STEP_MS, steps=6)


WAITS = rank((10, ("main",)))
"""A rank that waits for the others in its loop."""


def test_a_function_that_only_the_late_rank_runs_is_named_with_its_line_and_time() -> None:
    late = rank((6, ("augment", "main")), (4, ("main",)))
    one = longer_function(late, [WAITS, WAITS], 6 * MS)
    assert one is not None
    assert one.code == "augment (train.py:1)"
    assert one.own_ns == pytest.approx(6 * MS, rel=0.02)
    assert one.others_ns == 0


def test_what_all_ranks_run_as_long_is_not_named() -> None:
    both = rank((3, ("read", "main")), (7, ("main",)))
    late = rank((3, ("read", "main")), (4, ("augment", "main")), (3, ("main",)))
    one = longer_function(late, [both, both], 4 * MS)
    assert one is not None
    assert one.code.startswith("augment")


def test_the_function_is_named_in_which_the_time_is_spent() -> None:
    late = rank((6, ("crop", "augment", "main")), (4, ("main",)))
    one = longer_function(late, [WAITS], 6 * MS)
    assert one is not None
    assert one.code.startswith("crop")


def test_a_small_part_of_the_delay_is_not_named() -> None:
    late = rank((1, ("augment", "main")), (9, ("main",)))
    assert longer_function(late, [WAITS], 9 * MS) is None


def test_without_samples_nothing_is_named() -> None:
    late = rank((6, ("augment", "main")), (4, ("main",)))
    assert longer_function(rank(), [WAITS], 6 * MS) is None
    assert longer_function(late, [rank()], 6 * MS) is None
