"""The SARIF document of a run: one `run` with the rules, and a result per finding."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import nsysflow
from nsysflow.report.results import Results
from nsysflow.report.sarif.findings import BASE, found_results
from nsysflow.report.sarif.rules import rules
from nsysflow.report.verdict.validity import failures

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
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _notifications(results: Results) -> Iterator[dict[str, Any]]:
    """Why the recording cannot be judged, if so, and what it lacks."""
    for failed in failures(results):
        yield {"level": "warning", "message": {"text": failed.sentence}}
    for note in results.notes:
        yield {"level": "note", "message": {"text": note.text}}
