import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from nsysflow.base.errors import Damaged, NotAReport, NsysflowError, ReportError
from nsysflow.compare.captures import Capture
from nsysflow.compare.document import READ_VERSIONS, SCHEMA_VERSION, read_document
from nsysflow.report.document import compared_json
from tests.analyses import run_of

REPORT = "dataload-async"
"""Some of its rows are in some steps only."""
Change = Callable[[dict[str, Any]], object]


@cache
def text() -> str:
    """The document of a real report."""
    return compared_json(run_of(REPORT))


def changed(change: Change) -> bytes:
    """That document after somebody edited it."""
    document = json.loads(text())
    change(document)
    return json.dumps(document).encode()


def read(folder: Path, content: bytes) -> Capture:
    file = folder / "it's a run" / "report.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return read_document(file, "run")


def refused(folder: Path, content: bytes) -> NsysflowError:
    """The error of a document that must not be believed: it names the file and what to do."""
    with pytest.raises(ReportError) as caught:
        read(folder, content)
    error = caught.value
    assert str(folder / "it's a run" / "report.json") in error.seen
    assert error.advice
    return error


def track(document: Any) -> Any:
    return document["series"]["tracks"][0]


def row(document: Any) -> Any:
    """A row that is in some steps only, but in more than one."""
    return next(each for each in track(document)["rows"] if len(each.get("at", [])) > 1)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    capture = read(tmp_path, text().encode())
    parts, steps = (run_of(REPORT).table(name) for name in ("step_parts", "steps"))
    compared = steps.filter(steps["kind"].cast(str).is_in(["steady", "one-off"]))
    (one,) = capture.tracks
    assert one.steps == compared["step"].to_list()
    assert one.duration_ns == compared["duration_ns"].to_list()
    inside = parts.join(compared, on=["process", "device", "step"], how="semi")
    for figure in ("ns", "duration_ns", "count"):
        rows = [each for each in one.rows if each.part != "idle" or figure != "duration_ns"]
        assert sum(sum(getattr(each, figure)) for each in rows) == inside[figure].sum()


@pytest.mark.parametrize(("schema", "age"), [(min(READ_VERSIONS) - 1, "an older"), (99, "a newer")])
def test_another_schema_is_refused_with_what_to_type(tmp_path: Path, schema: int, age: str) -> None:
    error = refused(tmp_path, changed(lambda it: it.update(schema=schema, series="another shape")))
    assert error.seen.startswith(age)
    assert f"its schema is {schema}" in error.seen
    folder = tmp_path / "it's a run"
    assert split(error.command) == ["nsysflow", "analyze", "REPORT", "-o", str(folder)]


@pytest.mark.parametrize("schema", READ_VERSIONS)
def test_a_schema_with_the_same_series_is_read(tmp_path: Path, schema: int) -> None:
    whole = read(tmp_path, text().encode())
    assert read(tmp_path, changed(lambda it: it.update(schema=schema))) == whole


def test_a_document_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = text().rstrip().encode()
    for end in {*range(0, 200, 7), *range(0, len(whole), 997), len(whole) - 1}:
        assert isinstance(refused(tmp_path, whole[:end]), Damaged)


@pytest.mark.parametrize(
    "content", [b"not JSON", b"[" * 100_000, b"1e999"], ids=["text", "deep", "infinite"]
)
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"schemaVersion": 1, "traceEvents": []},
        {"schema": SCHEMA_VERSION, "tool": {"name": "another", "version": "1"}},
        {"schema": str(SCHEMA_VERSION), "tool": {"name": "nsysflow"}},
        {"schema": SCHEMA_VERSION, "tool": "nsysflow"},
    ],
)
def test_the_json_of_another_tool_is_no_report(tmp_path: Path, document: object) -> None:
    assert isinstance(refused(tmp_path, json.dumps(document).encode()), NotAReport)


EDITS: dict[str, Change] = {
    "a sum": lambda it: row(it)["ns"].__setitem__(0, row(it)["ns"][0] + 1),
    "a duration": lambda it: track(it)["duration_ns"].__setitem__(0, 1),
    "a row less": lambda it: track(it)["rows"].pop(0),
    "a row twice": lambda it: track(it)["rows"].append({**row(it), "ns": [0] * len(row(it)["ns"])}),
    "a name twice": lambda it: doubled(it["series"]["names"], track(it)["rows"]),
    "negative time": lambda it: opposite(track(it)["rows"]),
    "a step more": lambda it: track(it)["steps"].append(99),
    "a kind less": lambda it: track(it)["kinds"].pop(),
    "steps not compared": lambda it: track(it)["kinds"].__setitem__(0, "cut-off"),
    "no steps": lambda it: track(it).update(steps=[], kinds=[], duration_ns=[], rows=[]),
    "a figure less": lambda it: row(it)["ns"].pop(),
    "a negative count": lambda it: row(it).update(count=-1),
    "a place less": lambda it: row(it)["at"].pop(),
    "a place twice": lambda it: row(it).update(at=[row(it)["at"][0]] * len(row(it)["at"])),
    "a negative place": lambda it: row(it)["at"].__setitem__(0, -1),
    "a place behind the steps": lambda it: row(it)["at"].__setitem__(-1, len(track(it)["steps"])),
    "a name that is not there": lambda it: row(it).update(name=10_000),
    "another part": lambda it: row(it).update(part="waiting"),
    "a number beyond all": lambda it: track(it)["duration_ns"].__setitem__(0, 10**400),
    "no names": lambda it: it["series"].pop("names"),
    "no verdict": lambda it: it.pop("verdict"),
    "no tracks": lambda it: it["series"].update(tracks=[]),
}


def doubled(names: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Split a row in two that are the same but for the place of their name."""
    names.append(names[rows[0]["name"]])
    rows.append({**rows[0], "name": len(names) - 1, "ns": [0] * len(rows[0]["ns"])})


def opposite(rows: list[dict[str, Any]]) -> None:
    """Move more than all of a row's time to another row of every step."""
    some, other = [each for each in rows if "at" not in each][:2]
    some["ns"][0] += other["ns"][0] + 1
    other["ns"][0] = -1


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_document_that_somebody_edited_is_refused(tmp_path: Path, edit: Change) -> None:
    refused(tmp_path, changed(edit))


def test_an_invalid_recording_says_why(tmp_path: Path) -> None:
    content = changed(lambda it: it["verdict"].update(valid=False, text="events were lost"))
    assert read(tmp_path, content).invalid == "events were lost"
    assert read(tmp_path, text().encode()).invalid is None
