"""One line that takes much of the kernel time, and where its finding stands in the plan."""

from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.costly_line import (
    costly_line,
    with_costly_line_early,
    without_told_lines,
)
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, asked, found, left_of, loop, seen, valued_of
from tests.oracle.model import Sample

SUM: Final = "void at::native::reduce_kernel<(int)512, (int)1, ReduceOp<float, NormTwoOps>>(T3)"

ENLARGE: Final = "void at::native::<unnamed>::upsample_bilinear2d_nhwc_out_frame<float>(T2)"

Launches = list[tuple[str, int, str]]

LAYERS: Final[Launches] = [(names.PRODUCT, 300, "block:3"), (names.ADD, 60, "block:4")] * 2
"""Two layers, each with a kernel beside its product."""

NORMS: Final[Launches] = [(SUM, 80, "search:7"), (names.MUL, 60, "search:7")]


def program(launches: Launches, callers: dict[str, str] | None = None) -> JudgedReport:
    """Steps with these launches, as `seen` takes them, those of `backward` by autograd's thread;
    some lines with the function that calls them."""
    rows: list[Row] = []
    for row in seen(*launches, threads={"backward": tiny.AUTOGRAD}):
        if isinstance(row, Sample):
            caller = (callers or {}).get(str(row.frames[0].line), "main")
            outer = replace(row.frames[0], function=caller, line=1)
            rows.append(replace(row, frames=(*row.frames, outer)))
        else:
            rows.append(row)
    return loop(rows, every=1_100)


def test_a_line_beside_the_layers_is_named_with_all_of_its_function() -> None:
    one = asked(costly_line, program([*LAYERS, *NORMS, (names.UP, 20, "search:9")]))
    assert one.title == "one line takes 16 % of kernel time: train.py:7 in search"
    assert one.source == "train.py:7 in search"
    assert left_of(one) == {SUM: 0.0, names.MUL: 0.0, names.UP: 0.0}
    assert one.method == "bound"
    assert (
        one.evidence[2]
        == "all of search (train.py:7): 3 kernels a step, 160 us, 18 % of kernel time"
    )


@pytest.mark.parametrize("second", [NORMS, NORMS[:1]], ids=["the same calls", "calls that differ"])
def test_it_says_how_often_a_step_calls_the_line_with_the_same_sizes(second: Launches) -> None:
    one = asked(costly_line, program([*LAYERS[:2], *NORMS, *LAYERS[:2], *second]))
    same = second == NORMS
    assert (
        "kernel time, called 2 times a step with the same sizes: train.py:7" in one.title
    ) == same
    assert one.change[0].startswith("if its calls take the same values") == same


def test_a_line_of_a_layer_is_called_often_and_first_to_be_compiled() -> None:
    """A model has several of a layer, and each computes something else."""
    layer = [(SUM, 80, "forward:7"), (names.MUL, 70, "forward:7")]
    one = asked(costly_line, program([*LAYERS[:2], *layer, *LAYERS[:2], *layer]))
    assert one.title.endswith("of kernel time: train.py:7 in forward")
    assert one.change[0].startswith("torch.compile")
    assert one.change[-1].startswith("compute it once before the loop")


@pytest.mark.parametrize(
    ("name", "behind", "first"),
    [
        ("void indexFuncLargeIndex<float, long, ReduceAdd>(int)", names.PRODUCT, "if the product"),
        ("void indexFuncLargeIndex<float, long, ReduceAdd>(int)", names.ADD, "compute it once"),
        (names.MUL, names.PRODUCT, "compute it once"),
        (ENLARGE, names.PRODUCT, "if a 1x1 convolution"),
        (ENLARGE, names.ADD, "compute it once"),
    ],
    ids=[
        *("a product follows", "no product follows", "it adds up no rows"),
        *("it enlarges", "no product follows what enlarges"),
    ],
)
def test_what_costs_less_behind_the_product_that_follows_may_come_second(
    name: str, behind: str, first: str
) -> None:
    layer: Launches = [(names.UP, 40, "send:6"), (name, 90, "send:7"), (behind, 20, "layer:3")]
    one = asked(costly_line, program([*LAYERS, *layer]))
    assert one.source == "train.py:7 in send"
    assert one.change[0].startswith(first)


