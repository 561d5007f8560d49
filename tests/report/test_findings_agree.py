"""Findings and steps have one figure, wherever they are printed (spec §8.23)."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.findings.plan import WORTH_PCT
from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.units import between, duration, percent
from nsysflow.compare.budget_pages import measured_text
from nsysflow.compare.budgets import budget, figures_of, limits_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared, over_time
from nsysflow.compare.document import capture_of
from nsysflow.compare.judging import judge
from nsysflow.report.diff import page, table
from nsysflow.report.document import compared_json, report_json
from nsysflow.report.explain.finding import explain_findings
from nsysflow.report.explain.pages import Facts
from nsysflow.report.findings import Suggestion, suggestions
from nsysflow.report.results import Results
from nsysflow.report.step_times import steps_sentence
from tests.analyses import analysed, few_reports, loaded, reports_of_rules, run_of
from tests.report.html.made import Page, made


def on_the_page(row: dict[str, Any], shown: Suggestion) -> None:
    """The page has the row's saving; what is left of it is nothing, it has the saving alone."""
    assert (shown.number, shown.title) == (row["finding"], row["title"])
    assert row["change"].startswith(re.sub(r"^as for \d+: ", "", shown.change))
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


FIGURE = r"[\d.,]+ (?:ns|us|ms|s)\b"


def in_a_sentence(results: Results) -> str:
    """As `analyze` prints it: `step 4.00 ms, mean of 3 of 5`."""
    (found,) = re.findall(rf"^\S+(?: \S+)*? ({FIGURE})", steps_sentence(results))
    return str(found)


def of_a_comparison(capture: Capture) -> set[str]:
    """As `diff X X` prints it: the last line of the bridge has both sides."""
    lines = [line.plain for line in page(compared([capture], [capture]), width=120, full=False)]
    (last,) = [line for line in lines if line.startswith("  step ")]
    return {*re.findall(FIGURE, last)}


def over_captures(capture: Capture) -> list[str]:
    """As `diff X X X` prints it, in the column called `step`."""
    block = table(over_time([capture] * 3))
    at = [column.head for column in block.columns].index("step")
    return [str(row[at]) for row in block.rows]


def of_a_check(capture: Capture) -> str:
    """As `check --max 'step_ms<=1'` prints it."""
    limits = limits_of([budget("step_ms<=1")], figures_of([capture]))
    (found,) = judge(limits, [], [capture], None)
    return measured_text(found, 1)


def assert_one_figure(results: Results) -> None:
    said = in_a_sentence(results)
    document = report_json(results)
    time = json.loads(document)["time"]
    if results.judged.of_steps:
        assert duration(time["step_ns"]) == said
    else:
        assert time is None
    for text in (document, compared_json(results)):
        capture = capture_of(text.encode(), "run", "report.json")
        assert of_a_comparison(capture) == {said}
        assert over_captures(capture) == [said] * 3
        assert of_a_check(capture) == said
        before = replace(capture, said_step_ns=None)  # as schema 4 has none
        assert before.step_ns == capture.step_ns


@few_reports
def test_analyze_diff_and_check_print_one_step_of_a_report(name: str) -> None:
    assert_one_figure(run_of(name))


@pytest.mark.parametrize(
    "options",
    [
        Options(steps=(StepPart(0, 3),)),  # with start-up, as it was asked for
        Options(range="forward"),  # no step lies in it, and the window itself is judged
    ],
)
def test_a_narrowed_report_has_one_step_too(options: Options) -> None:
    assert_one_figure(Results([nsysflow.analyze(loaded("nan_check-sync"), options)]))


def test_ranks_have_the_step_of_the_slowest() -> None:
    assert_one_figure(Results([analysed(f"ddp-bucketed-rank{rank}") for rank in (0, 1)]))
