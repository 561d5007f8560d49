"""Where a result is, how much it counts, and by what it is known again."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis import schema
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.report.results import Origin
from nsysflow.report.sarif import Find, sarif_json
from tests.analyses import few_reports, run_of
from tests.report.handmade import (
    STEP_NS,
    Handmade,
    Results,
    found_of,
    stepped,
    valued,
    with_findings,
)
from tests.report.sarif import Location, Result, Run, read

LINE = "train.py:42 in check"


def results_of(
    *some: Valued, files: Iterable[str] = (), path: str = "run.sqlite", find: Find = lambda _: None
) -> list[Result]:
    """The results of findings, in a report whose stacks are of these files."""
    report = stepped(found_of(*some))
    rows = [(number, 0, file, 1, "f") for number, file in enumerate(files)]
    frames = pl.DataFrame(rows, schema=schema.FRAMES, orient="row")
    report = replace(report, trace=replace(report.trace, frames=frames))
    origin = Origin(paths={"run.sqlite": Path(path)}, typed=(Path(path),))
    return read(sarif_json(Results([report], origin=origin), find)).results


def place_of(one: Valued, **where: Any) -> Location:
    (result,) = results_of(one, **where)
    (location,) = result.locations
    return location


def uri_of(one: Valued, **where: Any) -> str:
    return place_of(one, **where).physical_location.artifact_location.uri


@pytest.mark.parametrize(
    ("pct", "level"), [(4.9, "note"), (5.0, "warning"), (90.0, "warning"), (0.0, "note")]
)
def test_a_saving_of_5_pct_of_a_step_is_a_warning(pct: float, level: str) -> None:
    (result,) = results_of(valued(round(STEP_NS * pct / 100)))
    assert result.level == level
    assert result.rank == pytest.approx(pct)


def test_the_message_has_what_happens_what_it_costs_and_the_first_change() -> None:
    (result,) = results_of(valued(5_000_000))
    assert result.message.text == (
        "sync in the loop; save 5.00 ms (10 %) a step. Try first: remove the wait."
    )


def test_a_saving_that_is_not_estimated_says_so() -> None:
    (result,) = results_of(valued(0, changes=None, at_most_ns=0))
    assert "; saving not estimated. " in result.message.text


def test_a_line_of_the_program_is_found_by_its_whole_path() -> None:
    there = {"/home/me/job/train.py": "job/train.py"}.get
    place = place_of(valued(source=LINE), files=["/home/me/job/train.py"], find=there)
    artifact = place.physical_location.artifact_location
    assert (artifact.uri, artifact.uri_base_id) == ("job/train.py", "%SRCROOT%")
    assert place.physical_location.region.start_line == 42
    assert place.logical_locations is not None
    assert place.logical_locations[0].name == "check"


def test_a_line_recorded_in_another_folder_is_found_by_its_name() -> None:
    there = {"train.py": "src/train.py"}.get
    assert uri_of(valued(source=LINE), files=["/app/train.py"], find=there) == "src/train.py"


def test_a_file_that_is_not_here_keeps_the_name_that_the_report_gives_it() -> None:
    artifact = place_of(valued(source="my job/train.py:7")).physical_location.artifact_location
    assert (artifact.uri, artifact.uri_base_id) == ("my%20job/train.py", None)


@pytest.mark.parametrize("source", ["", "<stdin>:3 in step"])
def test_a_finding_without_a_file_is_at_the_report(source: str) -> None:
    one = valued(source=source)
    assert uri_of(one, path="runs/rank0.sqlite") == "rank0.sqlite"
    inside = str(Path("runs/rank0.sqlite").absolute())
    there = {inside: "runs/rank0.sqlite"}.get
    assert uri_of(one, path="runs/rank0.sqlite", find=there) == "runs/rank0.sqlite"


def test_the_line_of_a_framework_is_related_and_not_the_place() -> None:
    (result,) = results_of(valued(via="transformers/trainer.py:2541 in _inner"))
    (related,) = result.related_locations
    assert related.physical_location.artifact_location.uri == "transformers/trainer.py"
    assert related.physical_location.region.start_line == 2541


def fingerprints(*some: Valued) -> list[str]:
    return [each.partial_fingerprints.primary_location_line_hash for each in results_of(*some)]


def test_a_finding_is_known_again_after_its_line_and_its_saving_changed() -> None:
    before = valued(5_000_000, source="train.py:42 in check", phase="step")
    after = valued(9_000_000, source="train.py:57 in check", phase="step")
    assert fingerprints(before) == fingerprints(after)


@pytest.mark.parametrize(
    "other", [{"rule": "scalar-readback"}, {"phase": "step/data"}, {"source": "train.py:42 in f"}]
)
def test_another_rule_phase_or_function_is_another_finding(other: dict[str, str]) -> None:
    same: dict[str, Any] = {"source": LINE, "phase": "step"}
    assert fingerprints(valued(**same)) != fingerprints(valued(**same | other))


def test_two_findings_of_one_function_are_numbered_by_their_lines_and_not_by_their_savings() -> (
    None
):
    low, high = (valued(source=f"train.py:{number} in check") for number in (9, 42))
    first, second = fingerprints(high, low)
    assert (first[-2:], second[-2:]) == (":2", ":1")
    assert fingerprints(low, high) == [second, first]


def nowhere(_name: str) -> None:
    """No file is in the working tree."""


def sarif(results: Results) -> Run:
    return read(sarif_json(results, nowhere))


@few_reports
def test_a_real_report_gives_a_document_that_github_takes(name: str) -> None:
    results = run_of(name)
    run = sarif(results)  # type: ignore[arg-type]
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
