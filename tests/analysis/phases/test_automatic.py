"""Automatic ranges, on a few rows and on real reports."""

from dataclasses import replace

import pytest

from nsysflow.analysis.load.marks import with_auto_domain
from nsysflow.analysis.options import Options
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests.analyses import analysed
from tests.oracle.model import Range
from tests.tiny import AUTOGRAD, MAIN, Row, kernel, launch, opened, timeline_of, trace_of


def automatic(start: int, end: int, name: str, *, thread: int = MAIN) -> Range:
    return replace(opened(start, end, name, thread=thread), domain=AUTO_DOMAIN)


def border(at: int, name: str = "step") -> Range:
    return automatic(at, at + 1, name)


def work(at: int, number: int, *, busy: int = 10, thread: int = MAIN) -> list[Row]:
    """A launch, and its kernel right behind it."""
    return [launch(at, at + 2, number, thread=thread), kernel(at + 4, at + 4 + busy, number)]


def paths(*rows: Row) -> list[str]:
    return timeline_of(*rows).work.sort("key")["joined"].to_list()


@pytest.mark.parametrize(
    ("outer", "inner"), [(automatic, opened), (opened, automatic), (automatic, automatic)]
)
def test_forward_in_forward_is_one_if_one_of_them_is_automatic(outer: type, inner: type) -> None:
    rows = (outer(0, 100, "forward"), opened(10, 60, "layer"), inner(20, 50, "forward"))
    assert paths(*rows, *work(30, 1)) == ["forward", "forward/layer"]


def test_what_lies_between_forward_and_the_backward_behind_it_is_the_loss() -> None:
    rows = (automatic(0, 100, "forward"), automatic(150, 200, "backward"), opened(0, 300, "train"))
    assert paths(*rows, *work(120, 1), *work(210, 2)) == [
        "train",
        "train/forward",
        "train/loss",
        "train/backward",
    ]


@pytest.mark.parametrize(
    "others",
    [
        (automatic(110, 120, "MSELoss"),),
        (automatic(100, 140, "forward"), automatic(140, 145, "data")),
        (),
    ],
)
def test_there_is_no_loss_where_another_automatic_range_lies_between_or_none_follows(
    others: tuple[Range, ...],
) -> None:
    last = automatic(150, 200, "backward" if others else "optimizer")
    found = paths(automatic(0, 100, "forward"), *others, last, *work(148, 1))
    assert "loss" not in found


def test_a_backward_of_another_thread_ends_no_loss() -> None:
    rows = (automatic(0, 100, "forward"), automatic(150, 200, "backward", thread=AUTOGRAD))
    assert "loss" not in paths(*rows, *work(120, 1))


def test_the_programs_own_backward_ends_no_loss() -> None:
    assert "loss" not in paths(
        automatic(0, 100, "forward"), opened(150, 200, "backward"), *work(120, 1)
    )


def test_ranges_of_one_name_that_are_not_automatic_stay_in_each_other() -> None:
    rows = (opened(0, 100, "forward"), opened(20, 50, "forward"), automatic(60, 70, "data"))
    assert paths(*rows, *work(30, 1)) == ["forward", "forward/forward", "forward/data"]


def test_a_range_that_another_thread_has_open_is_no_double() -> None:
    rows = (automatic(0, 100, "a"), automatic(20, 50, "a", thread=AUTOGRAD))
    assert paths(*rows, *work(30, 1, thread=AUTOGRAD)) == ["a", "a/a"]


def test_a_step_goes_from_border_to_border_and_is_in_no_path() -> None:
    rows = [border(0), *work(10, 1), border(100), *work(110, 2), border(200), *work(210, 3)]
    timeline = timeline_of(*rows, automatic(5, 60, "forward"))
    assert timeline.step_paths["joined"].to_list() == ["step"]
    steps = timeline.steps.select("step", "start_ns", "end_ns", "begun_ns", "done_ns")
    assert steps.rows() == [(0, 14, 114, 0, 100), (1, 114, 124, 100, 200)]
    assert timeline.work["joined"].to_list() == ["forward"]


def test_a_border_whose_end_was_not_recorded_cuts_no_step_off() -> None:
    # found by the random traces on 2026-11-22
    unclosed = replace(border(0), end_ns=None)
    timeline = timeline_of(unclosed, *work(10, 1), border(100))
    assert timeline.steps["kind"].to_list() == ["start-up"]


def test_what_another_thread_launches_in_a_step_is_the_steps() -> None:
    rows = [border(0), *work(10, 1, thread=AUTOGRAD), border(100), *work(110, 2), border(200)]
    assert len(timeline_of(*rows).steps) == 2


def test_calls_of_models_are_steps_only_where_no_optimizer_steps() -> None:
    calls = [border(0, "call"), *work(10, 1), border(100, "call")]
    assert timeline_of(*calls).steps["begun_ns"].to_list() == [0]
    trains = [border(110), *work(120, 2), border(200), *work(210, 3), border(300)]
    assert timeline_of(*calls, *trains).steps["begun_ns"].to_list() == [110, 200]


def loop(own: str, *, from_ns: int, to_ns: int) -> list[Row]:
    """Four steps with kernels of 10 and 30 ns, and a range of the program's own in each."""
    rows: list[Row] = [border(0)]
    for at in range(0, 400, 100):
        rows += [*work(at + 10, at + 1), *work(at + 30, at + 2, busy=30), border(at + 95)]
        rows.append(opened(at + from_ns, at + to_ns, own))
    return rows


@pytest.mark.parametrize(
    ("own", "from_ns", "to_ns", "step"),
    [
        ("iteration", 5, 98, "iteration"),  # around all of it
        ("backward", 25, 60, "step"),  # most of the GPU's time, and no step begins in it
        ("optimizer", 75, 98, "step"),  # a step begins in it, and it launches nothing
    ],
)
def test_a_range_of_the_programs_own_that_repeats_as_a_step_wins(
    own: str, from_ns: int, to_ns: int, step: str
) -> None:
    timeline = timeline_of(*loop(own, from_ns=from_ns, to_ns=to_ns))
    assert timeline.step_paths["joined"].to_list() == [step]


def test_automatic_steps_can_be_named() -> None:
    rows = loop("iteration", from_ns=5, to_ns=98)
    named = timeline_of(*rows, options=Options(step="step"))
    assert named.steps["begun_ns"].to_list() == [0, 95, 195, 295]


def test_an_automatic_range_is_no_step_however_often_it_repeats() -> None:
    rows = [automatic(at, at + 90, "forward") for at in range(0, 400, 100)]
    launched = [row for at in range(0, 400, 100) for row in work(at + 10, at + 1)]
    assert timeline_of(*rows, *launched).step_paths.is_empty()


def test_a_recorder_without_domains_writes_the_domain_before_the_name() -> None:
    rows = (opened(0, 9, f"{AUTO_DOMAIN}:forward"), opened(0, 9, "forward"))
    ranges = with_auto_domain(trace_of(*rows).ranges)
    assert ranges.select("domain", "name").rows() == [(AUTO_DOMAIN, "forward"), (None, "forward")]


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
