"""A few of the kills of `make kills`."""

import random
from pathlib import Path

import pytest

from tests.kills import TASKS, Place


@pytest.mark.long
@pytest.mark.parametrize("task", ["cache", "pack"])
def test_a_kill_loses_nothing_and_the_next_run_is_right(task: str, tmp_path: Path) -> None:
    place = Place(tmp_path, TASKS[task])
    draw = random.Random(18)
    for _ in range(3):
        place.kill(draw)
    place.go_on()
