"""Findings for editors and code scanning: SARIF 2.1.0."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import nsysflow
from nsysflow.analysis.events.source_lines import recorded_files
from nsysflow.analysis.findings.explanation import Explanation, explanations
from nsysflow.analysis.findings.finding import Valued
from nsysflow.base.names import SourceLine, printable_json
from nsysflow.report.findings import saving_of
from nsysflow.report.results import Results
from nsysflow.report.validity import failures

WARNING_PCT: Final = 5.0
"""Who saves less of a step has other things to do first."""

BASE: Final = "%SRCROOT%"
"""What URIs of files of the working tree are relative to; GitHub and editors know the name."""

FINGERPRINT: Final = "primaryLocationLineHash"
"""The one fingerprint by which GitHub knows a result again."""

Find = Callable[[str], str | None]


def found_results(results: Results, find: Find) -> list[dict[str, Any]]:
    """A result per finding, in the order in which to act.

    Args:
        results: the run.
        find: the file of the working tree that a path, or the end of one, means.
    """
    recorded = {
        each.trace.report: recorded_files(each.trace.frames, each.options.own)
        for each in results.analyses
    }
    prints = _fingerprints(results.found.valued)
    return [
        {
            "ruleId": valued.finding.rule,
            "level": "warning" if valued.said.high_pct >= WARNING_PCT else "note",
            "message": {"text": _message(valued, of_steps=results.found.of_steps)},
            "locations": [_location(valued, results, recorded[valued.report], find)],
            **_related(valued),
            "partialFingerprints": {FINGERPRINT: fingerprint},
            "rank": min(100.0, round(valued.said.high_pct, 6)),
            "properties": _properties(number, valued, results),
        }
        for number, (valued, fingerprint) in enumerate(
            zip(results.found.valued, prints, strict=True), start=1
        )
    ]


def _message(valued: Valued, *, of_steps: bool) -> str:
    """What happens where, what it costs, and the first thing to try."""
    known = valued.high_ns or valued.later_ns
    a_step = " a step" if of_steps else ""
    saving = f"{saving_of(valued)}{a_step}" if known else "saving not estimated"
    return f"{valued.finding.title}; {saving}. Try first: {valued.finding.change[0]}."


def _location(
    valued: Valued, results: Results, recorded: Mapping[str, str], find: Find
) -> dict[str, Any]:
    """The line of the program; without one the report."""
    line = SourceLine.of(valued.finding.source)
    if line is None or line.file.startswith("<"):
        path = results.origin.paths.get(valued.report, Path(valued.report))
        file = find(str(path.absolute()))
        return _physical(file or path.name, 1, in_tree=file is not None)
    file = find(recorded.get(line.file, line.file)) or find(line.file)
    place = _physical(file or line.file, line.number, in_tree=file is not None)
    if line.function:
        place["logicalLocations"] = [{"name": line.function, "kind": "function"}]
    return place


def _related(valued: Valued) -> dict[str, Any]:
    """The framework's line, where the program only calls that framework."""
    via = SourceLine.of(valued.finding.via)
    if via is None:
        return {}
    place = _physical(via.file, via.number, in_tree=False)
    return {
        "relatedLocations": [{**place, "message": {"text": f"reached in {valued.finding.via}"}}]
    }


def _physical(file: str, number: int, *, in_tree: bool) -> dict[str, Any]:
    """A whole line of a file."""
    base = {"uriBaseId": BASE} if in_tree else {}
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(file), **base},
            "region": {"startLine": number, "startColumn": 1, "endLine": number},
        }
    }


def _fingerprints(valued: tuple[Valued, ...]) -> list[str]:
    """The same for the same place of the program in each capture: of the rule, the phase and the
    function, not of lines and times. Several at one place are numbered in the order of lines."""
    marks = [_mark(finding) for finding in valued]
    order = sorted(range(len(valued)), key=lambda index: _by_line(valued[index]))
    counts: Counter[str] = Counter()
    numbered = [""] * len(valued)
    for index in order:
        counts[marks[index]] += 1
        numbered[index] = f"{marks[index]}:{counts[marks[index]]}"
    return numbered


