"""What a window's mark declares of a step's FLOPs, and what of that can be used."""

import json
from typing import Any

import pytest

from nsysflow.analysis.load.marks import about_capture, captures, declared

FLOPS = {"unit": "bf16", "phases": {"forward": 10**12, "backward": 2 * 10**12}}


def mark(**more: Any) -> str:  # noqa: ANN401
    return json.dumps({"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 7, **more}})


def test_a_mark_declares_flops_by_phase() -> None:
    assert declared([(1, mark(flops=FLOPS))]).rows() == [
        (1, "forward", 10**12, "bf16"),
        (1, "backward", 2 * 10**12, "bf16"),
    ]


def test_the_first_mark_of_a_process_counts() -> None:
    other = {"unit": "tf32", "phases": {"forward": 5}}
    found = declared([(1, mark(flops=FLOPS)), (1, mark(flops=other)), (2, mark(flops=other))])
    assert found.filter(process=2).rows() == [(2, "forward", 5, "tf32")]
    assert found.height == 3


@pytest.mark.parametrize(
    "flops",
    [
        None,
        "many",
        {"unit": "bf16"},
        {"unit": "bf16", "phases": {}},
        {"unit": "int4", "phases": {"forward": 1}},
        {"unit": "bf16", "phases": {"forward": -1}},
        {"unit": "bf16", "phases": {"forward": True}},
        {"unit": "bf16", "phases": {"forward": 1.5}},
        {"unit": "bf16", "phases": {"forward": 1 << 63}},
        {"unit": ["bf16"], "phases": {"forward": 1}},
    ],
)
def test_flops_that_cannot_be_used_leave_the_rest_of_the_mark(flops: object) -> None:
    marks = [(1, mark(flops=flops))]
    assert declared(marks).is_empty()
    assert captures(marks).rows() == [(1, "3:2:5", 7)]


def test_what_is_kept_of_a_mark_says_the_same_again() -> None:
    about = about_capture(mark(flops=FLOPS, secret="x"))
    assert about == {"capture": "3:2:5", "unprofiled_step_ns": 7, "flops": FLOPS}
    assert about_capture(json.dumps({"nsysflow": about})) == about
