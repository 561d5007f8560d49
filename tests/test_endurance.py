"""A few of the analyses of `make endure`, what counts as growth, and many commands on one cache."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.runs.cache import VARIABLE
from tests.disks import names
from tests.endurance import WAYS, Point, growth
from tests.kills import PROGRAM
from tests.reports import PACKED, ROOT

FLAT: Final = [
    Point(analyses=100 * n, own=300_000_000, objects=130_000, files=14, threads=12)
    for n in range(1, 21)
]
ROUNDS: Final = 8


@pytest.mark.parametrize(
    ("grown", "said"),
    [
        ({}, ""),
        ({"own": 8_000}, "memory rises by 7.2 MB in 900 analyses"),
        ({"own": 4_000}, ""),
        ({"objects": 2}, "each analysis leaves 2.0 objects"),
        ({"files": 1}, "files stay open"),
        ({"threads": 1}, "threads stay"),
    ],
)
def test_growth_is_what_each_analysis_of_the_second_half_leaves(
    grown: dict[str, int], said: str
) -> None:
    """`grown` is what each analysis leaves."""
    points = [
        replace(point, **{name: getattr(point, name) + each * point.analyses})
        for point in FLAT
        for name, each in (grown or {"own": 0}).items()
    ]
    assert "".join(growth(points)) == said


def test_memory_that_goes_up_and_down_is_no_growth() -> None:
    uneven = (0, 60, 20, 80, 40, 10, 70, 30, 50, 90)
    points = [
        replace(point, own=point.own + 1_000_000 * uneven[at % 10]) for at, point in enumerate(FLAT)
    ]
    assert growth(points) == []


def test_what_the_first_half_leaves_is_no_growth() -> None:
    warm = [replace(point, own=point.own // 2, objects=9, files=3, threads=1) for point in FLAT]
    assert growth(warm[:10] + FLAT[10:]) == ["files stay open", "threads stay"]
    assert growth(warm[:9] + FLAT[9:]) == []


@pytest.mark.long
def test_a_process_that_analyses_again_and_again_does_not_grow() -> None:
    words = ["--reports", "1", "--analyses", str(ROUNDS * len(WAYS))]
    argv = [sys.executable, "-m", "tests.endurance", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "nothing grows"
    assert done.returncode == 0


AT_ONCE: Final = 16
WITHOUT_LOCKS: Final = """
import errno, fcntl
def flock(*_):
    raise OSError(errno.ENOLCK, "no locks")
fcntl.flock = flock
"""


@pytest.mark.long
@pytest.mark.parametrize("disk", ["", WITHOUT_LOCKS], ids=["locks", "no locks"])
def test_many_commands_at_once_on_one_cache_print_one_page(disk: str, tmp_path: Path) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    folders = {VARIABLE: str(cache), "TMPDIR": str(temporary), "POLARS_MAX_THREADS": "1"}
    report = str(PACKED["nan_check-sync"])
    argv = [sys.executable, "-c", disk + PROGRAM, "analyze", report, "--no-files"]

    def started() -> subprocess.Popen[str]:
        both, environment = subprocess.PIPE, os.environ | folders
        return subprocess.Popen(
            argv, env=environment, cwd=ROOT, text=True, stdout=both, stderr=subprocess.STDOUT
        )

    running = [started() for _ in range(AT_ONCE)]
    pages = {one.communicate()[0] for one in running}
    assert {one.returncode for one in running} == {0}
    assert pages == {started().communicate()[0]}  # which is kept now
    (kept,) = names(cache)
    assert kept.endswith(".kept")
    assert names(temporary) == []
