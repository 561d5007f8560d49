"""Gradients that no optimizer uses: from marks to notes and a finding, and in packed reports."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.findings.rules.seen_modules import unused_gradients
from nsysflow.analysis.load.observations import note_on
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import Observation, UnusedModule
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime import regions
from nsysflow.runtime.protocol import UNUSED_GRADIENTS
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, found, left_of, repeated, seen
from tests.analysis.load.kineto.traces import kernel, write
from tests.exports import write_export
from tests.in_us import opened
from tests.oracle.model import Sample, to_trace

PAIR: Final = UnusedModule(
    *("FeatureNet", "PairLoss", "PairLoss", ("train.py:5-9",)),
    *(1_000, 4_000, 2, 4, 2, 2, 0),
    lines=("train.py:36",),
)
ROW: Final = astuple(PAIR)
TEXT: Final = (
    "no optimizer uses the gradients that backward computes, of FeatureNet in PairLoss:"
    " 1,000 weights"
)


def mark(*rows: object, kind: str = UNUSED_GRADIENTS, thread: int = tiny.MAIN) -> dict[str, object]:
    text = json.dumps({"nsysflow": {kind: rows}})
    return {"eventType": 34, "text": text, "globalTid": thread}


def notes_of(
    report: Path, kind: NoteKind = NoteKind.UNUSED_GRADIENTS
) -> list[tuple[str, Observation | None]]:
    """What the notes of a kind say, and of which module."""
    notes = nsysflow.load(report).notes
    return [(note.text, note.seen) for note in notes if note.kind is kind]


def listed(kind: str, row: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a window's marks list once this row is noted."""
    monkeypatch.setattr(regions, "SEEN", {kind: []})
    regions.note_seen(kind, [row])
    marks: list[str] = []
    regions.list_noted(marks.append)
    (text,) = marks
    return json.loads(text)["nsysflow"]


def test_what_a_program_was_seen_to_do_is_listed_in_each_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = json.loads(json.dumps(ROW))
    assert listed(UNUSED_GRADIENTS, ROW, monkeypatch) == {UNUSED_GRADIENTS: [row]}


@pytest.mark.parametrize(
    ("marks", "noted"),
    [
        ([mark(ROW)], [(TEXT, PAIR)]),
        ([mark(ROW), mark(ROW)], [(TEXT, PAIR)]),
        ([mark(ROW), mark()], []),
        ([mark(("x" * 301, *ROW[1:]))], []),
        ([mark(ROW[:-1])], []),
        ([mark((*ROW[:-2], -1, PAIR.lines))], []),
    ],
    ids=["one", "twice", "taken back", "too long", "too short", "too few"],
)
def test_the_last_mark_of_a_process_is_a_note(
    marks: list[dict[str, object]], noted: list[Any], tmp_path: Path
) -> None:
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report) == noted


def test_packed_reports_have_the_note_without_private_names(tmp_path: Path) -> None:
    private = changed(
        PAIR,
        classes="Net_0123456789abcdef01",
        places=("/home/me/train.py:5-9",),
        lines=("/home/me/train.py:36",),
    )
    report = write_export(
        tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=[mark(astuple(private))]
    )
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        ((text, module),) = notes_of(tmp_path / packed)
        assert "0123456789abcdef01" not in f"{text}{module}", packed
        assert "/home/me" not in f"{text}{module}", packed
        assert isinstance(module, UnusedModule)
        assert module.weights == PAIR.weights


def test_torch_profilers_traces_have_the_same_note(tmp_path: Path) -> None:
    about = {"capture": "0:0:5", "unused_gradients": [ROW]}
    assert notes_of(write(tmp_path, kernel(), nsysflow=about)) == [(TEXT, PAIR)]


WGRAD: Final = "sm90_xmma_wgrad_implicit_gemm"
BIAS: Final = "void at::native::reduce_kernel<(int)512, (int)1, ReduceOp<float, sum_functor>>(T3)"
FORWARD: Final = [
    *[(names.PRODUCT, 60, "forward:6"), (names.ADD, 20, "forward:7")],
    *[(names.PRODUCT, 20, "other:20"), (names.ADD, 20, "other:21")],
]
BACKWARD: Final = [(WGRAD, 200, "backward"), (BIAS, 40, "backward"), (names.MUL, 40, "backward")]


