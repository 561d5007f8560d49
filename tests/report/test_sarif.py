"""Where a result is, how much it counts, and by what it is known again."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis import schema
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
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

LINE = "train.py:42 in check"
URI: Final = re.compile(r"(?!/)[A-Za-z0-9_.~/%-]+")
"""Relative, and quoted where needed."""
FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}:[1-9][0-9]*")

Json = dict[str, Any]


def read(text: str) -> Any:
    """The run of a document, which has what GitHub requires of each result."""
    document = json.loads(text)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    for result in run["results"]:
        (location,) = result["locations"]
        assert URI.fullmatch(location["physicalLocation"]["artifactLocation"]["uri"])
        assert FINGERPRINT.fullmatch(result["partialFingerprints"]["primaryLocationLineHash"])
        assert result["message"]["text"]
        assert 0 <= result["rank"] <= 100
    return run


def results_of(
    *some: Valued, files: Iterable[str] = (), path: str = "run.sqlite", find: Find = lambda _: None
) -> Any:
    """The results of findings, in a report whose stacks are of these files."""
    report = stepped(found_of(*some))
    rows = [(number, 0, file, 1, "f") for number, file in enumerate(files)]
    frames = pl.DataFrame(rows, schema=schema.FRAMES, orient="row")
    report = replace(report, trace=replace(report.trace, frames=frames))
    origin = Origin(paths={"run.sqlite": Path(path)}, typed=(Path(path),))
    return read(sarif_json(Results([report], origin=origin), find))["results"]


def place_of(one: Valued, **where: Any) -> Any:
    (result,) = results_of(one, **where)
    return result["locations"][0]["physicalLocation"]


@pytest.mark.parametrize(
    ("pct", "level"), [(4.9, "note"), (5.0, "warning"), (90.0, "warning"), (0.0, "note")]
)
def test_a_saving_of_5_pct_of_a_step_is_a_warning(pct: float, level: str) -> None:
    (result,) = results_of(valued(round(STEP_NS * pct / 100)))
    assert result["level"] == level
    assert result["rank"] == pytest.approx(pct)


@pytest.mark.parametrize(
    ("source", "here", "uri", "base"),
    [
        # by its whole path, by its name, and as the report names it
        (LINE, {"/home/me/job/train.py": "job/train.py"}, "job/train.py", "%SRCROOT%"),
        (LINE, {"train.py": "src/train.py"}, "src/train.py", "%SRCROOT%"),
        ("my job/train.py:42", {}, "my%20job/train.py", None),
    ],
)
def test_a_line_of_the_program_is_found_in_the_working_tree(
    source: str, here: dict[str, str], uri: str, base: str | None
) -> None:
    place = place_of(valued(source=source), files=["/home/me/job/train.py"], find=here.get)
    artifact = place["artifactLocation"]
    assert (artifact["uri"], artifact.get("uriBaseId")) == (uri, base)
    assert place["region"]["startLine"] == 42


@pytest.mark.parametrize("source", ["", "<stdin>:3 in step"])
def test_a_finding_without_a_file_is_at_the_report(source: str) -> None:
    path = "runs/rank0.sqlite"
    there = {str(Path(path).absolute()): path}
    for found, uri in (({}, "rank0.sqlite"), (there, path)):
        place = place_of(valued(source=source), path=path, find=found.get)
        assert place["artifactLocation"]["uri"] == uri


def test_the_line_of_a_framework_is_related_and_not_the_place() -> None:
    (result,) = results_of(valued(via="transformers/trainer.py:2541 in _inner"))
    (related,) = result["relatedLocations"]
    place = related["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "transformers/trainer.py"
    assert place["region"]["startLine"] == 2541


def fingerprints(results: Iterable[Json]) -> list[str]:
    return [each["partialFingerprints"]["primaryLocationLineHash"] for each in results]


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"source": "train.py:57 in check", "high_ns": 9_000_000}, True),
        ({"rule": "scalar-readback"}, False),
        ({"phase": "step/data"}, False),
        ({"source": "train.py:42 in f"}, False),
    ],
)
def test_a_finding_is_known_by_rule_phase_and_function(changed: dict[str, Any], same: bool) -> None:
    first: dict[str, Any] = {"source": LINE, "phase": "step"}
    before, now = (results_of(valued(**fields)) for fields in (first, first | changed))
    assert (fingerprints(before) == fingerprints(now)) is same


def test_findings_of_one_function_are_numbered_by_their_lines_and_not_by_their_savings() -> None:
    low, high = (valued(source=f"train.py:{number} in check") for number in (9, 42))
    first, second = fingerprints(results_of(high, low))
    assert (first[-2:], second[-2:]) == (":2", ":1")
    assert fingerprints(results_of(low, high)) == [second, first]


def sarif(results: RealResults) -> Any:
    """The run, where no file is in the working tree."""
    return read(sarif_json(results, lambda _: None))


@few_reports
def test_a_real_report_gives_a_document_that_github_takes(name: str) -> None:
    results = run_of(name)
    run = sarif(results)
    rows = results.table("findings").to_dicts()
    assert [each["ruleId"] for each in run["results"]] == [row["rule"] for row in rows]
    for each, row in zip(run["results"], rows, strict=True):
        for number in ("finding", "saving_low_ns", "saving_high_ns", "method", "steps"):
            assert each["properties"][number] == row[number]
        assert row["title"] in each["message"]["text"]
    assert len({*fingerprints(run["results"])}) == len(rows)


def test_every_rule_is_there_with_its_example_whatever_was_found() -> None:
    rules = sarif(with_findings())["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == [*explanations()]
    for each, one in zip(rules, explanations().values(), strict=True):
        assert f"nsysflow explain {each['id']}" in each["help"]["text"]
        assert each["shortDescription"]["text"].endswith(".")
        for code in (one.before, one.after):
            assert f"```python\n{code.strip()}\n```" in each["help"]["markdown"]


def test_a_recording_that_cannot_be_judged_says_so() -> None:
    note = Note(NoteKind.LEFT_OUT, "rank1 is left out: it has no step")
    failed = FailedCheck(check=Check.NO_KERNELS, count=10, of=0)
    run = sarif(Results([Handmade(tables={}, notes=(note,), failed_checks=(failed,))]))
    (said,) = (each["toolExecutionNotifications"] for each in run["invocations"])
    assert {each["level"] for each in said} == {"warning", "note"}
