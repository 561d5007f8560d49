"""Functions that torch.compile gave up on: from torch's log to a note and a finding."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.fusion import never_compiled, unfused_elementwise
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.runtime import regions
from tests.analysis.findings.subjects import asked, found, left_of, real
from tests.analysis.load.kineto.traces import kernel, write
from tests.exports import write_export
from tests.reports import PACKED

LOGGED = """torch._dynamo hit config.recompile_limit (8)
   function: 'forward' (/home/me/shrink.py:54)
   last reason: 0/7: self.clock == 7                            # tau = rate ** self.clock (HINT: a)
To log all recompilation reasons, use TORCH_LOGS="recompiles".
To diagnose recompilation issues, see https://pytorch.org"""
"""What torch 2.11 logged, and nearly what 2.6 does."""

FORWARD = ("forward", "shrink.py:54", "self.clock == 7")
NAMED = "torch.compile gave up on forward (shrink.py:54)"
WHOLE = f"{NAMED}: it was compiled too often, the last time because self.clock == 7 no longer held"


@pytest.mark.parametrize(
    ("text", "noted"), [(LOGGED, [FORWARD]), ("Compiled by hit config.x (8)", [])]
)
def test_what_torch_logs_is_noted_and_passes(
    text: str, noted: list[regions.GaveUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "GAVE_UP", [])
    record = logging.makeLogRecord({"msg": text.replace("(8)", "(%s)"), "args": (8,)})
    assert regions.note_given_up(record)
    assert noted == regions.GAVE_UP
    marks: list[str] = []
    regions.list_noted(marks.append)
    assert [json.loads(mark)["nsysflow"]["gave_up"] for mark in marks] == (
        [[[*row] for row in noted]] if noted else []
    )


def mark(*rows: tuple[str, str, str]) -> dict[str, object]:
    return {"eventType": 34, "text": json.dumps({"nsysflow": {"gave_up": rows}})}


def notes_of(report: Path) -> list[str]:
    notes = nsysflow.load(report).notes
    return [note.text for note in notes if note.kind is NoteKind.GAVE_UP_COMPILING]


def test_each_is_a_note_once_and_packed_without_its_guard(tmp_path: Path) -> None:
    report = write_export(
        tmp_path / "r.sqlite",
        kernels=[{}],
        calls=[{}],
        nvtx=[mark(FORWARD), mark(FORWARD, ("loss", "a.py:1", "")), mark(("x" * 301, "a", ""))],
    )
    assert notes_of(report) == [WHOLE, "torch.compile gave up on loss (a.py:1)"]
    pack(report, tmp_path / "packed.sqlite")
    assert notes_of(tmp_path / "packed.sqlite") == [NAMED, "torch.compile gave up on loss (a.py:1)"]


def test_a_call_that_compiles_nothing_is_a_note_of_its_own(tmp_path: Path) -> None:
    never = mark(("", "flow.py:72", ""))
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=[never])
    (note,) = (one for one in nsysflow.load(report).notes if one.kind is NoteKind.NEVER_COMPILED)
    assert note.text == "what torch.compile was given at flow.py:72 never ran compiled"


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    about = {"capture": "0:0:5", "gave_up": [FORWARD]}
    assert notes_of(write(tmp_path, kernel(), nsysflow=about)) == [WHOLE]


def with_note(note: Note) -> JudgedReport:
    """A program whose kernels are not fused, in which this was noted."""
    trace = nsysflow.load(PACKED["fusion-eager"])
    return JudgedReport(nsysflow.analyze(replace(trace, notes=(*trace.notes, note))))


def test_kernels_that_are_not_fused_say_what_was_given_up() -> None:
    usual = asked(unfused_elementwise, real("fusion-eager"))
    finding = asked(unfused_elementwise, with_note(Note(NoteKind.GAVE_UP_COMPILING, WHOLE, NAMED)))
    assert finding.title == f"{usual.title}; {NAMED}"
    assert "TORCH_LOGS=recompiles" in finding.change[1]
    assert WHOLE in finding.evidence


def test_what_was_never_compiled_is_a_finding_instead_of_what_is_not_fused() -> None:
    """It has their kernels, and saves as much or more: sums and long chains are fused, too."""
    usual = asked(unfused_elementwise, real("fusion-eager"))
    subject = with_note(Note(NoteKind.NEVER_COMPILED, "X never ran compiled"))
    assert not found(unfused_elementwise, subject)
    assert not found(never_compiled, real("fusion-eager"))
    finding = asked(never_compiled, subject)
    assert finding.title.startswith("X never ran compiled: ")
    assert finding.title.endswith(" % of kernel time could be fused")
    assert "and not model.forward(x)" in finding.change[1]
    assert left_of(finding).keys() >= left_of(usual).keys()
    assert finding.size_ns >= usual.size_ns
    assert finding.effort == "line"