def findings_of(
    module: Observation,
    phase: str = "",
    until_us: int = 50,
    *,
    rule: Rule = unused_gradients,
    kernels: Sequence[tuple[str, int, str]] = (*FORWARD, *BACKWARD),
) -> list[Finding]:
    """Of steps in which a module has 3 of 4 parts of the products and half of the rest, perhaps
    with a range around its launches; or of steps with other kernels."""
    rows: list[Row] = [] if not phase else [opened(15, until_us, phase)]
    for row in seen(*kernels, threads={"backward": tiny.AUTOGRAD}):
        if isinstance(row, Sample):
            outer = replace(row.frames[0], function="train", line=30 + (row.frames[0].line or 0))
            row = replace(row, frames=(*row.frames, outer))
        rows.append(row)
    plain = tiny.plain_of(*repeated([opened(0, 699, "step"), *rows], every=700))
    trace = replace(to_trace(plain), notes=(note_on(module),))
    analysis = nsysflow.analyze(trace, replace(tiny.AS_RECORDED, skip=0))
    return found(rule, JudgedReport(analysis))


@pytest.mark.parametrize(
    ("whole", "part", "left"),
    [
        # of products 3/4 x (1/2 + 1/2 x 1/2), of sums for biases half, of the rest 1/2 x 1/2
        (2, 2, {WGRAD: 0.44, BIAS: 0.5, names.MUL: 0.75}),
        (4, 0, {WGRAD: 0.25, BIAS: 0.5, names.MUL: 0.5}),
        (0, 4, {WGRAD: 0.62, BIAS: 0.5}),
        (0, 0, {WGRAD: 0.62, BIAS: 0.5}),  # calls that were not seen
    ],
)
def test_its_part_of_the_backward_pass_is_what_it_has_of_the_forward_pass(
    whole: int, part: int, left: dict[str, float]
) -> None:
    (one,) = findings_of(changed(PAIR, whole=whole, part=part))
    assert left_of(one) == left
    assert one.method == "bound"
    assert one.title == (
        "FeatureNet in PairLoss, called at train.py:36 in train, gets gradients that no optimizer"
        " uses"
    )
    assert one.evidence[-1].startswith("launched by") or "launched by" in " ".join(one.evidence)


def test_products_take_at_least_twice_as_long_backward_as_forward() -> None:
    # 2 x 60 of 130 us, as some of the forward pass may have no backward pass
    kernels = [*FORWARD, (WGRAD, 130, "backward"), *BACKWARD[1:]]
    (one,) = findings_of(changed(PAIR, whole=4, part=0), kernels=kernels)
    assert left_of(one)[WGRAD] == 0.08


def test_the_line_is_one_whose_gradients_are_for_nothing() -> None:
    (one,) = findings_of(changed(PAIR, lines=("other.py:9", "train.py:37")))
    assert one.title.startswith("FeatureNet in PairLoss, called at train.py:37 in train, gets")


def test_a_range_of_its_own_says_what_it_launches() -> None:
    (one,) = findings_of(changed(PAIR, places=()), "PairLoss")
    assert left_of(one) == {WGRAD: 0.44, BIAS: 0.5, names.MUL: 0.75}
    assert one.title.startswith("FeatureNet in PairLoss gets gradients that no optimizer uses")


def test_its_weights_say_what_part_of_a_range_it_has_that_models_share() -> None:
    whole = changed(PAIR, places=(), phase="forward", whole=4, part=0)
    (one,) = findings_of(whole, "forward", until_us=95)
    assert left_of(one) == {WGRAD: 0.75, BIAS: 0.75, names.MUL: 0.75}
    assert "by its share of the weights" in " ".join(one.evidence)


def test_of_a_teacher_or_a_target_only_the_output_is_wanted() -> None:
    for named, first in (("TeacherNet", "no_grad"), ("FeatureNet", "requires_grad_(False)")):
        (one,) = findings_of(changed(PAIR, classes=named))
        assert first in one.change[0]


def test_gradients_that_are_cleared_unread_have_other_advice() -> None:
    (one,) = findings_of(changed(PAIR, classes="Judge", within="Judge", thrown=2))
    assert one.title.startswith(
        "Judge, called at train.py:36 in train, gets gradients that are cle"
    )
    assert "around the pass of the other optimizer" in one.change[0]


def test_nothing_is_said_of_what_takes_no_time() -> None:
    assert findings_of(changed(PAIR, places=(), phase="elsewhere")) == []
