"""What workers of a DataLoader run: from marks to a note, and in packed reports."""

from pathlib import Path
from typing import Final

from msgspec.structs import astuple

from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import WorkerCode
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import WORKER_CODE
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_unused_gradients import mark, notes_of
from tests.exports import write_export

CODE: Final = WorkerCode("decode", "data.py:7", 0, 83, 100)
TEXT: Final = "the DataLoader's workers run decode (data.py:7) 83 % of the time"


def test_the_last_mark_of_a_process_is_a_note(tmp_path: Path) -> None:
    early = WorkerCode("crop", "data.py:9", 0, 3, 4)
    rows = astuple(early)[:-1], astuple(CODE)  # the last value of a row may be missing
    marks = [mark(row, kind=WORKER_CODE) for row in rows]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, NoteKind.WORKER_CODE) == [(TEXT, CODE)]
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        assert notes_of(tmp_path / packed, NoteKind.WORKER_CODE) == [(TEXT, CODE)]


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    report = write(tmp_path, kernel(), nsysflow={WORKER_CODE: [astuple(CODE)]})
    assert notes_of(report, NoteKind.WORKER_CODE) == [(TEXT, CODE)]


def test_code_that_was_never_seen_has_no_share() -> None:
    assert WorkerCode("decode", "data.py:7", 0, 0, 0).share_pct == 0
