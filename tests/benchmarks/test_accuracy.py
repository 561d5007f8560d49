"""docs/accuracy.md is what the replay gives today, and its predictions hold."""

import runpy
from collections.abc import Callable, Iterator

from tests.reports import ROOT

PAGE = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_replay_gives() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "accuracy.py"))
    page: Callable[[], Iterator[str]] = script["page"]
    assert "\n".join(page()) + "\n" == PAGE, "run `python -m benchmarks.accuracy`"


def test_every_prediction_that_should_hold_does() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    verdicts = [row[-1].rstrip(" |") for row in rows]
    assert verdicts.count("yes") == 8
    assert {*verdicts} == {"yes", ""}
