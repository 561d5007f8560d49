"""A capture's step is one figure, wherever it is printed (spec §8.23)."""

import json
import re
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.units import duration
from nsysflow.compare.budget_pages import measured_text
from nsysflow.compare.budgets import budget, figures_of, limits_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared, over_time
from nsysflow.compare.document import capture_of
from nsysflow.compare.judging import judge
from nsysflow.report.diff import page, table
from nsysflow.report.document import compared_json, report_json
from nsysflow.report.results import Results
from nsysflow.report.step_times import steps_sentence
from tests.analyses import analysed, few_reports, loaded, run_of

FIGURE = r"[\d.,]+ (?:ns|us|ms|s)\b"


def on_the_page(results: Results) -> str:
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
    said = on_the_page(results)
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
