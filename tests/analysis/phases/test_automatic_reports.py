"""Phases and steps of real programs that nobody prepared."""

from tests.analyses import analysed


def instances(name: str) -> dict[str, int]:
    rows = analysed(name).phases.select("path", "instances")
    return dict(rows.rows())


def test_a_compiled_step_has_its_phases_though_its_graphs_were_captured_before() -> None:
    analysis = analysed("h200-compile")
    assert len(analysis.steps) == 10
    found = instances("h200-compile")
    assert {*found} == {"forward", "loss", "backward", "optimizer", "zero_grad"}
    assert {found["forward"], found["loss"], found["backward"]} == {10}


def test_all_but_the_batch_of_a_compiled_step_is_in_a_phase() -> None:
    phases = analysed("h200-compile").phases
    ops = analysed("h200-compile").timeline.ops
    assert len(ops) - phases["ops"].sum() <= 2 * 10


def test_a_step_that_accumulates_has_all_its_batches() -> None:
    assert len(analysed("h200-accumulation").steps) == 5
    found = instances("h200-accumulation")
    assert (found["forward"], found["MSELoss"], found["backward"]) == (20, 20, 20)
    assert (found["optimizer"], found["clip_grad"]) == (5, 5)
    assert "loss" not in found
