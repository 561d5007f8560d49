from collections.abc import Sequence

import pytest

from nsysflow.compare.comparison import Comparison, compared
from nsysflow.report.diff import ROWS, blocks, headline, remarks
from tests.compare.handmade import capture, row

STEPS = 40


def steps(ns: int) -> list[int]:
    """Steps that differ by a few ns."""
    return [ns + at * 7 % 3 for at in range(STEPS)]


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
    wild = [100_000 + 60_000 * (at * 7 % 13) // 13 for at in range(STEPS)]
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


FAST = [100_000 + at % 3 for at in range(40)]
SLOW = [each * 5 // 4 for each in FAST]


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


THREE = "compare three a side: nsysflow diff"


@pytest.mark.parametrize(
    ("base", "new", "said", "remark"),
    [
        ([FAST], [SLOW], "These two captures differ: a step takes 25 % longer (+25 %", THREE),
        (runs(FAST), runs(SLOW), "Slower: a step takes 25 % longer", ""),
        (runs(SLOW), runs(FAST), "Faster: a step takes 20 % less time (-20 %", ""),
        ([FAST], [FAST], "No significant change: a step takes as long as before (+0.0 % to +0.0 %)",
         "These steps cannot show a change below 1.0 %"),
        ([FAST[:3]], [SLOW[:3]], "Not enough steps to tell: 3 and 3 steps, 23 a side are"
         " needed. Here a step takes 25 % longer", ""),
        ([FAST, FAST], [SLOW, SLOW],
         "Not enough captures to tell: 2 and 2 captures, 3 a side are needed (1 more of the base,"
         " 1 more of the new side).", ""),
    ],
)  # fmt: skip
def test_the_headline_says_what_these_captures_tell(
    base: list[list[int]], new: list[list[int]], said: str, remark: str
) -> None:
    comparison = found(base, new)
    assert headline(comparison).startswith(said)
    assert remark in "\n".join(remarks(comparison))


def test_means_that_contradict_the_typical_step_are_said() -> None:
    said = list(remarks(found([FAST], [[*(each - 9_000 for each in FAST[:-1]), 9_000_000]])))
    assert any("longer, the typical one shorter: a few long steps" in each for each in said)
