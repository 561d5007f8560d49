"""Every figure on the page, also out of sight, is that of report.json, written as in Python."""

import json
import random
from importlib.resources import files
from typing import Any, Final

import pytest

from nsysflow.base import units
from nsysflow.report.findings import saving_of
from tests.analyses import analysed
from tests.browser import opened
from tests.report.html.made import figures, made, spoken, text_of, value_at

RUNS: Final = (
    ("nan_check-sync",),
    ("h200-hf-trainer",),
    ("synthetic-1",),
    ("ddp-bucketed-rank0", "ddp-bucketed-rank1"),
)
TABLES: Final = ("kernels", "syncs", "phases", "findings", "waited", "launches", "gap_summary")

LONGEST: Final = 500
"""Longer texts are cut in a cell."""


@pytest.mark.parametrize("names", RUNS, ids="+".join)
def test_every_figure_is_that_of_report_json(browser: Any, names: tuple[str, ...]) -> None:
    run = made(*names)
    with opened(browser, run.file) as page:
        found = figures(page)
        lines = page.locator("#verdict .headline, #verdict .remarks li").all_text_contents()
    assert spoken(". ".join(lines)).startswith(run.document["verdict"]["text"])
    for each in found:
        value = value_at(run.document, each["key"])
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert float(each["value"]) == value, each
        if "of" in each:
            assert each["text"] == units.share(value, int(each["of"])), each
        else:
            mean = round(value / int(each["per"])) if "per" in each else value
            assert each["text"][:LONGEST] == text_of(each["unit"], mean)[:LONGEST], each
    rows = {"/".join(each["key"].split("/")[1:-1]) for each in found}
    for table in TABLES:
        assert {f"{table}/{row}" for row in range(len(run.document[table]))} <= rows, table
    device = run.document["judged"]["devices"][0]
    parts = [each for each in found if each["key"].startswith("/judged/devices/0/")]
    assert {each.get("per", "1") for each in parts if "of" not in each} == {str(device["steps"])}
    assert {each["of"] for each in parts if "of" in each} == {str(device["window_ns"])}


def test_savings_are_said_as_in_the_terminal(browser: Any) -> None:
    valued = analysed("launch_bound-eager").found.valued
    with opened(browser, made("launch_bound-eager").file) as page:
        said = page.locator("#findings .saving > span:last-child").all_text_contents()
    assert said == [saving_of(one) for one in valued]
    assert said[0].startswith("save about ")


SCRIPT: Final = files("nsysflow.report.html").joinpath("units.js").read_text(encoding="utf-8")
DRAWN: Final = random.Random(17)
EDGES: Final = (0, 1, 4, 5, 9, 10, 99, 100, 994, 995, 999, 1000, 9994, 9995, 99949, 99950, 999499)
WHOLE: Final = [
    *(sign * edge * 10**power for edge in EDGES for power in range(0, 13, 3) for sign in (1, -1)),
    *(round(10 ** DRAWN.uniform(0, 15)) for _ in range(2000)),
]
SHARES: Final = [
    *(0.0, 0.04, 0.05, 0.049999, 0.25, 0.35, 0.5, 1.25, 2.5, 3.5, 9.94, 9.95, 99.49, 99.5, 100.0),
    *(DRAWN.uniform(0, 100) for _ in range(2000)),
    *(step / 8 for step in range(900)),
]
SIGNED: Final = [*SHARES, *(-each for each in SHARES if each)]


def in_browser(browser: Any, expression: str, values: list[Any]) -> list[Any]:
    """The expression of each value `v`."""
    with browser.page() as page:
        shown: list[Any] = page.evaluate(
            f"(() => {{{SCRIPT}; return {json.dumps(values)}.map((v) => {expression});}})()"
        )
    return shown


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        *((unit, WHOLE) for unit in ("duration", "signed", "instant")),
        *((unit, [abs(each) for each in WHOLE]) for unit in ("size", "count", "flops")),
        *((unit, SIGNED) for unit in ("percent", "number")),
        ("number", [float(each) for each in WHOLE]),
        ("", [None, True, False, 12, "name"]),
    ],
)
def test_units_js_writes_what_units_py_writes(browser: Any, unit: str, values: list[Any]) -> None:
    shown = in_browser(browser, f"shownAs({json.dumps(unit)}, v)", values)
    assert shown == [text_of(unit, each) for each in values]


def test_shares_are_written_the_same_and_halves_rounded_to_even(browser: Any) -> None:
    pairs = [[DRAWN.randrange(1000), DRAWN.randrange(1000)] for _ in range(500)]
    shown = in_browser(browser, "shareOf(v[0], v[1])", pairs)
    assert shown == [units.share(*pair) for pair in pairs]
    halves = [step / 2 for step in range(-9, 10)]
    assert in_browser(browser, "rounded(v)", halves) == [round(each) for each in halves]
