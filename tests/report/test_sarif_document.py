"""SARIF of real reports: GitHub takes it, and it says what findings.csv says."""

from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.report.results import Results
from nsysflow.report.sarif import sarif_json
from tests.analyses import few_reports, run_of
from tests.report.handmade import Handmade, valued, with_findings
from tests.report.sarif import Run, read


def nowhere(_name: str) -> None:
    """No file is in the working tree."""


def sarif(results: Results) -> Run:
    return read(sarif_json(results, nowhere))


@few_reports
def test_a_real_report_gives_a_document_that_github_takes(name: str) -> None:
    results = run_of(name)
    run = sarif(results)
    rows = results.table("findings").to_dicts()
    assert [each.rule_id for each in run.results] == [row["rule"] for row in rows]
    for each, row in zip(run.results, rows, strict=True):
        for number in ("finding", "saving_low_ns", "saving_high_ns", "method", "steps"):
            assert each.properties[number] == row[number]
        assert row["title"] in each.message.text
    assert len({each.partial_fingerprints.primary_location_line_hash for each in run.results}) == (
        len(rows)
    )


def test_every_rule_is_there_whatever_was_found() -> None:
    rules = sarif(with_findings()).tool.driver.rules
    assert [each.id for each in rules] == [*explanations()]
    for each in rules:
        assert f"nsysflow explain {each.id}" in each.help.text
        assert each.short_description.text.endswith(".")


def test_a_rule_shows_its_example_before_and_after() -> None:
    one = explanations()["sync-in-loop"]
    (rule,) = (
        each for each in sarif(with_findings()).tool.driver.rules if each.id == "sync-in-loop"
    )
    for code in (one.before, one.after):
        assert f"```python\n{code.strip()}\n```" in rule.help.markdown


def test_a_recording_that_cannot_be_judged_says_so() -> None:
    note = Note(NoteKind.LEFT_OUT, "rank1 is left out: it has no step")
    failed = FailedCheck(check=Check.NO_KERNELS, count=10, of=0)
    run = sarif(Results([Handmade(tables={}, notes=(note,), failed_checks=(failed,))]))
    (invocation,) = run.invocations
    assert {each.level for each in invocation.tool_execution_notifications} == {"warning", "note"}


def test_no_folder_of_the_machine_is_in_the_document() -> None:
    text = sarif_json(with_findings(valued()), nowhere)
    assert '"file:' not in text
