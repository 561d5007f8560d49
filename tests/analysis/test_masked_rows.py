"""Rows that are multiplied by zero: from marks to a note and a finding, and in packed reports."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

from nsysflow.analysis.findings.rules.seen_modules import masked_rows
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import MaskedModule
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import MASKED_ROWS
from tests.analysis.findings.subjects import left_of
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_padding import OF_PASSES
from tests.analysis.test_unused_gradients import findings_of as of_module
from tests.analysis.test_unused_gradients import mark, notes_of
from tests.exports import write_export

MODULE: Final = MaskedModule(
    *("Attention, Mlp", "Encoder", "forward", ("train.py:5-9",), 1_000, 1_000, 2, 8, 1_000, 600),
    lines=("train.py:36",),
)
TEXT: Final = "60 % of the results of Attention, Mlp in Encoder are multiplied by 0"


def test_the_last_mark_of_a_process_is_a_note(tmp_path: Path) -> None:
    marks = [mark(kind=MASKED_ROWS), mark(astuple(MODULE), kind=MASKED_ROWS)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, NoteKind.MASKED_ROWS) == [(TEXT, MODULE)]
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        assert notes_of(tmp_path / packed, NoteKind.MASKED_ROWS) == [(TEXT, MODULE)]


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    report = write(tmp_path, kernel(), nsysflow={"masked_rows": [astuple(MODULE)]})
    assert notes_of(report, NoteKind.MASKED_ROWS) == [(TEXT, MODULE)]


findings_of = partial(of_module, rule=masked_rows)


def test_what_becomes_zero_has_its_part_of_both_passes() -> None:
    (one,) = findings_of(MODULE)
    assert left_of(one) == OF_PASSES
    assert one.method == "bound"
    assert one.title == f"{TEXT}: train.py:36 in train"
    assert one.source == "train.py:36 in train"
    assert one.evidence[0] == (
        "the results of 8 calls are multiplied by one number for each row (seen in 2 steps)"
    )


@pytest.mark.parametrize(
    "module",
    [
        changed(MODULE, of_zeros=0),
        changed(MODULE, operations=0, of_zeros=0),
        changed(MODULE, of_zeros=60),
        changed(MODULE, places=(), lines=(), phase="elsewhere"),
    ],
    ids=["none", "no operations", "too little", "elsewhere"],
)
def test_nothing_is_said_of_few_zeros(module: MaskedModule) -> None:
    assert findings_of(module) == []
