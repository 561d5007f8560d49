"""What a model keeps on the host and copies in each forward, and copies that are none of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.copies import OF_MODEL, PAGEABLE, blocking_copies
from tests.analysis.findings.subjects import US, Row, changes_of, found, launched, loop, valued_of
from tests.in_us import call, copy, launch, opened, sample

LINES: Final = (64, 65, 66)
EDGES: Final = 2_621_280
"""Bytes of a graph's static edges."""

STEPS: Final = 10


def at_line(at: int, function: str, line: int) -> Row:
    """A sample of a function at a line."""
    ran = sample(at, function)
    return replace(ran, frames=tuple(replace(frame, line=line) for frame in ran.frames))


def copied(at: int, moved: int, function: str, line: int) -> list[Row]:
    """A copy of 60 us that the host waits for; 40 us of code are before it."""
    return [
        launch(at + 40, at + 45, at + 40, name="cudaMemcpyAsync"),
        at_line(at + 41, function, line),
        call(at + 46, at + 110, "cudaStreamSynchronize"),
        at_line(at + 47, function, line),
        copy(at + 47, at + 107, at + 40, "HtoD", "pageable", "device", moved=moved),
    ]


def model(
    *,
    lines: Sequence[int] = LINES,
    function: str = "forward",
    phase: str = "run",
    sizes: Sequence[int] = (EDGES,),
) -> JudgedReport:
    """Steps that copy at these lines, each time so many bytes, other ones in the next step."""

    def step(number: int) -> list[Row]:
        rows: list[Row] = [opened(5, 90 + 200 * len(lines), phase)]
        for place, line in enumerate(lines):
            rows += copied(10 + 200 * place, sizes[number % len(sizes)], function, line)
            rows += launched(125 + 200 * place, 80)
        return rows

    return loop(step, every=200 + 200 * len(lines), steps=STEPS)


def titles(subject: JudgedReport) -> list[str]:
    return [one.title for one in found(blocking_copies, subject)]


def only(subject: JudgedReport) -> Finding:
    (one,) = found(blocking_copies, subject)
    return one


def test_copies_of_neighbouring_lines_are_one_finding_with_one_saving() -> None:
    subject = model()
    one = only(subject)
    at = "cudaStreamSynchronize in step/run, train.py:64-66 in forward"
    assert one.title == f"the same sizes are copied to the GPU in each step: {at}"
    assert one.source in {f"train.py:{line} in forward" for line in LINES}
    assert {removal.at for removal in changes_of(one).removed} == {
        f"train.py:{line}" for line in LINES
    }
    plan = find(subject).valued
    assert plan[0].finding.title == one.title
    assert not any("hide each other" in each.finding.title for each in plan)
    # the kernels are left
    assert plan[0].step_after_ns == pytest.approx(3 * 80 * US, rel=0.05)


@pytest.mark.parametrize(
    ("function", "phase", "stays"),
    [
        ("forward", "run", True),
        ("encode", "forward", True),
        ("encode", "forward/encoder", True),
        ("encode", "run", False),
        ("forward", "data", False),
    ],
)
def test_only_a_model_keeps_what_it_copies_on_the_gpu(
    function: str, phase: str, stays: bool
) -> None:
    one = only(model(function=function, phase=phase))
    assert one.change == (OF_MODEL if stays else PAGEABLE)
    assert one.title.startswith("the same sizes" if stays else "copy of pageable memory")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"sizes": (EDGES, EDGES // 2)}, id="batches of other sizes"),
        pytest.param({"sizes": (1_152,)}, id="a constant made of a list"),
    ],
)
def test_other_copies_in_a_forward_need_not_be_the_same(other: dict[str, Any]) -> None:
    assert OF_MODEL[0] not in only(model(**other)).change


def test_one_step_may_have_other_sizes() -> None:
    """As that of an epoch's last batch: it is a tenth of these steps."""
    sizes = [EDGES] * (STEPS - 1) + [EDGES // 2]
    assert only(model(sizes=sizes)).change == OF_MODEL


def test_what_stays_on_the_gpu_saves_its_copies_and_its_code_too() -> None:
    one = valued_of("pageable-copy", model())
    changes = changes_of(one.finding)
    assert dict(changes.scaled) == {"memcpy HtoD": 0.0}
    assert [phase for phase, _ in changes.faster_host] == ["step/run"]
    assert (one.finding.method, one.low_ns) == ("bound", 0)


def test_lines_far_apart_and_of_other_functions_are_places_of_their_own() -> None:
    assert len(titles(model(lines=(64, 66, 71)))) == 2
    assert len(titles(model(lines=(64, 68, 72, 76)))) == 2  # four lines that span 13
