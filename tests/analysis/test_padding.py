"""Padding in what models are given: from marks to a note and a finding, and in packed reports."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

from nsysflow.analysis.findings.rules.seen_modules import padding
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import PaddedModule
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import PADDED_INPUT
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import left_of
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_unused_gradients import BIAS, FORWARD, WGRAD, mark, notes_of
from tests.analysis.test_unused_gradients import findings_of as of_module
from tests.exports import write_export

MODEL: Final = PaddedModule(
    *("Encoder", "Encoder", "forward", ("train.py:5-9",)),
    *(1_000, 1_000, 8, 8, 1_000, 600, 50, 40, 10_000, 2_000),
    lines=("train.py:36",),
)
TEXT: Final = "60 % of Encoder's input is padding"


def test_the_last_mark_of_a_process_is_a_note(tmp_path: Path) -> None:
    marks = [mark(kind=PADDED_INPUT), mark(astuple(MODEL), kind=PADDED_INPUT)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, NoteKind.PADDED_INPUT) == [(TEXT, MODEL)]
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        assert notes_of(tmp_path / packed, NoteKind.PADDED_INPUT) == [(TEXT, MODEL)]


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    report = write(tmp_path, kernel(), nsysflow={"padded_input": [astuple(MODEL)]})
    assert notes_of(report, NoteKind.PADDED_INPUT) == [(TEXT, MODEL)]


findings_of = partial(of_module, rule=padding)
OF_PASSES: Final = {names.PRODUCT: 0.55, names.ADD: 0.7, WGRAD: 0.55, BIAS: 0.7, names.MUL: 0.7}
"""Of 60 of 80 us of products, and of 20 of 40 us of others, 60 % go; the same of the backward
pass."""


def test_padding_has_its_part_of_both_passes() -> None:
    (one,) = findings_of(MODEL)
    assert left_of(one) == OF_PASSES
    assert one.method == "bound"
    assert one.title == "60 % of Encoder's input is padding: train.py:36 in train"
    assert one.source == "train.py:36 in train"
    assert len(one.change) == 3
    assert one.evidence[:2] == (
        "600 of 1,000 positions in 8 calls are padding: the value at most rows' end or beginning",
        "with rows of similar length in each batch, 9.1 % would be padding",
    )


def test_of_attention_as_many_pairs_go_as_have_padding() -> None:
    (one,) = findings_of(MODEL, kernels=[(names.FLASH, 60, "forward:6"), *FORWARD])
    assert left_of(one) == {names.FLASH: 0.2, names.PRODUCT: 0.55, names.ADD: 0.7}


def test_what_is_behind_the_longest_rows_is_said() -> None:
    (one,) = findings_of(changed(MODEL, behind=300))
    assert "30 % of all positions lie behind a batch's longest row" in one.evidence
    assert "to its longest row" in one.change[0]


@pytest.mark.parametrize(
    "module",
    [
        changed(MODEL, padding=0),
        changed(MODEL, padding=1_001),
        changed(MODEL, padding=120, of_tokens=9_000),
        changed(MODEL, places=(), lines=(), phase="elsewhere"),
    ],
    ids=["none", "more than there is", "too little", "elsewhere"],
)
def test_nothing_is_said_of_little_padding(module: PaddedModule) -> None:
    assert findings_of(module) == []
