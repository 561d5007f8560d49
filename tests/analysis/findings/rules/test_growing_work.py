"""Work that takes longer from step to step, and what looks like it."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

import polars as pl
import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.extra_kernels import concatenation
from nsysflow.analysis.findings.rules.growing_work import (
    CHANGE,
    CHANGE_OF_COPIES,
    CHANGE_OF_GRAPH,
    CORRELATED,
    EACH_PART,
    LEAST_STEPS,
    PARTS,
    RISE,
    growing_work,
    trends,
)
from tests import in_us, tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, asked, found, launched, left_of, loop, seen

SORT: Final = "DeviceRadixSortOnesweepKernel"
CAT: Final = "void at::native::<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)3>(T1 *)"
NCCL: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm *, unsigned long)"
UPDATE: Final = (names.FOREACH, 40, "update")

Times = Callable[[int], int]
"""The time of a kernel in us by the number of its step."""


def evenly(step: int) -> int:
    return 40 + 2 * step


def program(
    grown: str = SORT,
    times: Times = evenly,
    *,
    product: Times = lambda _: 300,
    at: str = "compute:7",
    steps: int = 32,
) -> JudgedReport:
    """Steps with a product, an update, and kernels of one line."""

    def rows(step: int) -> list[Row]:
        layers = (names.PRODUCT, product(step), "block:3")
        code = (grown, times(step), at)
        return seen(layers, code, UPDATE, threads={"backward": tiny.AUTOGRAD})

    return loop(rows, every=1_200, steps=steps)


def named(subject: JudgedReport) -> list[Finding]:
    return found(growing_work, subject)


def test_the_line_is_named_with_how_much_it_grows() -> None:
    one = asked(growing_work, program())
    assert (
        one.title
        == "kernels take longer from step to step, 45.0 us → 94.0 us, most at train.py:7 in compute"
    )
    assert one.evidence[0].startswith("each step takes 2.00 us more than the one before it")
    assert one.source == "train.py:7 in compute"
    assert one.change == CHANGE
    assert left_of(one) == {SORT: 0.0}
    assert one.growth is not None
    assert one.growth.ns_a_step == pytest.approx(2_000)
    assert one.method == "bound"


def test_lines_of_one_function_are_one_finding() -> None:
    body = [(names.PRODUCT, 300, "block:3"), UPDATE]

    def rows(step: int) -> list[Row]:
        more = [(SORT, 20 + step, "compute:7"), (names.MUL, 20 + step, "compute:9")]
        return seen(*body, *more, (names.ADD, 20 + step, "log:30"))

    titles = [one.title for one in named(loop(rows, every=1_200, steps=32))]
    assert [title.split(", ")[1] for title in titles] == ["45.0 us → 94.0 us", "22.5 us → 47.0 us"]


def test_without_lines_the_kernels_are_named() -> None:
    def rows(step: int) -> list[Row]:
        product = launched(10, 300, name=names.PRODUCT)
        return [*product, *launched(60, 40 + 2 * step, queued=300, name=SORT)]

    one = asked(growing_work, loop(rows, every=1_200, steps=32))
    assert one.culprit == SORT
    assert not one.source


@pytest.mark.parametrize(
    "times",
    [
        lambda step: 40 + random.Random(step).randrange(200),
        lambda step: 40 + 10 * (step % 16),
        lambda step: 40 + 100 * (step >= 16) + step % 3,
        lambda step: 40 if step % 2 else 40 + 4 * step,
        lambda step: 120 - 2 * step,
        lambda step: 100 + step // 2,
        lambda _: 40,
    ],
    ids=["random", "sorted", "jump", "in turn", "falls", "a little", "even"],
)
def test_other_series_are_not_named(times: Times) -> None:
    assert not named(program(times=times))


def test_too_few_steps_show_no_trend() -> None:
    assert not named(program(steps=19))
    assert named(program(steps=24))


@pytest.mark.parametrize(
    "product", [lambda step: 300 + 15 * step, lambda step: 300 + 2 * step], ids=["much", "little"]
)
def test_nothing_is_named_where_most_products_take_longer_too(product: Times) -> None:
    """Batches grow, or the clock falls."""
    assert not named(program(product=product))


def test_products_of_random_sizes_do_not_hide_what_grows() -> None:
    assert named(program(product=lambda step: 300 + random.Random(step).randrange(200)))


def test_communication_waits_for_others() -> None:
    assert not named(program(NCCL))


def test_a_backward_pass_that_grows_takes_what_one_step_adds() -> None:
    """The state of a recurrent model that nobody detaches."""
    one = asked(growing_work, program(names.MUL, lambda step: 10 + 10 * step, at="backward:9"))
    assert one.change == CHANGE_OF_GRAPH
    assert left_of(one)[names.MUL] == pytest.approx(0.06, abs=0.01)


def generating(grown: str) -> JudgedReport:
    """Text is generated: products, attention that reads a longer context with each token, and a
    kernel that grows with it."""
    attention = "flash_fwd_splitkv_kernel"

    def rows(step: int) -> list[Row]:
        layer = [(names.PRODUCT, 300, "block:3"), (attention, 50 + 3 * step, "block:4")]
        return seen(*layer, (grown, 40 + 2 * step, "append:7"))

    return loop(rows, every=1_200, steps=32)


def test_attention_to_a_longer_context_is_needed_and_copies_of_it_are_not() -> None:
    assert not named(generating(names.MUL))
    one = asked(growing_work, generating(CAT))
    assert one.change == CHANGE_OF_COPIES
    assert left_of(one) == {CAT: 0.0}


def test_copies_that_grow_are_told_once() -> None:
    subject = program(CAT, lambda step: 100 + 5 * step)
    assert named(subject)
    assert not found(concatenation, subject)


def searching(growing: bool) -> JudgedReport:
    """Steps in which the host searches a list before it launches the second kernel."""

    def rows(step: int) -> list[Row]:
        took = 400 + 40 * step * growing
        looks = [in_us.sample(at, "find", "main") for at in range(30, 20 + took, 20)]
        again = launched(40 + took, 100, name=names.PRODUCT)
        return [*launched(10, 20, name=names.ADD), *looks, *again]

    return loop(rows, every=2_000, steps=32)


def test_code_that_the_gpu_waits_for_longer_each_time_is_named_once() -> None:
    one = asked(growing_work, searching(growing=True))
    assert one.title.startswith("the GPU waits for find (train.py:1) longer from step to step, ")
    assert one.growth is not None
    assert one.growth.ns_a_step == pytest.approx(40_000, rel=0.05)
    rules = [each.finding.rule for each in find(searching(growing=True)).valued]
    assert "growing-work" in rules
    assert "host-code" not in rules
    assert not named(searching(growing=False))


def test_a_wait_for_another_process_is_no_work() -> None:
    def rows(step: int) -> list[Row]:
        took = 400 + 40 * step
        looks = []
        for at in range(30, 20 + took, 20):
            ran = in_us.sample(at, "wait", "main")
            library = replace(ran.frames[0], file="/usr/lib/python3.12/threading.py")
            looks.append(replace(ran, frames=(library, *ran.frames[1:])))
        again = launched(40 + took, 100, name=names.PRODUCT)
        return [*launched(10, 20, name=names.ADD), *looks, *again]

    assert not named(loop(rows, every=2_000, steps=32))


@pytest.mark.parametrize(
    ("later_us", "middle", "first"),
    [
        (None, None, False),
        (1_300, 120, False),
        (1_350, None, False),
        (1_350, 166, True),
        (1_350, 80, False),
        (1_350, 330, False),
    ],
    ids=["unknown", "about as long", "no number", "explained", "by little", "it has ended"],
)
def test_it_comes_first_where_it_explains_that_later_steps_take_longer(
    monkeypatch: pytest.MonkeyPatch, later_us: int | None, middle: float | None, first: bool
) -> None:
    """Steps of 1.2 ms, each 1 us more than the one before it, with two norms that save more."""

    def rows(step: int) -> list[Row]:
        norms = [(names.MUL, 100, "norm:5"), (names.ADD, 100, "norm:6")] * 2
        return seen((names.PRODUCT, 300, "block:3"), *norms, (SORT, 40 + step, "compute:7"))

    subject = loop(rows, every=1_200, steps=32)
    later_ns = later_us and later_us * in_us.US
    options = subject.timeline.options
    options = replace(options, unrecorded_step_ns=later_ns, unrecorded_middle=middle)
    monkeypatch.setattr(subject.timeline, "options", options)
    rules = [one.finding.rule for one in find(subject).valued]
    assert "growing-work" in rules
    assert (rules[0] == "growing-work") == first


def plain_trend(times: list[float]) -> tuple[float, bool]:
    """The slope and whether it grows, from the definition (spec §16.35)."""
    count = len(times)
    half = count // 2
    slope = median((times[count - half + at] - times[at]) / (count - half) for at in range(half))
    cuts = [count * part // PARTS for part in range(PARTS + 1)]
    parts = [median(times[begin:end]) for begin, end in pairwise(cuts)]
    rise = parts[-1] - parts[0]
    ranks = sorted(range(count), key=lambda at: times[at])
    apart = sum((rank - at) ** 2 for rank, at in enumerate(ranks))
    correlation = 1 - 6 * apart / (count * (count**2 - 1))
    in_each = all(after - before > EACH_PART * rise for before, after in pairwise(parts))
    grows = in_each and parts[-1] >= RISE * parts[0] and correlation >= CORRELATED
    return slope, grows


def trend(times: list[float]) -> dict[str, float]:
    series = pl.DataFrame({"key": 0, "step": range(len(times)), "ns": times})
    (row,) = trends(series, "key").rows(named=True)
    return row


@pytest.mark.parametrize("seed", range(100))
def test_a_trend_is_that_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    slope = draw.choice([0.0, 0.0, draw.uniform(0, 0.05)])
    noise = draw.choice([0.01, 0.1, 0.5])
    times = [
        1_000 * (1 + slope * at) * (1 + noise * draw.uniform(-1, 1))
        for at in range(draw.randrange(LEAST_STEPS, 120))
    ]
    row = trend(times)
    expected, grows = plain_trend(times)
    assert row["slope_ns"] == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert row["grows"] == grows
    if slope == 0:
        assert not grows
    elif noise == 0.01 and slope * len(times) > 0.6:
        assert grows
        assert row["slope_ns"] == pytest.approx(1_000 * slope, rel=0.06)
