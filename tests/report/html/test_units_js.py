"""units.js writes numbers as nsysflow/base/units.py does."""

import json
import random
from importlib.resources import files
from typing import Any, Final

import pytest

from nsysflow.base import units
from tests.report.html.made import text_of

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


def in_browser(browser: Any, expression: str, values: list[Any]) -> list[Any]:
    """The expression of each value `v`."""
    page = browser.new_page()
    made: list[Any] = page.evaluate(
        f"(() => {{{SCRIPT}; return {json.dumps(values)}.map((v) => {expression});}})()"
    )
    page.close()
    return made


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        *((unit, WHOLE) for unit in ("duration", "signed", "instant")),
        *((unit, [abs(each) for each in WHOLE]) for unit in ("size", "count", "flops")),
        *((unit, [*SHARES, *(-each for each in SHARES if each)]) for unit in ("percent", "number")),
        ("number", [float(each) for each in WHOLE]),
        ("", [None, True, False, 12, "name"]),
    ],
)
def test_units_js_writes_what_units_py_writes(
    browser: Any,
    unit: str,
    values: list[Any],
) -> None:
    shown = in_browser(browser, f"shownAs({json.dumps(unit)}, v)", values)
    assert shown == [text_of(unit, each) for each in values]


def test_shares_are_written_the_same(browser: Any) -> None:
    pairs = [[DRAWN.randrange(1000), DRAWN.randrange(1000)] for _ in range(500)]
    shown = in_browser(browser, "shareOf(v[0], v[1])", pairs)
    assert shown == [units.share(*pair) for pair in pairs]


def test_halves_are_rounded_to_even_as_python_does(browser: Any) -> None:
    halves = [step / 2 for step in range(-9, 10)]
    assert in_browser(browser, "rounded(v)", halves) == [round(each) for each in halves]
