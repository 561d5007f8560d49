"""Every figure on the page is that of report.json, as nsysflow/base/units.py writes it."""

from typing import Any

import pytest

from nsysflow.base.units import share
from tests.browser import opened
from tests.report.html.made import figures, made, text_of, value_at

RUNS = [
    ("nan_check-sync",),
    ("trainstep-torch",),
    ("ddp-bucketed-rank0", "ddp-bucketed-rank1"),
    ("h200-hf-trainer",),
]


@pytest.mark.parametrize("names", RUNS, ids="+".join)
def test_figures_equal_report_json(browser: Any, names: tuple[str, ...]) -> None:
    run = made(*names)
    with opened(browser, run.file) as page:
        found = list(figures(page))
        for tab in page.query_selector_all("[role=tab]"):
            tab.click()
            found += figures(page)
    assert len(found) > 100
    for each in found:
        value = value_at(run.document, each["key"])
        if each["key"].startswith("/") and "of" in each:
            assert each["text"] == share(value, int(each["of"]))
        else:
            mean = value if "per" not in each else round(value / int(each["per"]))
            assert each["text"] == text_of(each["unit"], mean), each


def test_divisors_and_wholes_are_figures_too(browser: Any) -> None:
    run = made("nan_check-sync")
    device = run.document["judged"]["devices"][0]
    with opened(browser, run.file) as page:
        parts = [each for each in figures(page) if each["key"].startswith("/judged/devices/0/")]
    assert {each["per"] for each in parts if "per" in each} == {str(device["steps"])}
    assert {each["of"] for each in parts if "of" in each} == {str(device["window_ns"])}


def test_the_verdict_is_that_of_report_json(browser: Any) -> None:
    run = made("trainstep-torch")
    with opened(browser, run.file) as page:
        lines = page.query_selector_all("#verdict .headline, #verdict .remarks li")
        said = ". ".join(each.text_content().replace("\xa0", " ") for each in lines)
    assert said.startswith(run.document["verdict"]["text"])
