"""Which long steps come back."""

from collections.abc import Sequence
from random import Random

import pytest

from nsysflow.analysis.steps.pauses import Row, recurring, size_classes

STEP_NS = 1_000_000


def rows(steps: Sequence[int], count: int, starts_ns: Sequence[int] | None = None) -> list[Row]:
    """What comes back of pauses in these steps of a run of `count`, two of them start-up."""
    starts = [step * STEP_NS for step in steps] if starts_ns is None else starts_ns
    return recurring(steps, starts, range(2, count), STEP_NS)


def every(distance: int, count: int, *, others: int, jitter: int, seed: int) -> list[int]:
    """The steps of pauses every so many steps, each early or late by the jitter, beside others."""
    random = Random(seed)
    regular = {distance * n + random.randint(-jitter, jitter) for n in range(1, count // distance)}
    free = [step for step in range(2, count) if step not in regular]
    return sorted(regular | set(random.sample(free, others)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("distance", "count", "others", "jitter"),
    [(7, 60, 0, 0), (7, 60, 3, 0), (7, 210, 8, 0), (7, 210, 3, 1), (50, 400, 4, 1), (10, 60, 1, 0)],
)
def test_pauses_at_equal_distances_are_found_beside_random_ones(
    distance: int, count: int, others: int, jitter: int, seed: int
) -> None:
    first, *_ = rows(every(distance, count, others=others, jitter=jitter, seed=seed), count)
    assert abs(first.every - distance) <= 1


def test_pauses_every_thirty_seconds_are_found_although_steps_vary() -> None:
    random, now_s, due_s = Random(0), 0.0, 30.0
    steps, starts_ns = [], []
    for number in range(600):
        length_s = random.gauss(0.5, 0.05)
        if now_s + length_s >= due_s:
            steps.append(number)
            starts_ns.append(round(now_s * 1e9))
            length_s, due_s = length_s + 3, due_s + 30
        now_s += length_s
    (row,) = recurring(steps, starts_ns, range(2, 600), 500_000_000)
    assert len(row.members) == len(steps)


def test_of_a_hundred_runs_of_random_pauses_none_has_any_that_come_back() -> None:
    random = Random(0)
    for _ in range(100):
        count = random.choice((30, 60, 100, 200, 500))
        pauses = random.sample(range(2, count), random.randint(4, count // 8 + 4))
        assert rows(sorted(pauses), count) == []


@pytest.mark.parametrize(
    ("excess", "classes"),
    [
        # a draw every 20 steps and a read-back every 10: seen in an unknown program
        ([80, 70, 4, 69, 3, 71, 4], [[0, 1, 3, 5], [2, 4, 6]]),
        ([80, 70, 18, 69, 18, 71, 18], [[0, 1, 2, 3, 4, 5, 6]]),  # not four times as long
        ([80, 4, 70, 3, 69], [[0, 1, 2, 3, 4]]),  # only three are
        ([400, 80, 70, 69, 3, 71, 4, 3, 2, 0], [[0, 1, 2, 3, 5], [4, 6, 7, 8], [9]]),
        ([80, 70, None, 69, 3, 71], [[0, 1, 2, 3, 4, 5]]),
    ],
)
def test_four_pauses_that_are_far_longer_than_all_others_are_of_another_kind(
    excess: list[int | None], classes: list[list[int]]
) -> None:
    assert size_classes(excess) == classes


def test_three_pauses_have_too_few_distances() -> None:
    assert rows([10, 20, 30], 40) == []


def test_four_pauses_are_enough() -> None:
    assert [row.members for row in rows([50, 100, 150, 200], 230)] == [(0, 1, 2, 3)]


def test_a_pause_is_in_one_row_only_and_the_rest_may_make_another() -> None:
    tens, sevens = [*range(10, 400, 40)], [*range(405, 800, 40)]
    found = rows([*tens, *sevens], 800)
    members = [member for row in found for member in row.members]
    assert sorted(members) == sorted({*members})


def test_pauses_of_a_very_long_run_are_one_row() -> None:
    """Seen in a report of 40,000 steps: how many such rows chance makes was no float."""
    (found,) = rows(range(5, 20_000, 5), 20_000)
    assert (found.every, len(found.members)) == (5, 3_999)