def _mark(valued: Valued) -> str:
    line = SourceLine.of(valued.finding.source)
    where = "" if line is None else line.function or line.file
    return sha256(
        "\0".join((valued.finding.rule, valued.finding.phase, where)).encode()
    ).hexdigest()[:16]


def _by_line(valued: Valued) -> tuple[str, int, str, str]:
    line = SourceLine.of(valued.finding.source)
    file, number = ("", 0) if line is None else (line.file, line.number)
    return file, number, valued.finding.via, valued.finding.culprit


def _properties(number: int, valued: Valued, results: Results) -> dict[str, Any]:
    """The numbers, named as in findings.csv, and how to see the finding in full."""
    finding = valued.finding
    return {
        "finding": number,
        "report": valued.report,
        "process": finding.process,
        "device": finding.device,
        "phase": finding.phase,
        "culprit": finding.culprit,
        "saving_low_ns": valued.said.low_ns,
        "saving_high_ns": valued.said.high_ns,
        "saving_pct": round(valued.said.high_pct, 6),
        "later_ns": valued.later_ns,
        "step_ns": valued.step_ns,
        "method": finding.method,
        "steps": finding.steps,
        "evidence": [*finding.evidence],
        "change": [*finding.change],
        "explain": f"nsysflow explain {number} {results.again}",
    }


def rules() -> list[dict[str, Any]]:
    """All rules, also those that found nothing here: GitHub expects the same list each time."""
    return [_rule(name, explanation) for name, explanation in explanations().items()]


def _rule(name: str, explanation: Explanation) -> dict[str, Any]:
    text = "\n".join(_help(name, explanation))
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": _sentence(explanation.about)},
        "fullDescription": {"text": explanation.why},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": "note"},
        "properties": {"tags": ["performance", "gpu"], "problem.severity": "recommendation"},
    }


def _help(name: str, explanation: Explanation) -> Iterator[str]:
    """What it is, why it costs time, what to change: Markdown that reads well as it is."""
    yield f"# {name}: {explanation.about}"
    yield from ("", explanation.why)
    yield from _code("Before", explanation.before)
    yield from _code("After", explanation.after)
    yield from _points("Sure signs", explanation.signs)
    yield from _points("When to leave it", explanation.leave)
    yield from ("", "On your machine:", "", "```sh", f"nsysflow explain {name}")
    yield from (f"nsysflow analyze REPORT --table {table}" for table in explanation.tables)
    yield "```"


def _code(title: str, code: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", "```python", code.strip("\n"), "```")


def _points(title: str, items: Sequence[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "", *(f"- {item}" for item in items))


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION: Final = "2.1.0"

_BASE_MEANS: Final = "the root of the repository, or else the folder in which nsysflow ran"
"""The document names no folder of the machine; an editor takes the folder that it has open."""


def sarif_json(results: Results, find: Callable[[str], str | None]) -> str:
    """The document.

    Args:
        results: the run.
        find: the file of the working tree that a path, or the end of one, means; relative to the
            root of the repository. None where there is no such file.
    """
    run = {
        "tool": {
            "driver": {"name": "nsysflow", "version": nsysflow.__version__, "rules": rules()},
        },
        "originalUriBaseIds": {BASE: {"description": {"text": _BASE_MEANS}}},
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": [*_notifications(results)]}
        ],
        "results": found_results(results, find),
        "properties": {"reports": [*results.reports], "selection": results.selection},
    }
    document = {"$schema": SCHEMA, "version": VERSION, "runs": [run]}
    text = json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)
    return printable_json(text) + "\n"


def _notifications(results: Results) -> Iterator[dict[str, Any]]:
    """Why the recording cannot be judged, if so, and what it lacks."""
    for failed in failures(results):
        yield {"level": "warning", "message": {"text": failed.sentence}}
    for note in results.all_notes:
        yield {"level": "note", "message": {"text": note.text}}
