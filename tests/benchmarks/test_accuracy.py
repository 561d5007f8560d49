"""docs/accuracy.md is what the replay gives today, and its predictions hold."""

import runpy
from collections.abc import Callable, Iterator

import pytest

from tests.reports import ROOT

pytestmark = pytest.mark.xdist_group("simulated")

PAGE = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_replay_gives() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "accuracy.py"))
    page: Callable[[], Iterator[str]] = script["page"]
    assert "\n".join(page()) + "\n" == PAGE, "run `python -m benchmarks.accuracy`"


def verdicts(heading: str) -> list[str]:
    """The column `good` of the pairs under a heading."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [line.split("|")[8].strip() for line in lines]


def test_every_prediction_that_should_hold_does() -> None:
    found = verdicts("Programs that were changed and recorded again")
    assert found.count("yes") == 8
    assert {*found} == {"yes", ""}


def test_every_first_finding_whose_remedy_does_no_more_saves_what_it_says() -> None:
    found = verdicts("The first finding")
    assert found.count("yes") == 10
    assert {*found} == {"yes", ""}
