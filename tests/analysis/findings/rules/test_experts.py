"""Loops over the experts of a layer, each with a wait for its rows."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.loops import expert_loop, loop_of_launches
from nsysflow.analysis.findings.rules.waits import waits
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    changes_of,
    found,
    launched,
    left_of,
    loop,
)
from tests.in_us import call, opened

NATIVE: Final = "void at::native::"
SWEEP: Final = "void at_cuda_detail::cub::detail::select::DeviceSelectSweepKernel<long>(T1)"
COUNT: Final = "void at_cuda_detail::cub::detail::reduce::DeviceReduceSingleTileKernel<long>(T1)"
GATHER: Final = f"{NATIVE}vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int)"
PUT: Final = f"{NATIVE}indexFuncLargeIndex<c10::BFloat16, long, unsigned int>(T1)"
PUT_WHERE: Final = f"{NATIVE}index_elementwise_kernel<gpu_index_kernel<index_put_kernel_impl<T>>>"
GRADIENT: Final = "void <unnamed>::indexing_backward_kernel<c10::BFloat16, (int)4>(const long *)"
FLASH: Final = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"
PRODUCTS: Final = ("nvjet_sm90_tst_64x88_64x11_2x1_v_bz_NNT", "nvjet_sm90_tst_64x96_64x10_2x1_NNT")
"""As the number of rows changes, so does the kernel."""

LAYER: Final = (names.ADD, names.PRODUCT, names.MUL)
BACK: Final = (GATHER, names.MUL, "product", "product", GRADIENT)


def expert(put: Sequence[str] = (PUT,)) -> tuple[str, ...]:
    return (names.MUL, COUNT, SWEEP, GATHER, "product", names.ADD, "product", *put)


EXPERT: Final = expert()


def step(
    *,
    layers: int = 3,
    experts: int = 4,
    layer: Sequence[str] = LAYER,
    each: Sequence[str] = EXPERT,
    between: Sequence[str] = (),
    backward: int | None = None,
) -> Iterator[Row]:
    """A forward and a backward pass of such layers, a launch each 20 us; the host waits right after
    each COUNT. In backward so many passes a layer, or one for each expert."""
    at = 20
    for phase, of in (("forward", (each, experts)), ("backward", (BACK, backward or experts))):
        begin = at
        for number in range(layers):
            kernels = [*layer, *(name for _ in range(of[1]) for name in (*of[0], *between))]
            for place, name in enumerate(kernels):
                kind = PRODUCTS[(number + place) % 2] if name == "product" else name
                yield from launched(at, 3, took=6, name=kind)
                if name == COUNT:
                    yield call(at + 7, at + 14, "cudaStreamSynchronize")
                at += 20
        yield opened(begin - 5, at, phase)
        at += 20


def program(**of: Any) -> JudgedReport:
    """Eight such steps."""
    return loop([*step(**of)], every=6_000)


@pytest.mark.parametrize("each", [EXPERT, expert((SWEEP, PUT_WHERE))], ids=["added", "out[mask] ="])
def test_experts_that_run_one_at_a_time_are_named_with_their_backward_pass(
    each: Sequence[str],
) -> None:
    one = asked(expert_loop, program(each=each))
    assert one.title == "experts run one at a time: 12 passes a step in step/forward"
    # the first pass of a layer begins with what the layer launches behind its product
    assert one.evidence[1].startswith(f"each pass launches {len(each)} kernels, and 5 in backward")
    assert one.evidence[2].startswith("each pass waits for the number of rows, 84.0 us a step")
    assert one.method == "bound"
    assert [removal.kind for removal in changes_of(one).removed] == ["sync"]
    assert {*left_of(one)}.isdisjoint({*PRODUCTS, names.PRODUCT})


def test_it_comes_first_and_takes_its_waits_and_launches_with_it() -> None:
    subject = program()
    assert len(subject.stalls_of_experts) == 12 * subject.steps
    assert not found(waits, subject)
    assert not found(loop_of_launches, subject)
    first, *_ = find(subject).valued
    assert first.finding.rule == "expert-loop"
    # 96 + 60 launches, 20 us each, and what their kernels take less
    assert 2_800 * US < first.high_ns <= first.finding.at_most_ns


def test_a_backward_pass_with_another_number_of_passes_is_not_its_own() -> None:
    one = asked(expert_loop, program(backward=6))
    assert "in backward" not in one.evidence[1]


@pytest.mark.parametrize(
    "of",
    [
        {"layers": 1},
        {"each": expert(())},
        {"each": (names.MUL, COUNT, SWEEP, GATHER, FLASH, PUT, "product", "product")},
        {"each": (names.MUL, COUNT, SWEEP, "product", "product", PUT)},
        {"between": (names.PRODUCT,)},
        {"each": (names.MUL, "product", names.ADD, "product", PUT)},
    ],
    ids=[
        "few",
        "of images, whose results stay apart",
        "of padding that attention leaves out",
        "of all rows",
        "of layers with other products between them",
        "without a list",
    ],
)
def test_no_loop_over_experts_is(of: dict[str, Any]) -> None:
    subject = program(**of)
    assert not found(expert_loop, subject)
    assert subject.stalls_of_experts.is_empty()
