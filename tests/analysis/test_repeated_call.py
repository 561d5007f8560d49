"""Calls that repeat others: from marks to notes and a finding, and in packed reports."""

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

import nsysflow
from nsysflow.analysis.findings.rules.seen_modules import repeated_call
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import RepeatedModule, UnusedModule
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import REPEATED_CALLS
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import left_of
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_unused_gradients import BIAS, PAIR, WGRAD, listed, mark, notes_of
from tests.analysis.test_unused_gradients import ROW as ROW_OF_PAIR
from tests.analysis.test_unused_gradients import TEXT as OF_PAIR
from tests.analysis.test_unused_gradients import findings_of as of_module
from tests.exports import write_export

ENCODER: Final = RepeatedModule(
    *("Encoder", "ActorCritic", "forward", ("train.py:5-9",)),
    *(1_000, 4_000, 2, 4, 2, 2),
    lines=("train.py:36", "train.py:37"),
    ways=("train.py:36", "train.py:37"),
)
ROW: Final = astuple(ENCODER)
TEXT: Final = "Encoder in ActorCritic is called again with the very same input within a step"


def test_what_a_program_was_seen_to_do_is_listed_in_each_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = json.loads(json.dumps(ROW))
    assert listed(REPEATED_CALLS, ROW, monkeypatch) == {REPEATED_CALLS: [row]}


@pytest.mark.parametrize(
    ("rows", "noted"),
    [
        ([[ROW]], [(TEXT, ENCODER)]),
        ([[ROW], [ROW]], [(TEXT, ENCODER)]),
        ([[ROW], []], []),
        ([[("x" * 301, *ROW[1:])]], []),
        ([[ROW[:-1]]], []),
        ([[(*ROW[:8], -1, *ROW[9:])]], []),
    ],
    ids=["one", "twice", "taken back", "too long", "too short", "too few"],
)
def test_the_last_mark_of_a_process_is_a_note(
    rows: list[list[object]], noted: list[Any], tmp_path: Path
) -> None:
    marks = [mark(*each, kind=REPEATED_CALLS) for each in rows]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, NoteKind.REPEATED_CALLS) == noted


def test_packed_reports_have_both_kinds_of_notes_without_private_names(tmp_path: Path) -> None:
    private = changed(
        ENCODER,
        classes="Net_0123456789abcdef01",
        places=("/home/me/train.py:5-9",),
        lines=("/home/me/train.py:36",),
        ways=("/home/me/train.py:37",),
    )
    marks = [mark(astuple(private), kind=REPEATED_CALLS), mark(ROW_OF_PAIR)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        ((text, module),) = notes_of(tmp_path / packed, NoteKind.REPEATED_CALLS)
        assert "0123456789abcdef01" not in f"{text}{module}", packed
        assert "/home/me" not in f"{text}{module}", packed
        assert isinstance(module, RepeatedModule)
        assert astuple(module)[4:10] == ROW[4:10]
        assert nsysflow.load(tmp_path / packed).observations(UnusedModule) == [PAIR]


def test_torch_profilers_traces_have_the_same_notes(tmp_path: Path) -> None:
    about = {"capture": "0:0:5", "repeated_calls": [ROW], "unused_gradients": [ROW_OF_PAIR]}
    report = write(tmp_path, kernel(), nsysflow=about)
    assert notes_of(report, NoteKind.REPEATED_CALLS) == [(TEXT, ENCODER)]
    assert OF_PAIR in [note.text for note in nsysflow.load(report).notes]


findings_of = partial(of_module, rule=repeated_call)


# half of 60 of 80 us of products, and of 20 of 40 us of others; the same of the backward pass
FORWARD_LEFT: Final = {names.PRODUCT: 0.62, names.ADD: 0.75}
BACKWARD_LEFT: Final = {WGRAD: 0.62, BIAS: 0.75, names.MUL: 0.75}


def test_repeated_calls_have_their_part_of_both_passes() -> None:
    (one,) = findings_of(ENCODER)
    assert left_of(one) == FORWARD_LEFT | BACKWARD_LEFT
    assert one.method == "bound"
    assert one.title == (
        "Encoder in ActorCritic is called twice with the same input: train.py:36 in train"
    )
    assert one.source == "train.py:36 in train"
    assert "the calls come through train.py:36 and train.py:37" in one.evidence
    assert len(one.change) == 3
    # of launches half of one and a quarter of two; the first one on each thread does not count
    assert one.at_most_ns == (40 + 75 + 20 + 20) * 1_000


def test_calls_without_gradients_have_no_part_of_the_backward_pass() -> None:
    (one,) = findings_of(changed(ENCODER, learning=0))
    assert left_of(one) == FORWARD_LEFT
    assert len(one.change) == 2


@pytest.mark.parametrize(
    ("calls", "repeats", "times"), [(6, 4, "3 times"), (5, 2, "again"), (2, 2, "again")]
)
def test_the_title_says_how_often(calls: int, repeats: int, times: str) -> None:
    (one,) = findings_of(changed(ENCODER, calls=calls, repeated=repeats))
    assert one.title.startswith(f"Encoder in ActorCritic is called {times} with the same input")


def test_a_module_of_torchs_has_what_the_line_launches_that_calls_it() -> None:
    (one,) = findings_of(changed(ENCODER, places=(), lines=("train.py:6",), learning=0))
    assert left_of(one) == {names.PRODUCT: 0.62}
    assert one.title.endswith("with the same input: train.py:6 in forward")


def test_a_range_of_its_own_says_what_it_launches() -> None:
    alone = changed(ENCODER, within="Encoder", phase="Encoder", places=(), lines=())
    (one,) = findings_of(alone, "Encoder")
    assert left_of(one) == FORWARD_LEFT | BACKWARD_LEFT


def test_its_weights_say_what_part_of_a_range_it_has_that_models_share() -> None:
    (one,) = findings_of(changed(ENCODER, places=(), lines=(), learning=0), "forward", until_us=95)
    assert left_of(one) == {names.PRODUCT: 0.88, names.ADD: 0.88}
    assert "by its share of the weights" in " ".join(one.evidence)


@pytest.mark.parametrize(
    "module",
    [
        changed(ENCODER, places=(), lines=(), phase="elsewhere"),
        changed(ENCODER, repeated=0),
        changed(ENCODER, repeated=9),
    ],
    ids=["elsewhere", "none", "more than there are"],
)
def test_nothing_is_said_of_what_takes_no_time(module: RepeatedModule) -> None:
    assert findings_of(module) == []
