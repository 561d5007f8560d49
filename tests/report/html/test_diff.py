"""The page of a comparison."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nsysflow.base import units
from nsysflow.cli.main import main
from nsysflow.compare.comparison import Comparison, compared
from nsysflow.report.diff import headline, times
from nsysflow.report.diff_document import diff_json
from nsysflow.report.html.diff import diff_html
from nsysflow.runs.captures import captures_of
from tests.browser import opened
from tests.report.html.made import figures, text_of, value_at
from tests.reports import PACKED


@pytest.fixture(scope="module")
def found() -> Comparison:
    """A wait that was removed."""
    base, new = captures_of([PACKED["nan_check-sync"], PACKED["nan_check-async"]])
    return compared([base], [new])


@pytest.fixture(scope="module")
def file(found: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    made = tmp_path_factory.mktemp("diff") / "diff.html"
    made.write_text(diff_html(found), encoding="utf-8")
    return made


def shown(unit: str, value: Any) -> str:
    """A value as a comparison writes it."""
    if unit == "times":
        return times(value)
    return units.signed(value) if unit == "signed" else text_of(unit, value)


def test_figures_equal_those_of_diff_json(browser: Any, file: Path, found: Comparison) -> None:
    document = json.loads(diff_json(found))
    computed = ("short_name", "kind")  # words of the page, and not of the document
    with opened(browser, file) as page:
        each = list(figures(page))
        for tab in page.query_selector_all("[role=tab]"):
            tab.click()
            each += figures(page)
    each = [one for one in each if not one["key"].endswith(computed)]
    assert len(each) > 200
    for one in each:
        value = value_at(document, one["key"])
        assert one["text"] == one.get("mark", "") + shown(one["unit"], value), one


def test_the_headline_and_the_bridge_are_there(browser: Any, file: Path, found: Comparison) -> None:
    with opened(browser, file) as page:
        said = str(page.text_content(".headline")).replace("\xa0", " ")
        rows = page.locator("#bridge tbody th").all_text_contents()
    assert said == headline(found)
    assert rows[0] == "base"
    assert rows[1] == "idle: waiting in a sync"
    assert rows[-1] == "new"


def test_the_waterfall_ends_at_the_new_side(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        bars = page.locator("#bridge .fall i:not(.whisker)")
        boxes = [bars.nth(at).bounding_box() for at in range(bars.count())]
    base, *changes, new = boxes
    edge = base["x"] + base["width"]
    for change in changes:
        left, right = change["x"], change["x"] + change["width"]
        edge = right if abs(left - edge) < abs(right - edge) else left
    assert edge == pytest.approx(new["x"] + new["width"], abs=2 * len(changes))


def test_the_command_writes_the_page_beside_what_it_prints(tmp_path: Path) -> None:
    target = tmp_path / "diff.html"
    sides = [str(PACKED[name]) for name in ("nan_check-sync", "nan_check-async")]
    ran = CliRunner().invoke(main, ["diff", *sides, "--html", str(target)])
    assert ran.exit_code == 0, ran.output
    assert "Bridge" in ran.output
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_never_replaces_an_input(tmp_path: Path) -> None:
    folder = tmp_path / "before"
    sides = [str(PACKED[name]) for name in ("nan_check-sync", "nan_check-async")]
    CliRunner().invoke(main, ["analyze", sides[0], "-o", str(folder)])
    document = folder / "report.json"
    before = document.read_bytes()
    ran = CliRunner().invoke(main, ["diff", str(folder), sides[1], "--html", str(document)])
    assert ran.exit_code == 1
    assert "nothing was written" in ran.output
    assert document.read_bytes() == before


def test_a_table_over_time_has_no_page(tmp_path: Path) -> None:
    names = ("nan_check-sync", "nan_check-async", "nan_check-sync-metrics")
    sides = [str(PACKED[name]) for name in names]
    ran = CliRunner().invoke(main, ["diff", *sides, "--html", str(tmp_path / "diff.html")])
    assert ran.exit_code == 2
    assert "--html shows two sides" in ran.output
