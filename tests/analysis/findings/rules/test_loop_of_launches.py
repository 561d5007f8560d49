"""Launches one by one that keep the GPU waiting, and Python loops of small kernels."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.frameworks import Frameworks, advised
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import _in_order
from nsysflow.analysis.findings.rules.host_code import data_loading, host_code
from nsysflow.analysis.findings.rules.last_resort import idle_gpu
from nsysflow.analysis.findings.rules.launch_bound import CHANGE, launch_bound
from nsysflow.analysis.findings.rules.loops import loop_of_launches
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    changes_of,
    found,
    judged,
    launched,
    left_of,
    loop,
    named,
    options_of,
)
from tests.in_us import call, opened
from tests.oracle.model import Frame, Sample, Shape

EVERY_US = 4_000
UPDATES = (names.MUL, names.ADD)
READ = f"{names.ADD} of a value that is read"


def step(
    i: int,
    *,
    count: int = 120,
    model: int = 60,
    kinds: tuple[str, ...] = UPDATES,
    inside: str = "",
    marked: bool = False,
    automatic: bool = False,
    pause_us: int = 0,
    grids: tuple[int, ...] = (1,),
) -> Iterator[Row]:
    """A step of 4 ms or more, that of `forward`, `marked` with a range of its own, or with an
    `automatic` range where it begins: a model of `model` matmuls, then `count` small kernels, 20 us
    apart, in the range `inside` or in none. The host pauses once, after 21 of them. It waits for
    each kernel named READ."""
    every = max(EVERY_US, 25 * count) * US
    start = i * every
    if marked:
        yield tiny.opened(start, start + every - 1, "step")
    if automatic:
        yield replace(tiny.opened(start, start + 1, "step"), domain=AUTO_DOMAIN)
    yield tiny.opened(start, start + 108 * US, "forward")
    for k in range(model):
        begin, number = start + (5 + k) * US, 1_000 * i + 500 + k
        yield tiny.launch(begin, begin + 500, number)
        yield named(tiny.kernel(begin + 600, begin + 1_500, number), names.PRODUCT)
    if inside:
        yield tiny.opened(start + 109 * US, start + (110 + 20 * count) * US, inside)
    for k in range(count):
        begin = start + (110 + 20 * k + (pause_us if k > 20 else 0)) * US
        number = 1_000 * i + k + 1
        yield tiny.launch(begin, begin + 6 * US, number)
        ran = tiny.kernel(begin + 8 * US, begin + 10 * US, number)
        ran = replace(ran, shape=Shape(grid_x=grids[k // len(kinds) % len(grids)]))
        kind = kinds[k % len(kinds)]
        yield named(ran, kind)
        if kind == READ:
            yield tiny.call(begin + 7 * US, begin + 12 * US, "cudaStreamSynchronize")


def program(**of: Any) -> JudgedReport:
    """Eight such steps."""
    return judged(*(row for i in range(8) for row in step(i, **of)))


@pytest.mark.parametrize(
    ("inside", "marked", "graph", "where"),
    [
        ("", False, "(outside ranges)", "outside any range"),
        ("", True, "step/.", "in step"),
        ("ema", True, "step/ema", "in step/ema"),
        # part of a phase, almost all of whose code is of the loop
        ("forward", True, "step/forward", "in step/forward"),
    ],
)
def test_a_loop_is_found_where_it_runs_and_its_launches_become_one_before_a_graph_of_the_step(
    inside: str, marked: bool, graph: str, where: str
) -> None:
    subject = program(inside=inside, marked=marked)
    (one,), first = found(loop_of_launches, subject), find(subject).valued[0]
    assert one.title == f"a loop launches 120 small kernels a step {where}"
    assert changes_of(one).graphs == (graph,)
    assert {*left_of(one).values()} == {0.2}
    assert (first.finding.rule, first.finding.method) == ("loop-of-launches", "bound")
    # 119 pauses of 18 us behind the first launch, and most of 240 us of kernels
    assert first.high_ns == pytest.approx(119 * 18 * US + 0.8 * 240 * US, rel=0.05)


@pytest.mark.parametrize(
    ("inside", "step_times", "first"),
    [("ema", 9, True), ("ema", 11, False), ("", 9, True), ("forward/ema", 9, False)],
)
def test_a_loop_outside_of_the_model_comes_before_a_graph_from_a_tenth_of_the_step_on(
    inside: str, step_times: int, *, first: bool
) -> None:
    loop = find(program()).valued[0]
    loop = replace(loop, finding=replace(loop.finding, phase=inside))
    graph = replace(loop.finding, rule="launch-bound")
    launches = replace(loop, finding=graph, alone_ns=5 * loop.alone_ns, low_ns=5 * loop.high_ns)
    plan = _in_order([launches, loop], step_times * loop.alone_ns)
    assert (plan[0] is loop) == first


@pytest.mark.parametrize(
    "of",
    [
        {"count": 90},
        {"model": 10},
        {"kinds": (names.PRODUCT, names.ADD)},
        {"kinds": tuple(f"{names.ADD}#{k}" for k in range(20))},
        {"inside": "backward"},
        {"kinds": (names.MUL, READ)},
    ],
    ids=["few", "the whole step", "a model", "many different ones", "of autograd", "of reads"],
)
def test_no_loop_of_launches_is(of: dict[str, Any]) -> None:
    assert not found(loop_of_launches, program(**of))


def test_a_loop_may_be_most_of_a_step_that_launches_much_else() -> None:
    (one,) = found(loop_of_launches, program(count=320, model=100))
    assert one.title.startswith("a loop launches 320 small kernels a step")


def test_a_loop_whose_kernels_come_in_no_order_is_one() -> None:
    """As where each request of a server has other options."""
    of = random.Random(1)
    kinds = tuple(of.choice(UPDATES) for _ in range(120))
    (one,) = found(loop_of_launches, program(kinds=kinds))
    assert one.title.startswith("a loop launches 120 small kernels a step")
    assert one.change[0].startswith("one call for all tensors")


@pytest.mark.parametrize(
    ("grids", "change"),
    [((7,), "one call for all passes, "), ((7, 5, 9), "one call for all tensors")],
    ids=["over time steps", "over parameters"],
)
def test_what_to_do_about_a_loop_depends_on_whether_its_passes_are_alike(
    grids: tuple[int, ...], change: str
) -> None:
    (one,) = found(loop_of_launches, program(grids=grids))
    assert one.change[0].startswith(change)


GRADIENTS: Final = (
    *(f"void DeviceRadixSortOnesweepKernel<{k}>(int)" for k in range(6)),
    "void at::native::compute_grad_weight<float, long>(float*)",
    names.ADD,
)


def tables() -> Iterator[Row]:
    """Forty look-ups in a row, eight kernels in backward each; every fourth adds another way."""
    for phase, begin, kinds in (("forward", 0, (names.MUL,)), ("backward", 1_000, GRADIENTS)):
        count = 40 * len(kinds)
        yield opened(begin, begin + 20 * count + 10, phase)
        for k in range(count):
            few = k // len(kinds) % 4 == 3 and k % len(kinds) == len(kinds) - 2
            kind = "void compute_grad_weight_few<float>(float*)" if few else kinds[k % len(kinds)]
            yield from launched(begin + 20 * k, 2, took=6, name=kind)
    for at in (850, *range(7_500, 7_700, 2)):
        yield from launched(at, 1, took=1, name=names.PRODUCT)


def test_a_loop_counts_what_its_backward_pass_launches_though_passes_differ_a_little() -> None:
    """As where each of many columns has an embedding of its own."""
    (one,) = found(loop_of_launches, loop(tables(), every=8_000))
    assert one.title.startswith("a loop launches 40 small kernels a step in step/forward, 320 more")
    assert one.change[0].startswith("one embedding with the rows of all tables")


def test_launches_outside_all_ranges_count() -> None:
    (one,) = found(launch_bound, program(count=50, model=60, automatic=True))
    assert one.title.startswith("110 launches a step keep the GPU waiting, most outside any range")
    assert "where 100 % of the launches find the GPU idle" in one.evidence[1]


def test_launches_between_the_ranges_that_mark_the_steps_are_no_loader() -> None:
    """As where torch.profiler marks the optimizer alone."""
    training = [row for k in range(20) for row in launched(160 * k, 20, took=10)]
    subject = loop(training, every=3_400, within=(3_030, 3_100), name="Optimizer.step#SGD.step")
    assert not found(data_loading, subject)
    (one,) = found(launch_bound, subject)
    assert one.title.startswith("20 launches a step keep the GPU waiting, most outside any range")
    assert one.change == CHANGE
    assert options_of(one) == "--graph Optimizer.step#SGD.step --graph (outside ranges)"


@pytest.mark.parametrize(("function", "said"), [("aten::addmm", True), ("tokenize", False)])
def test_operators_that_launch_without_steps_are_launch_bound(function: str, *, said: bool) -> None:
    """Between launches they run for longer than these take, so that no window is starved."""
    launches = [row for k in range(60) for row in launched(60 * k, 5)]
    stack = (Frame("", None, function),)
    samples = [Sample(at * US, tiny.MAIN, stack) for at in range(0, 3_600, 10)]
    subject = JudgedReport(tiny.analysis_of(*launches, *samples))
    assert [one.change for one in found(launch_bound, subject)] == [CHANGE] * said
    (idle,) = idle_gpu(subject, 0, {})
    assert (idle.change == CHANGE) == said


@pytest.mark.parametrize(("count", "said"), [(50, True), (120, False)])
def test_host_code_of_the_loop_is_not_said_twice(count: int, *, said: bool) -> None:
    assert bool(found(data_loading, program(count=count, pause_us=150))) == said


def graphs(count: int, kernel: str = "k") -> JudgedReport:
    """Steps of so many launches of graphs that end before the next one comes."""
    starts = range(5, 5 + 30 * count, 30)
    rows = [
        row
        for at in starts
        for row in launched(at, 4, took=20, queued=1, call="cudaGraphLaunch", name=kernel)
    ]
    return loop(rows, every=30 * count + 10)


def test_a_program_of_many_graphs_is_told_to_launch_fewer() -> None:
    (one,) = found(launch_bound, graphs(10))
    assert "10 CUDA graphs a step" in one.title
    assert "fewer, larger graphs" in one.change[0]
    assert one.method == "bound"


def test_graphs_that_xla_makes_by_itself_are_not_the_program_s_to_capture() -> None:
    (one,) = found(launch_bound, graphs(10, kernel="loop_add_fusion_3"))
    assert "jax.jit" in advised(one, Frameworks(names=("jax",), compiled=False)).change[0]


def test_neither_a_step_that_is_one_graph_nor_one_long_piece_of_python_is_launch_bound() -> None:
    long_piece = *launched(10, 500), *launched(3_500, 400)
    assert not found(launch_bound, graphs(1))
    assert not found(launch_bound, loop(long_piece, every=4_000))


@pytest.mark.parametrize(("waits", "method"), [(20, "bound"), (9, "replay")])
def test_a_step_that_waits_often_is_no_single_graph(waits: int, method: str) -> None:
    """As conjugate gradients that read their residual back: no wait costs anything by itself."""
    rows: list[Row] = []
    for number, at in enumerate(range(1, 4_000, 100)):
        rows += launched(at, 5)
        if number < waits:
            rows.append(call(at + 11, at + 12, "cudaStreamSynchronize"))
    (one,) = found(launch_bound, loop(rows, every=4_000))
    assert one.method == method
    said = [sentence for sentence in one.evidence if "ends at each wait" in sentence]
    often = f"a step waits {waits} times, 100 % of that in step: a CUDA graph ends at each wait"
    assert said == [often] * (method == "bound")
    assert one.change[0].startswith("wait less often, most in step") == (method == "bound")


def test_without_steps_the_starved_windows_are_the_bound() -> None:
    rows = (row for k in range(40) for row in launched(30 * k, 2, took=10))
    (one,) = found(launch_bound, JudgedReport(tiny.analysis_of(*rows)))
    assert one.method == "bound"
    assert one.at_most_ns > 0


def test_launches_that_no_replay_values_leave_the_gpu_its_work() -> None:
    """As in an OpenACC program that allocates and copies for each kernel, and waits for it."""
    rows: list[Row] = []
    for start in range(0, 300 * 60, 60):
        rows.append(call(start, start + 20, "cuMemAlloc"))
        rows += launched(start + 25, 6, took=14, name="fill_42_gpu")
    churn, launches = find(JudgedReport(tiny.analysis_of(*rows))).valued
    assert (churn.finding.rule, launches.finding.rule) == ("allocator-churn", "launch-bound")
    assert all("acc data region" in one.finding.change[0] for one in (churn, launches))
    assert launches.step_after_ns - launches.high_ns >= 300 * 6 * US


@pytest.mark.parametrize(
    ("count", "name"), [(1, "cudaLaunchKernel"), (2, "cudaGraphLaunch"), (4, "cudaLaunchKernel")]
)
def test_host_code_between_a_few_launches_is_no_matter_of_launching(count: int, name: str) -> None:
    """600 us of it before each."""
    starts = range(600, 600 + 640 * count, 640)
    few = [row for at in starts for row in launched(at, 20, took=8, call=name)]
    subject = loop(few, every=640 * count + 40)
    assert not found(launch_bound, subject)
    assert asked(host_code, subject)


@pytest.mark.parametrize(
    ("count", "said"), [(12, ["kernels launched most often, times a step: k 12"]), (9, [])]
)
def test_kernels_that_are_launched_often_are_named(count: int, said: list[str]) -> None:
    launches = [row for k in range(count) for row in launched(30 * k, 2, took=10)]
    (one,) = found(launch_bound, loop(launches, every=30 * count + 40))
    assert [text for text in one.evidence if "most often" in text] == said


def test_a_phase_becomes_a_graph_where_little_of_its_pauses_is_long_python() -> None:
    """Two long pieces are most of the forward pass's pauses; one is 7 % of the backward pass's."""
    forward = [row for at in (*range(50, 2_000, 100), 6_100) for row in launched(at, 20)]
    begun = (*range(15_100, 51_000, 120), *range(53_200, 59_900, 120))
    backward = [row for at in begun for row in launched(at, 20)]
    phases = [opened(10, 14_000, "forward"), opened(15_000, 59_990, "backward")]
    (one,) = found(launch_bound, loop([*phases, *forward, *backward], every=60_000))
    assert changes_of(one).graphs == ("step/backward",)
