"""Every figure on the page, also out of sight, is that of report.json, written as in Python."""

from typing import Any, Final

import pytest

from nsysflow.base.units import share
from tests.browser import opened
from tests.report.html.made import figures, made, spoken, text_of, value_at

RUNS: Final = (
    ("nan_check-sync",),
    ("trainstep-torch",),
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
            assert each["text"] == share(value, int(each["of"])), each
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
