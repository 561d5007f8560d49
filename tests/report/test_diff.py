from collections.abc import Sequence
from typing import Final

from nsysflow.compare.comparison import Comparison, compared
from nsysflow.report.diff import ROWS, blocks
from tests.compare.handmade import capture, row


def steps(ns: int) -> list[int]:
    """Steps that differ by a few ns."""
    return [ns + at * 7 % 3 for at in range(40)]


def cells(found: Comparison, title: str, *, full: bool = False) -> list[tuple[str, ...]]:
    """The rows of the block of that title; none where there is no such block."""
    return [row for each in blocks(found, full=full) if each.title == title for row in each.rows]


BASE = [row(*steps(100_000)), row(*steps(50_000), part="idle", kind="sync", name="cudaFree")]
NEW = [row(*steps(130_000)), row(*steps(10_000), part="idle", kind="sync", name="cudaFree")]
FOUND = compared([capture(*BASE)], [capture(*NEW)])
"""A GPU that waits less and computes longer."""


def test_small_parts_are_in_the_line_of_the_rest() -> None:
    tiny = row(*steps(30), kind="norm", name="layer_norm")
    found = compared([capture(*BASE)], [capture(*NEW, tiny)])
    assert "1 more" in [each[0] for each in cells(found, "Bridge")]
    assert "compute: norm" in [each[0] for each in cells(found, "Bridge", full=True)]


def test_a_change_within_the_noise_or_of_too_few_steps_is_marked() -> None:
    wild = [100_000 + 60_000 * (at * 7 % 13) // 13 for at in range(40)]
    noisy = compared([capture(row(*wild))], [capture(row(*reversed(wild[1:]), wild[5]))])
    assert cells(noisy, "Bridge")[-1][3].startswith("~ ")
    few = compared([capture(row(100_000))], [capture(row(150_000))])
    assert cells(few, "Bridge")[-1][3] == "? +50.0 us"


def test_waits_say_where_they_are_and_were() -> None:
    wait = {"part": "idle", "kind": "sync", "name": "cudaFree"}
    base, new = (
        capture(row(*steps(ns), **wait, source=f"train.py:{line} in step"))
        for line, ns in ((42, 50_000), (45, 10_000))
    )
    where = "train.py:45 in step (was train.py:42 in step), step/forward"
    shorter = ("-40.0 us", "shorter", "waiting in a sync: cudaFree", where)
    assert cells(compared([base], [new]), "Waits") == [shorter]


def test_a_screen_shows_a_few_rows_and_says_how_many_there_are() -> None:
    names = [f"k{number}" for number in range(ROWS + 3)]
    base, new = (
        capture(*(row(*steps(ns), name=name) for name in names)) for ns in (100_000, 120_000)
    )
    found, title = compared([base], [new]), "Kernels and copies"
    (shown,) = (each for each in blocks(found, full=False) if each.title == title)
    assert (len(shown.rows), shown.rest) == (ROWS, "3 more: --full")
    assert len(cells(found, title, full=True)) == ROWS + 3


FAST, SLOW = steps(100_000), steps(125_000)


def found(base: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> Comparison:
    """Sides of such steps, a capture each."""
    first, second = (
        [capture(row(*ns), name=f"{name}{at}") for at, ns in enumerate(side)]
        for name, side in (("a", base), ("b", new))
    )
    return compared(first, second)


def runs(steps: Sequence[int]) -> list[list[int]]:
    """Three captures that differ by a thousandth."""
    return [[each + 100 * run for each in steps] for run in range(3)]


TOLD: Final = {
    "two captures": found([FAST], [SLOW]),
    "slower": found(runs(FAST), runs(SLOW)),
    "faster": found(runs(SLOW), runs(FAST)),
    "the same": found([FAST], [FAST]),
    "too few steps": found([FAST[:3]], [SLOW[:3]]),
    "too few captures": found([FAST, FAST], [SLOW, SLOW]),
    "means that contradict the typical step": found(
        [FAST], [[*(each - 9_000 for each in FAST[:-1]), 9_000_000]]
    ),
}
"""The words for each are in pages/diff.txt."""