def test_the_function_has_its_part_of_the_backward_pass() -> None:
    backward = (names.DOWN, 100, "backward")
    one = asked(costly_line, program([*LAYERS, *NORMS, backward]))
    part = 140 / (2 * 360 + 140)
    assert left_of(one) == {SUM: 0.0, names.MUL: 0.0, names.DOWN: round(1 - part, 2)}
    assert one.evidence[2] == "its part of the backward pass is estimated as 16.3 us"


@pytest.mark.parametrize(
    "launches",
    [
        [*LAYERS, (names.MUL, 140, "block:7")],
        [*LAYERS, (names.PRODUCT, 140, "search:7")],
        [*LAYERS, (names.MUL, 80, "search:7"), (names.MUL, 60, "rank:9")],
        [(names.MUL, 140, "search:7")],
    ],
    ids=["of a layer", "a product", "two lines with less", "the only line"],
)
def test_no_costly_line_is(launches: Launches) -> None:
    assert not found(costly_line, program(launches))


def test_a_function_counts_less_the_nearer_it_is_to_a_layer() -> None:
    def cost_of_line(product_us: int) -> bool:
        line = [(names.PRODUCT, product_us, "search:7"), (names.MUL, 160, "search:7")]
        return bool(found(costly_line, program([*LAYERS, *line])))

    assert [cost_of_line(us) for us in (0, 10, 50)] == [True, True, False]


@pytest.mark.parametrize(("callers", "named"), [({}, False), ({"7": "search"}, True)])
def test_functions_of_one_name_are_told_apart_by_what_calls_them(
    callers: dict[str, str], *, named: bool
) -> None:
    of_block = [(name, us, code.replace("block", "forward")) for name, us, code in LAYERS]
    other = [(name, us, code.replace("search", "forward")) for name, us, code in NORMS]
    assert bool(found(costly_line, program([*of_block, *other], callers))) == named


@cache
def costly() -> Valued:
    return valued_of("costly-line", program([*LAYERS, *NORMS]))


def valued(rule: str, saved_ns: int, source: str = "", culprit: str = "") -> Valued:
    """A finding of kernels that saves so much."""
    one = costly()
    finding = replace(one.finding, rule=rule, source=source, culprit=culprit, table="kernels")
    return replace(one, finding=finding, alone_ns=saved_ns, alone_low_ns=0)


@pytest.mark.parametrize(
    ("rule", "saved_ns", "source", "first"),
    [
        ("unfused-elementwise", 200, "", True),
        ("unfused-elementwise", 400, "", False),
        ("unfused-elementwise", 200, "train.py:9 in rank", False),
        ("cast-storm", 200, "", True),
        ("unfused-loss", 200, "", False),
        ("real-fft", 40, "", True),
    ],
)
def test_a_costly_line_stands_before_what_names_no_place_and_behind_what_says_why(
    rule: str, saved_ns: int, source: str, *, first: bool
) -> None:
    line = valued("costly-line", 100, "train.py:7 in search")
    other = valued(rule, saved_ns, source)
    found = [other, line] if saved_ns > 100 else [line, other]
    assert (with_costly_line_early(found)[0] is line) == first


THERE: Final = "train.py:9 in search"


@pytest.mark.parametrize(
    ("rule", "saved_ns", "source", "culprit", "left"),
    [
        ("cast-storm", 49, THERE, "cast", True),
        ("cast-storm", 50, THERE, "cast", False),
        ("cast-storm", 50, "", "cast", True),
        ("full-sort", 9, THERE, "sort", False),
        ("full-sort", 9, "", "sort", False),
        ("full-sort", 9, "train.py:9 in rank", "sort", True),
        ("unfused-elementwise", 9, THERE, "sort", True),
        ("launch-bound", 9, THERE, "", False),
    ],
)
def test_a_costly_line_goes_where_another_finding_says_why(
    rule: str, saved_ns: int, source: str, culprit: str, *, left: bool
) -> None:
    line = valued("costly-line", 100, "train.py:7 in search", "sort")
    other = valued(rule, saved_ns, source, culprit)
    assert (line in without_told_lines([line, other])) == left
