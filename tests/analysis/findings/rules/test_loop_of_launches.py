"""Python loops that launch a few small kernels in each pass."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.host_code import data_loading, loop_of_launches
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, found, judged, named

EVERY_US = 4_000
UPDATES = (names.MUL, names.ADD)
READ = f"{names.ADD} of a value that is read"


def step(
    start: int,
    i: int,
    *,
    count: int,
    model: int,
    kinds: tuple[str, ...],
    inside: str,
    pause_us: int,
) -> Iterator[Row]:
    """A model of `model` matmuls, then `count` small kernels, 20 us apart, in the range `inside` or
    in none.

    The host pauses once, after 21 of them. It waits for each kernel named READ.
    """
    yield tiny.opened(start, start + 100 * US, "forward")
    for k in range(model):
        begin, number = start + (5 + k) * US, 1_000 * i + 500 + k
        yield tiny.launch(begin, begin + 500, number)
        yield named(tiny.kernel(begin + 600, begin + 1_500, number), names.PRODUCT)
    if inside:
        yield tiny.opened(start + 101 * US, start + (110 + 20 * count) * US, inside)
    for k in range(count):
        begin = start + (110 + 20 * k + (pause_us if k > 20 else 0)) * US
        number = 1_000 * i + k + 1
        yield tiny.launch(begin, begin + 6 * US, number)
        ran = tiny.kernel(begin + 8 * US, begin + 10 * US, number)
        kind = kinds[k % len(kinds)]
        yield named(ran, kind)
        if kind == READ:
            yield tiny.call(begin + 7 * US, begin + 12 * US, "cudaStreamSynchronize")


def program(
    *,
    count: int = 120,
    model: int = 60,
    kinds: tuple[str, ...] = UPDATES,
    inside: str = "",
    marked: bool = False,
    pause_us: int = 0,
) -> JudgedReport:
    """Eight steps of 4 ms: those of `forward`, or `marked` with a range of their own."""
    rows: list[Row] = []
    for i in range(8):
        start = i * EVERY_US * US
        if marked:
            rows.append(tiny.opened(start, start + EVERY_US * US - 1, "step"))
        rows += step(
            start,
            i,
            count=count,
            model=model,
            kinds=kinds,
            inside=inside,
            pause_us=pause_us,
        )
    return judged(*rows)


@pytest.mark.parametrize(
    ("inside", "marked", "graph", "where"),
    [
        ("", False, "(outside ranges)", "outside any range"),
        ("", True, "step/.", "in step"),
        ("ema", True, "step/ema", "in step/ema"),
    ],
)
def test_a_loop_is_found_where_it_runs(
    inside: str, *, marked: bool, graph: str, where: str
) -> None:
    (one,) = found(loop_of_launches, program(inside=inside, marked=marked))
    assert one.title == f"a loop launches 120 small kernels a step {where}"
    assert one.changes is not None
    assert one.changes.graphs == (graph,)
    assert {round(factor, 2) for _, factor in one.changes.scaled} == {0.2}


@pytest.mark.parametrize(("inside", "marked"), [("", False), ("", True), ("ema", True)])
def test_its_launches_become_one_and_come_before_a_graph_of_the_step(
    inside: str, *, marked: bool
) -> None:
    first = find(program(inside=inside, marked=marked)).valued[0]
    assert (first.finding.rule, first.finding.method) == ("loop-of-launches", "bound")
    # 119 pauses of 18 us behind the first launch, and most of 240 us of kernels
    assert first.high_ns == pytest.approx(119 * 18 * US + 0.8 * 240 * US, rel=0.05)


@pytest.mark.parametrize(
    ("count", "model", "kinds", "inside"),
    [
        (90, 60, UPDATES, ""),
        (120, 10, UPDATES, ""),
        (120, 60, (names.PRODUCT, names.ADD), ""),
        (120, 60, tuple(f"{names.ADD}#{k}" for k in range(20)), ""),
        (120, 60, UPDATES, "backward"),
        (120, 60, (names.MUL, READ), ""),
    ],
    ids=["few", "the whole step", "a model", "many different ones", "of autograd", "of reads"],
)
def test_no_loop_of_launches_is(
    count: int, model: int, kinds: tuple[str, ...], inside: str
) -> None:
    subject = program(count=count, model=model, kinds=kinds, inside=inside)
    assert not found(loop_of_launches, subject)


@pytest.mark.parametrize(("count", "said"), [(50, True), (120, False)])
def test_host_code_of_the_loop_is_not_said_twice(count: int, *, said: bool) -> None:
    assert bool(found(data_loading, program(count=count, pause_us=150))) == said
