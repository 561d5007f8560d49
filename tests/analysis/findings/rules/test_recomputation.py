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
    found,
    judged,
    launched,
    left_of,
    named,
    subject_of,
)
from tests.oracle.model import Op, Shape
from tests.oracle.recomputed import Kernel
from tests.oracle.recomputed import recomputed as again

MATRIX: Final = 2
"""Keys below this are matrix products."""

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
        {
            "lane": lane,
            "step": at // step,
            "key": key,
            "backward": backward,
            "class": "matmul" if key < MATRIX else "norm",
        }
        for lane, stream in enumerate(lanes)
        for at, (key, backward) in enumerate(stream)
    ]
    schema = {
        "lane": pl.UInt32,
        "step": pl.Int64,
        "key": pl.UInt32,
        "backward": pl.Boolean,
        "class": pl.String,
    }
    expected = [
        one
        for stream in lanes
        for one in again(
            [Kernel(key, at // step, back, key < MATRIX) for at, (key, back) in enumerate(stream)]
        )
    ]
    assert recomputed(pl.DataFrame(rows, schema=schema)).to_list() == expected


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
    ],
)
def test_only_runs_of_the_forward_pass_in_the_backward_pass_are_found(
    kernels: Kernels, backward_from: int, blocks: tuple[int, ...], fires: bool
) -> None:
    begin, end = backward_from * US, (len(kernels) + 1) * US
    ranges = (tiny.opened(begin, end, "backward"),) if begin < end else ()
    subject = subject_of(kernels, blocks=blocks, ranges=ranges)
    assert bool(found(recomputation, subject)) == fires
    if fires:
        (one,) = found(recomputation, subject)
        assert one.title.endswith(": 25 % of kernel time")
        assert "4 kernels, 50.0 us, 25 % of kernel time" in one.evidence[0]
        assert set(left_of(one).values()) == {0.5}
        assert "recomputation" in {each.finding.rule for each in find(subject).valued}


def stepped(*steps: Kernels, lost: range = range(0)) -> JudgedReport:
    """Steps of 1 ms with these kernels, the backward pass from the fifth on; those with these
    numbers have no launch in the first step."""

    def rows() -> Iterator[Row]:
        for i, kernels in enumerate(steps):
            start = i * MS
            yield tiny.opened(start, start + MS - 1, "step")
            yield tiny.opened(start + 5 * US, start + 99 * US, "backward")
            at = start + 10 * US
            for number, (name, us) in enumerate(kernels, 1):
                call = 100 * i + number
                if i or number not in lost:
                    yield tiny.launch(start + number * US, start + number * US + 500, call)
                yield named(tiny.kernel(at, at + us * US, call), name)
                at += us * US

    return judged(*rows())


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


def with_launches(code_us: int, kernel_us: int) -> JudgedReport:
    """Steps of a layer, its gradient and the layer again. Before each kernel the host works
    `code_us` and launches for 5 us; each kernel takes `kernel_us`."""

    def rows() -> Iterator[Row]:
        at, free = 0, 0
        for i in range(8):
            yield tiny.opened(at, at + 10 * (code_us + 5) * US, "step")
            backward = at + 4 * (code_us + 5) * US
            yield tiny.opened(backward, backward + 6 * (code_us + 5) * US, "backward")
            for number, (name, _) in enumerate([*LAYER, *GRADIENT, *LAYER], 100 * i):
                launch = at + code_us * US
                at = launch + 5 * US
                yield tiny.launch(launch, at, number)
                start = max(at + US, free)
                free = start + kernel_us * US
                yield named(tiny.kernel(start, free, number), name)

    return judged(*rows())


def test_the_host_of_what_is_computed_again_counts_where_the_gpu_waits_for_it() -> None:
    subject = with_launches(code_us=25, kernel_us=3)
    (one,) = found(recomputation, subject)
    assert "launches and the code before each take the host 120 us a step" in one.evidence[1]
    assert one.size_ns == one.at_most_ns == 4 * (25 + 5 + 3) * US
    # of six launches of the backward pass the first is not counted
    assert one.changes is not None
    [(phase, factor)] = one.changes.faster_host
    assert phase == "step/backward"
    assert factor == pytest.approx(1 - 4 * (25 + 5) / (5 * 25))
    (saved,) = (each for each in find(subject).valued if each.finding.rule == "recomputation")
    assert 4 * 3 * US < saved.high_ns <= one.at_most_ns


def test_the_host_of_what_is_computed_again_counts_nothing_where_the_gpu_is_the_limit() -> None:
    subject = with_launches(code_us=5, kernel_us=40)
    (saved,) = (each for each in find(subject).valued if each.finding.rule == "recomputation")
    assert saved.finding.changes is not None
    assert saved.finding.changes.faster_host == (("step/backward", 0),)
    assert saved.alone_ns == 4 * 40 * US


KERNEL: Final = "k"


def building_in(
    slow: int | None,
    steps: int = 20,
    *,
    built: str = KERNEL,
    grid: int = 1,
    late_in: tuple[int, ...] = (),
    compiled: bool = False,
) -> JudgedReport:
    """Steps of 2 ms with two kernels each; in one of them code is built and loaded between these,
    which takes 50 ms. Its second kernel has another name or grid, and may be `compiled`. In the
    steps `late_in` other host code takes 30 ms there."""

    def rows() -> Iterator[Row]:
        start = 0
        for i in range(steps):
            builds = i == slow
            late = 50_000 if builds else 30_000 if i in late_in else 0
            yield tiny.opened(start, start + (1_990 + late) * US, "step")
            yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=900 * US)
            if builds and compiled:
                dynamo = "_compile.compile_inner (dynamo_timed)"
                yield tiny.opened(start + 1_000 * US, start + 40_000 * US, dynamo)
            if builds:
                yield tiny.call(start + 49_000 * US, start + 49_100 * US, "cuModuleLoadData")
            for row in launched(start, 100 * i + 2, at=late + 700, took=5, kernel_ns=900 * US):
                if builds and isinstance(row, Op):
                    shape = Shape(grid_x=grid)
                    row = replace(row, name=built, short_name=built, shape=shape)
                yield row
            start += (2_000 + late) * US

    return judged(*rows())


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
        (KERNEL, 9, "a shape is new: the grid of k is 9x1x1, 1x1x1 before"),
    ],
)
def test_new_kernels_and_new_shapes_are_named(built: str, grid: int, reason: str) -> None:
    (one,) = found(recompile, building_in(12, built=built, grid=grid))
    assert reason in one.evidence


def test_other_long_steps_beside_one_that_builds_code_are_a_finding_of_their_own() -> None:
    (one,) = found(periodic_pause, building_in(12, late_in=(5, 16)))
    assert one.rule == "longer-steps"
    assert one.title.startswith("2 of 19 steps take longer, 60.0 ms in all: host code")
    assert one.evidence[0].startswith("steps 5, 16 take 30.0 ms longer")
    assert one.size_ns == pytest.approx(60 * MS / 19, rel=0.01)
    assert not found(periodic_pause, building_in(12, late_in=(5,)))


def test_loops_that_build_nothing_compile_nothing() -> None:
    assert not found(recompile, building_in(None))
