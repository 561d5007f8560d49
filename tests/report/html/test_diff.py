import json
from pathlib import Path
from typing import Any

import pytest

from nsysflow.base import units
from nsysflow.report.diff import headline, times
from nsysflow.report.diff_document import diff_json
from tests.browser import opened
from tests.cli.running import refused, run
from tests.report.html.made import (
    comparison,
    figures,
    page_of_comparison,
    spoken,
    text_of,
    value_at,
)
from tests.reports import PACKED


def shown(unit: str, value: Any) -> str:
    """A value as a comparison writes it."""
    if unit == "times":
        return times(value)
    return units.signed(value) if unit == "signed" else text_of(unit, value)


def test_figures_equal_those_of_diff_json(browser: Any) -> None:
    document = json.loads(diff_json(comparison()))
    computed = ("short_name", "kind")  # words of the page, and not of the document
    with opened(browser, page_of_comparison()) as page:
        found = [each for each in figures(page) if not each["key"].endswith(computed)]
    assert len(found) > 200
    for each in found:
        value = value_at(document, each["key"])
        assert each["text"] == each.get("mark", "") + shown(each["unit"], value), each


def test_the_headline_and_the_waterfall_are_there(browser: Any) -> None:
    with opened(browser, page_of_comparison()) as page:
        said = page.text_content(".headline")
        rows = page.locator("#bridge tbody th").all_text_contents()
        bars = page.locator("#bridge .fall i:not(.whisker)")
        boxes = [bars.nth(at).bounding_box() for at in range(bars.count())]
    assert spoken(said) == headline(comparison())
    assert (rows[0], rows[1], rows[-1]) == ("base", "idle: waiting in a sync", "new")
    base, *changes, new = boxes
    edge = base["x"] + base["width"]
    for change in changes:
        left, right = change["x"], change["x"] + change["width"]
        edge = right if abs(left - edge) < abs(right - edge) else left
    assert edge == pytest.approx(new["x"] + new["width"], abs=2 * len(changes))


pytestmark = pytest.mark.usefixtures("shared")

SYNC, ASYNC, METRICS = (PACKED[f"nan_check-{name}"] for name in ("sync", "async", "sync-metrics"))


def test_the_command_writes_the_page_beside_what_it_prints(tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    assert "Bridge" in run("diff", SYNC, ASYNC, "--html", page).stdout
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_the_page_never_replaces_an_input(tmp_path: Path) -> None:
    run("analyze", SYNC, "-o", tmp_path / "before")
    document = tmp_path / "before" / "report.json"
    before = document.read_bytes()
    said = refused("diff", document.parent, ASYNC, "--html", document, code=1)
    assert "nothing was written" in said
    assert document.read_bytes() == before


def test_a_table_over_time_has_no_page() -> None:
    assert "--html shows two sides" in refused("diff", SYNC, ASYNC, METRICS, "--html", "diff.html")
