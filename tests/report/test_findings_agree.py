"""Findings have one saving, one order and one number of steps, wherever they are printed."""

import json
from typing import Any

import pytest

from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.findings.plan import WORTH_PCT
from nsysflow.base.units import between, duration, percent
from nsysflow.report.document import report_json
from nsysflow.report.explain.finding import explain_findings
from nsysflow.report.explain.pages import Facts
from nsysflow.report.findings import Suggestion, suggestions
from nsysflow.report.results import Results
from tests.analyses import reports_of_rules, run_of
from tests.report.html.made import made
from tests.report.html.unpacked import Page


def on_the_page(row: dict[str, Any], shown: Suggestion) -> None:
    """The page has the row's saving; what is left of it is nothing, it has the saving alone."""
    assert (shown.number, shown.title) == (row["finding"], row["title"])
    assert row["change"].startswith(shown.change)
    saving_ns = row["later_ns"] or row["saving_high_ns"]
    if 0 < row["saving_pct"] < WORTH_PCT:
        saving_ns = row["alone_ns"]
    elif row["rule"] == OTHER_LOOP:
        assert shown.saving == f"save up to {percent(row['saving_pct'])} of all time"
        saving_ns = 0
    assert not saving_ns or duration(saving_ns) in shown.saving
    if row["method"] == "replay" and row["saving_low_ns"] < row["saving_high_ns"]:
        assert f"save {between(row['saving_low_ns'], row['saving_high_ns'])} (" in shown.saving
        assert f"{duration(row['saving_low_ns'])} if only the waits go" in row["evidence"]
    if shown.steps:
        assert shown.steps.startswith(f"in {row['steps']:,} of")


def in_full(row: dict[str, Any], facts: list[tuple[str, str]]) -> None:
    """So has `explain`, with the table's evidence."""
    saves = next(text for name, text in facts if name == "saves")
    saving_ns = row["later_ns"] or row["saving_high_ns"]
    assert not saving_ns or duration(saving_ns) in saves
    assert "; ".join(text for name, text in facts if name == "evidence") == row["evidence"]
    for text in (text for name, text in facts if name == "steps"):
        assert f"{row['steps']} " in text


@reports_of_rules
def test_page_table_explanation_and_report_json_agree(name: str) -> None:
    results: Results = run_of(name)
    table = results.table("findings").to_dicts()
    assert json.loads(report_json(results))["findings"] == [
        {column: pytest.approx(value, abs=1e-5) for column, value in row.items()} for row in table
    ]
    shown = suggestions(results, len(table)).rows
    explained = explain_findings(results, 100)
    assert len(shown) == len(explained) == len(table)
    for row, suggestion in zip(table, shown, strict=True):
        on_the_page(row, suggestion)
        explanation = explained[row["finding"]]
        assert explanation.title == row["title"]
        in_full(row, next([*part.rows] for part in explanation.parts if isinstance(part, Facts)))


PAGES = ("h200-ddp-rank0", "h200-gpu-metrics", "h200-hf-trainer", "nan_check-sync")
"""Reports of which other tests have a page, too: to write one takes a second."""


@pytest.mark.parametrize("name", PAGES)
def test_report_html_agrees_with_the_table(name: str) -> None:
    html = Page(made(name).file.read_text("utf-8"))
    table = run_of(name).table("findings").to_dicts()
    figures, cards = html.report["findings"], html.about["page"]["judged"]["findings"]
    assert len(figures) == len(cards) == len(table)
    for row, figure, card in zip(table, figures, cards, strict=True):
        assert figure == {column: pytest.approx(each, abs=1e-5) for column, each in row.items()}
        texts = {key: card[key] for key in ("number", "saving", "title", "steps")}
        on_the_page(row, Suggestion(**texts, change=card["change"][0]))
        in_full(row, next(each["rows"] for each in card["explained"] if each["kind"] == "facts"))
