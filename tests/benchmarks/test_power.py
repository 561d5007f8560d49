"""What the page says of the changes that diff can see holds, and its steps are drawn well."""

from random import Random

import pytest

from benchmarks import power
from benchmarks.power import drawn, noise_of, simulated, slower, steps_of
from tests.reports import ROOT

PAGE = (ROOT / "benchmarks" / "power.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    part = PAGE.split(f"### {heading}\n")[1].split("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("heading", ["One capture a side", "Several captures a side"])
def test_at_most_one_in_twenty_equal_pairs_is_an_alarm(heading: str) -> None:
    alarms = [float(row[2].removesuffix(" %")) for row in rows(heading)]
    assert alarms
    assert max(alarms) <= 5


def test_captures_of_one_program_differ_in_at_most_one_split_of_twenty() -> None:
    found = rows("Captures of one program against each other")
    assert sum(int(row[2]) for row in found) >= 0.95 * sum(int(row[1]) for row in found)


def test_steps_are_drawn_with_their_neighbours() -> None:
    run = list(range(100, 140))
    steps = drawn(run, 25, Random(0))
    assert len(steps) == 25
    for start in (0, 10, 20):
        stretch = steps[start : start + 10]
        assert stretch == list(range(stretch[0], stretch[0] + len(stretch)))


def test_noise_is_of_the_medians() -> None:
    assert noise_of([[100, 100, 900], [100, 1, 100]]) == 0


def test_a_slowdown_is_of_each_step() -> None:
    assert slower([[100, 200], [300]], 5) == [[105, 210], [315]]


def test_a_slowdown_beyond_all_noise_is_seen_and_none_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(power, "REPEATS", 50)
    quiet = [10_000, 10_010, 9_990, 10_020, 10_005] * 8
    found = simulated(steps_of([quiet], 40, Random(0)))
    assert found.alarms == found.too_few == 0
    assert found.seen[-1] == 50
