"""Flame graphs of real reports: of Python samples, and of torch.profiler's operators."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nsysflow
from nsysflow.report.flamegraph import draw
from nsysflow.report.results import Results
from tests.analyses import run_of
from tests.report.test_flamegraph import File, boxes_of, read, weights
from tests.reports import DATA

NAMES = ["h200-hf-trainer", "h200-host-split", "h200-kineto"]
every_sampled = pytest.mark.parametrize("name", NAMES)


@cache
def run(name: str) -> Results:
    if name != "h200-kineto":
        return run_of(name)
    return Results([nsysflow.analyze(nsysflow.load(DATA / "h200-kineto.pt.trace.json.gz"))])


@cache
def profile(name: str) -> File:
    return read(draw(run(name), Path("idle.json")))


def waited_ns(name: str) -> int:
    """The idle time of host code and launches in the judged steps, by another table."""
    causes: Any = run(name).judged.table("accounting").select("host_ns", "launch_ns")
    return int(causes.sum_horizontal().sum())


@every_sampled
def test_the_stacks_sum_to_the_idle_time_of_host_code_and_launches(name: str) -> None:
    found = weights(profile(name))
    assert sum(found.values()) == profile(name).profiles[0].endValue == waited_ns(name)


@every_sampled
def test_the_boxes_of_each_level_fill_those_above_except_for_what_ran_in_them(name: str) -> None:
    whole, *rest = boxes_of(draw(run(name), Path("idle.svg")))
    phases = [box for box in rest if box.kind == "phase"]
    assert sum(box.width for box in phases) == pytest.approx(whole.width, rel=0.005)
    causes = [box for box in rest if box.kind == "cause"]
    assert sum(box.width for box in causes) == pytest.approx(whole.width, rel=0.005)


def test_a_split_that_is_known_is_drawn_so() -> None:
    whole, *rest = boxes_of(draw(run("h200-host-split"), Path("idle.svg")))
    shares = {box.name.partition(" ")[0]: 100 * box.width / whole.width for box in rest}
    assert shares["tokenize"] == pytest.approx(60, abs=3)
    assert shares["collate"] == pytest.approx(30, abs=3)


def test_a_traces_operators_lie_below_their_callers() -> None:
    found = weights(profile("h200-kineto"))
    assert any(stack[-2:] == ("GeluBackward0", "aten::gelu_backward") for stack in found)


def test_code_of_the_program_differs_from_that_of_libraries() -> None:
    boxes = boxes_of(draw(run("h200-hf-trainer"), Path("idle.svg")))
    kinds = {box.name.rpartition("(")[2].partition(":")[0]: box.kind for box in boxes}
    assert kinds["hf_trainer.py"] == "own"
    assert kinds["transformers/trainer.py"] == "library"
    assert kinds["torch/nn/modules/module.py"] == "library"


def test_no_folder_of_the_traced_machine_is_in_a_drawing() -> None:
    for name in NAMES:
        for file in ("idle.svg", "idle.json"):
            text = draw(run(name), Path(file))
            assert "site-packages" not in text
            assert "/home/" not in text
