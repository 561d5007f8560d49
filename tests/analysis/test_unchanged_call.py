"""Calls that compute the same in each step: from marks to a note and a finding, and in packed
reports."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

from nsysflow.analysis.findings.rules.seen_modules import unchanged_call
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import UnchangedModule
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import UNCHANGED_CALLS
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import left_of
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_unused_gradients import findings_of as of_module
from tests.analysis.test_unused_gradients import mark, notes_of
from tests.exports import write_export

KEYS: Final = UnchangedModule(
    *("Linear", "Decoder", "forward", ()),
    *(1_000, 4_000, 2, 24, 750, 1_000),
    lines=("train.py:6",),
)
MEMORY: Final = changed(KEYS, classes="Memory", places=("train.py:5-9",), lines=("train.py:36",))
TEXT: Final = "Linear in Decoder computes the same result in every step"


def test_the_last_mark_of_a_process_is_a_note(tmp_path: Path) -> None:
    marks = [mark(kind=UNCHANGED_CALLS), mark(astuple(KEYS), kind=UNCHANGED_CALLS)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, NoteKind.UNCHANGED_CALLS) == [(TEXT, KEYS)]
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        assert notes_of(tmp_path / packed, NoteKind.UNCHANGED_CALLS) == [(TEXT, KEYS)]


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    report = write(tmp_path, kernel(), nsysflow={"unchanged_calls": [astuple(KEYS)]})
    assert notes_of(report, NoteKind.UNCHANGED_CALLS) == [(TEXT, KEYS)]


findings_of = partial(of_module, rule=unchanged_call)


def test_what_the_lines_of_a_layer_launch_goes() -> None:
    (one,) = findings_of(KEYS)
    assert left_of(one) == {names.PRODUCT: 0.25}  # 60 of 80 us are of that line
    assert one.method == "bound"
    assert (
        one.title
        == "Linear in Decoder computes the same result in every step: train.py:6 in forward"
    )
    assert one.evidence[:2] == (
        "24 calls get the same input as in the step before: the same tensors, unchanged (seen in 2"
        " steps)",
        "they do 75 % of the multiplications in linear layers and convolutions",
    )


def test_kernels_of_a_name_and_grid_go_as_a_whole_if_most_are_of_the_layer() -> None:
    kernels = [(names.PRODUCT, 60, line) for line in ("forward:6", "forward:6", "other:20")]
    (one,) = findings_of(KEYS, kernels=[*kernels, (names.ADD, 20, "other:21")])
    assert left_of(one) == {names.PRODUCT: 0.0}


def test_what_a_module_launches_goes_as_a_whole() -> None:
    (one,) = findings_of(MEMORY)
    assert left_of(one) == {names.PRODUCT: 0.25, names.ADD: 0.5}
    assert one.title.endswith(
        "Memory in Decoder computes the same result in every step: train.py:36 in train"
    )


def test_without_lines_it_has_its_part_of_the_multiplications() -> None:
    (layer,) = findings_of(changed(KEYS, lines=()), "forward", until_us=95)
    assert left_of(layer) == {names.PRODUCT: 0.25}
    (module,) = findings_of(changed(MEMORY, places=("other.py:5-9",)), "forward", until_us=95)
    assert left_of(module) == {names.PRODUCT: 0.25, names.ADD: 0.25}


@pytest.mark.parametrize(
    "module",
    [
        changed(KEYS, lines=(), products=0),
        changed(KEYS, lines=(), of_products=0),
        changed(KEYS, lines=(), phase="elsewhere"),
    ],
    ids=["no layers", "none at all", "elsewhere"],
)
def test_nothing_is_said_of_what_takes_no_time(module: UnchangedModule) -> None:
    assert findings_of(module) == []
