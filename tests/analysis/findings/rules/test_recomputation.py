"""What is done again: kernels of the forward pass in the backward pass, and a step's compiling."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.compilation import recompile
from nsysflow.analysis.findings.rules.extra_kernels import recomputation, recomputed
from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from tests import tiny
from tests.analyses import EXAMPLES
from tests.analysis.findings.subjects import (
    MS,
    US,
    Kernels,
    Row,
    asked,
    changes_of,
    found,
    judged,
    later,
    launched,
    left_of,
    loop,
    named,
    subject_of,
    valued_of,
)
from tests.in_us import call, kernel, launch, opened, sample
from tests.oracle.model import Frame, Shape
from tests.oracle.recomputed import Kernel
from tests.oracle.recomputed import recomputed as again

MATRIX: Final = 2
"""Keys below this are matrix products."""

COLUMNS: Final = {
    "lane": pl.UInt32,
    "step": pl.Int64,
    "key": pl.UInt32,
    "backward": pl.Boolean,
    "class": pl.String,
}

PASSES: Final = st.sampled_from([False, True, None])
STREAM: Final = st.lists(st.tuples(st.integers(0, 3), PASSES), max_size=12)
REPEATED: Final = st.tuples(STREAM, st.lists(st.integers(0, 3), min_size=3, max_size=6), STREAM)


@settings(max_examples=EXAMPLES)
@given(st.lists(REPEATED, max_size=2), st.integers(1, 40))
def test_what_is_computed_again_is_what_the_oracle_says(
    streams: list[tuple[list[tuple[int, bool | None]], list[int], list[tuple[int, bool | None]]]],
    step: int,
) -> None:
    # half of the streams would have nothing to find if no run were put into both passes
    lanes = [
        [*a, *((key, False) for key in run), *b, *((key, True) for key in run)]
        for a, run, b in streams
    ]
    rows = [
        (lane, at // step, key, backward, "matmul" if key < MATRIX else "norm")
        for lane, stream in enumerate(lanes)
        for at, (key, backward) in enumerate(stream)
    ]
    expected = [
        one
        for stream in lanes
        for one in again(
            [Kernel(key, at // step, back, key < MATRIX) for at, (key, back) in enumerate(stream)]
        )
    ]
    assert recomputed(pl.DataFrame(rows, schema=COLUMNS, orient="row")).to_list() == expected


LAYER: Final[Kernels] = [
    *(("layer_norm", 5), ("sm90_gemm", 20), ("gelu_kernel", 5), ("sm80_gemm", 20))
]
OTHER: Final[Kernels] = [(f"other_{name}", us) for name, us in LAYER]
GRADIENT: Final[Kernels] = [("layer_norm_backward", 10), ("sm90_gemm_nt", 40)]


@pytest.mark.parametrize(
    ("kernels", "backward_from", "blocks", "fires"),
    [
        ([*LAYER, *GRADIENT, *LAYER, *GRADIENT], 5, (9,), True),
        ([*LAYER, *GRADIENT, *LAYER, *GRADIENT], 99, (9,), False),  # accumulation: no backward pass
        ([*LAYER, *GRADIENT, *GRADIENT], 5, (9,), False),
        ([*LAYER, *GRADIENT, *LAYER[:3], *GRADIENT], 5, (9,), False),  # three are chance
        ([*LAYER, *GRADIENT, *LAYER, *GRADIENT], 5, (*range(1, 13),), False),  # other sizes
        ([("sm80_gemm", 20)] * 10, 5, (9,), False),  # one product of many matrices
    ],
)
def test_only_runs_of_the_forward_pass_in_the_backward_pass_are_found(
    kernels: Kernels, backward_from: int, blocks: tuple[int, ...], fires: bool
) -> None:
    begin, end = backward_from * US, (len(kernels) + 1) * US
    ranges = (tiny.opened(begin, end, "backward"),) if begin < end else ()
    subject = subject_of(kernels, blocks=blocks, ranges=ranges)
    findings = found(recomputation, subject)
    assert len(findings) == fires
    for one in findings:
        assert one.title.endswith(": 25 % of kernel time")
        assert "4 kernels, 50.0 us, 25 % of kernel time" in one.evidence[0]
        assert set(left_of(one).values()) == {0.5}
        assert valued_of("recomputation", subject)


def stepped(*steps: Kernels, lost: range = range(0)) -> JudgedReport:
    """Steps of 1 ms with these kernels, the backward pass from the fifth on; those with these
    numbers have no launch in the first step."""

    def rows(i: int) -> Iterator[Row]:
        yield opened(5, 99, "backward")
        at = 10
        for number, (name, us) in enumerate(steps[i], 1):
            if i or number not in lost:
                yield tiny.launch(number * US, number * US + 500, number)
            yield named(kernel(at, at + us, number), name)
            at += us

    return loop(rows, steps=len(steps), every=1_000)


@pytest.mark.parametrize(
    ("steps", "lost", "fires"),
    [
        ([[*LAYER, *GRADIENT, *LAYER]] * 3, range(0), True),
        # of a layer that runs once a step, in forward or in backward
        ([[*OTHER, *GRADIENT, *LAYER], [*LAYER, *GRADIENT, *OTHER]] * 2, range(0), False),
        # which pass the first of the two is of, nothing tells
        ([[*OTHER, *LAYER, *GRADIENT, *LAYER]] * 3, range(5, 9), False),
    ],
)
def test_what_runs_once_in_each_step_is_not_computed_again(
    steps: list[Kernels], lost: range, *, fires: bool
) -> None:
    assert bool(found(recomputation, stepped(*steps, lost=lost))) == fires


def with_launches(code_us: int, kernel_us: int, *more: Row) -> JudgedReport:
    """Steps of a layer, its gradient and the layer again. Before each kernel the host works
    `code_us` and launches for 5 us; each kernel takes `kernel_us`."""
    rows: list[Row] = [*more]
    every, free = code_us + 5, 0
    for number, (name, _) in enumerate([*LAYER, *GRADIENT, *LAYER] * 8):
        at = number * every
        if not number % 10:
            rows += [
                opened(at, at + 10 * every, "step"),
                opened(at + 4 * every, at + 10 * every, "backward"),
            ]
        rows.append(launch(at + code_us, at + every, number))
        start = max(at + every + 1, free)
        free = start + kernel_us
        rows.append(named(kernel(start, free, number), name))
    return judged(*rows)


def test_the_host_of_what_is_computed_again_counts_where_the_gpu_waits_for_it() -> None:
    subject = with_launches(code_us=25, kernel_us=3)
    (one,) = found(recomputation, subject)
    assert "launches and the code before each take the host 120 us a step" in one.evidence[-1]
    assert one.size_ns == one.at_most_ns == 4 * (25 + 5 + 3) * US
    # of six launches of the backward pass the first is not counted
    [(phase, factor)] = changes_of(one).faster_host
    assert phase == "step/backward"
    assert factor == pytest.approx(1 - 4 * (25 + 5) / (5 * 25))
    assert 4 * 3 * US < valued_of("recomputation", subject).high_ns <= one.at_most_ns


def test_the_host_of_what_is_computed_again_counts_nothing_where_the_gpu_is_the_limit() -> None:
    saved = valued_of("recomputation", with_launches(code_us=5, kernel_us=40))
    assert changes_of(saved.finding).faster_host == (("step/backward", 0),)
    assert saved.alone_ns == 4 * 40 * US


@pytest.mark.parametrize(
    ("runs", "place"), [("checkpoint", ", train.py:1 in encode"), ("<module>", "")]
)
def test_the_line_that_checkpoints_is_named_and_not_the_one_that_imports(
    runs: str, place: str
) -> None:
    ran = sample(7, "encode")
    inside = Frame("/env/torch/utils/checkpoint.py", 80, runs)
    subject = with_launches(5, 40, replace(ran, frames=(inside, *ran.frames)))
    assert asked(recomputation, subject).title == (
        f"the forward pass is computed again in backward{place}: 40 % of kernel time"
    )


def building_in(
    slow: int | None,
    *,
    built: str = "k",
    grid: int = 1,
    late_in: tuple[int, ...] = (),
    compiled: bool = False,
    steps: int = 20,
) -> JudgedReport:
    """So many steps of 2 ms with two kernels each; in one of them code is built and loaded between
    these, which takes 50 ms. Its second kernel has another name or grid, and may be `compiled`. In
    the steps `late_in` other host code takes 30 ms there."""
    rows: list[Row] = []
    start = 0
    for i in range(steps):
        late = 50_000 if i == slow else 30_000 if i in late_in else 0
        call_, op = launched(late + 700, 900, name=built if i == slow else "k")
        step = [opened(0, 1_990 + late, "step"), *launched(10, 900), call_]
        if i == slow:
            step.append(call(49_000, 49_100, "cuModuleLoadData"))
            op = replace(op, shape=Shape(grid_x=grid))
            if compiled:
                step.append(opened(1_000, 40_000, "_compile.compile_inner (dynamo_timed)"))
        rows += later([*step, op], start)
        start += 2_000 + late
    return judged(*rows)


@pytest.mark.parametrize("compiled", [True, False])
def test_one_step_of_many_that_builds_code_is_a_finding_with_its_step(*, compiled: bool) -> None:
    first = find(building_in(12, compiled=compiled)).valued[0]
    assert first.finding.rule == "recompile"
    does = "compiles GPU code again" if compiled else "loads new GPU code"
    assert first.finding.title.startswith(f"step 12 {does}: 5")
    assert ("1 range of a compiler begins" in first.finding.evidence[0]) == compiled
    assert 2 * MS < first.high_ns < 3.2 * MS  # 50 ms over 20 steps


@pytest.mark.parametrize(
    ("built", "grid", "reason"),
    [
        ("new_kernel", 1, "1 kernel runs for the first time: new_kernel"),
        ("k", 9, "a shape is new: the grid of k is 9x1x1, 1x1x1 before"),
    ],
)
def test_new_kernels_and_new_shapes_are_named(built: str, grid: int, reason: str) -> None:
    (one,) = found(recompile, building_in(12, built=built, grid=grid))
    assert reason in one.evidence


@pytest.mark.parametrize(
    ("slow", "steps", "over"), [(12, 60, True), (35, 60, False), (3, 22, False)]
)
def test_what_loads_code_in_the_beginning_alone_says_so(
    slow: int, steps: int, *, over: bool
) -> None:
    """Half of the steps, 20 or more, then have no new code."""
    (one,) = found(recompile, building_in(slow, steps=steps))
    assert one.title.endswith("in the first half of the recording alone") == over


def test_other_long_steps_beside_one_that_builds_code_are_a_finding_of_their_own() -> None:
    (one,) = found(periodic_pause, building_in(12, late_in=(5, 16)))
    assert one.rule == "longer-steps"
    assert one.title.startswith("2 of 19 steps take longer, 60.0 ms in all: host code")
    assert one.evidence[0].startswith("steps 5, 16 take 30.0 ms longer")
    assert one.size_ns == pytest.approx(60 * MS / 19, rel=0.01)
    assert not found(periodic_pause, building_in(12, late_in=(5,)))


def test_loops_that_build_nothing_compile_nothing() -> None:
    assert not found(recompile, building_in(None))
