"""Kernels of the forward pass that run again in the backward pass."""

from typing import Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.rules.extra_kernels import recomputation, recomputed
from tests import tiny
from tests.analyses import EXAMPLES
from tests.analysis.findings.subjects import US, Kernels, found, left_of, subject_of
from tests.oracle.recomputed import Kernel
from tests.oracle.recomputed import recomputed as again

MATRIX: Final = 2
"""Keys below this are matrix products."""

STREAM: Final = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12)
REPEATED: Final = st.tuples(STREAM, st.lists(st.integers(0, 3), min_size=3, max_size=6), STREAM)


@settings(max_examples=EXAMPLES)
@given(st.lists(REPEATED, max_size=2))
def test_what_is_computed_again_is_what_the_oracle_says(
    streams: list[tuple[list[tuple[int, bool]], list[int], list[tuple[int, bool]]]],
) -> None:
    # half of the streams would have nothing to find if no run were put into both passes
    lanes = [
        [*a, *((key, False) for key in run), *b, *((key, True) for key in run)]
        for a, run, b in streams
    ]
    rows = [
        {
            "lane": lane,
            "key": key,
            "backward": backward,
            "class": "matmul" if key < MATRIX else "norm",
        }
        for lane, stream in enumerate(lanes)
        for key, backward in stream
    ]
    schema = {"lane": pl.UInt32, "key": pl.UInt32, "backward": pl.Boolean, "class": pl.String}
    expected = [
        one
        for stream in lanes
        for one in again([Kernel(key, backward, key < MATRIX) for key, backward in stream])
    ]
    assert recomputed(pl.DataFrame(rows, schema=schema)).to_list() == expected


LAYER: Final[Kernels] = [
    ("layer_norm", 5),
    ("sm90_gemm", 20),
    ("gelu_kernel", 5),
    ("sm80_gemm", 20),
]
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
