"""The field that chooses which loop the page is of."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsysflow.report.document import report_json
from nsysflow.report.html.page import MOST_LOOPS
from nsysflow.report.ledger import other_loops
from nsysflow.report.page import opening
from tests.analyses import analysed, run_of
from tests.analysis.selection.test_view import many_loops
from tests.browser import opened
from tests.cli.running import run
from tests.report.html.made import made, page_of, run_of_these
from tests.reports import ROOT
from tests.tiny import analysis_of

NAME = "h200-train"
OTHER = "step_async"


def test_the_longest_loops_can_be_chosen_and_the_others_keep_their_line(tmp_path: Path) -> None:
    run = run_of_these(analysis_of(*many_loops()))
    page = page_of(run, tmp_path)
    rows = [row for row in run.table("run").to_dicts() if row["part"] == "loop"]
    rows.sort(key=lambda row: -row["time_ns"])
    loops = page.about["page"]["loops"]
    assert len(loops) == MOST_LOOPS < len(rows)
    assert page.about["page"]["loop"] == f"{run.step_name}, 4 steps"
    assert [each["label"] for each in loops] == [f"{row['phase']}, 4 steps" for row in rows[:3]]
    assert {*opening(run, "full").loops} <= {*page.about["page"]["judged"]["sentences"]}


def test_a_loop_has_the_figures_of_a_report_of_its_own(tmp_path: Path) -> None:
    page = page_of(run_of(NAME), tmp_path)
    (loop,) = page.about["page"]["loops"]
    held = json.loads(page.inflated(loop["blob"]))
    alone = json.loads(report_json(run_of(NAME).of_loop(OTHER)))
    assert held["report"] == {name: alone[name] for name in held["report"]}
    assert {"verdict", "time", "judged", "findings", "steps"} <= {*held["report"]}
    assert held["judged"]["steps"].startswith(f"{OTHER} ")
    assert any(f"--step {OTHER}" in each for each in page.about["page"]["judged"]["sentences"])
    assert len(page.scripts[loop["blob"]]) < len(page.text) / 50


def test_a_report_of_one_loop_has_no_field(tmp_path: Path) -> None:
    about = page_of(run_of("nan_check-sync"), tmp_path).about["page"]
    assert (about["loop"], about["loops"]) == ("", [])


def test_the_command_of_another_loop_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said = other_loops(run_of(NAME))
    for line in said:
        loop = line.removeprefix("also: ").partition(",")[0]
        words = shlex.split(line.rpartition(": nsysflow ")[2])
        assert len(run(*words, "--table", "steps", "--format", "csv").stdout.splitlines()) > 1
        assert f" --step {loop}" in line
    assert said


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened(browser, made(NAME).file) as each:
        yield each


def words(page: Any) -> dict[str, str]:
    """What each part says that is of the steps of a loop."""
    parts = ("verdict", "findings", "gpus", "phases", "steps")
    return {part: page.locator(f"#{part}").inner_text() for part in parts}


def test_another_loop_is_chosen_by_keyboard_and_the_first_one_comes_back(page: Any) -> None:
    first = words(page)
    field = page.get_by_label("Loop", exact=True)
    assert field.locator("option").count() == 2
    field.focus()
    page.keyboard.press("ArrowDown")
    page.locator("#steps", has_text=OTHER).wait_for()
    other = words(page)
    assert all(other[part] != first[part] for part in first)
    steps = analysed(NAME).of_loop(OTHER)
    assert f"{OTHER} " in other["verdict"]
    assert other["findings"].count("In full") == len(steps.found.valued)
    assert page.evaluate("document.activeElement.id") == field.get_attribute("id")
    page.keyboard.press("ArrowUp")
    page.locator(f"#steps:not(:has-text('{OTHER}'))").wait_for()
    assert words(page) == first


def test_where_there_is_one_loop_no_field_is_shown(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as each:
        assert each.locator("#loop").is_hidden()
        assert each.locator("select").count() == 0
