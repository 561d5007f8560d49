"""Several backward passes of a step: through the same layers, or through others."""

from typing import Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.backward_passes import backward_per_loss, repeated_parts
from tests import tiny
from tests.analyses import EXAMPLES
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    Row,
    changes_of,
    found,
    judged,
    left_of,
    named,
    valued_of,
)
from tests.in_us import opened
from tests.oracle.backward_passes import Kernel, walked_again

KINDS: Final = ("elementwise", "copy/cast", "matmul", "norm")

HEAD_KEYS: Final = st.lists(st.integers(0, 3), max_size=2)
ADDS: Final = st.lists(st.integers(0, 1), min_size=4, max_size=4)
PASS: Final = st.tuples(HEAD_KEYS, ADDS, st.sampled_from([[], [], [], [3]]))
STEP: Final = st.tuples(HEAD_KEYS, st.lists(PASS, min_size=1, max_size=3), st.integers(0, 3))
TRUNK: Final = st.lists(st.integers(1, 3), max_size=3)
Step = tuple[list[int], list[tuple[list[int], list[int], list[int]]], int]


@settings(max_examples=4 * EXAMPLES)
@given(st.lists(st.tuples(TRUNK, st.lists(STEP, min_size=1, max_size=2)), min_size=1, max_size=2))
def test_what_later_passes_repeat_is_what_the_oracle_says(
    lanes: list[tuple[list[int], list[Step]]],
) -> None:
    rows = []
    expected: list[bool] = []
    for lane, (layers, steps) in enumerate(lanes):
        stream: list[Kernel] = []
        for step, (forward, parts, loss) in enumerate(steps):
            stream += [Kernel(key, step, False, 0, KINDS[key]) for key in forward]
            for number, (head, adds, tail) in enumerate(parts):
                stream.append(Kernel(loss, step, False, 0, KINDS[loss % 2]))
                keys = [*head]
                for key, more in zip([2, *layers], adds, strict=False):  # a product, at least
                    keys += [key, *[0] * (more * min(number, 1))]
                stream += [Kernel(key, step, True, 6, KINDS[key]) for key in [*keys, *tail]]
        rows += [(lane, k.step, k.backward, k.thread, k.kind, k.key) for k in stream]
        expected += walked_again(stream)
    columns = {
        "lane": pl.UInt32,
        "step": pl.Int64,
        "backward": pl.Boolean,
        "thread_no": pl.UInt32,
        "class": pl.String,
        "key": pl.UInt32,
    }
    repeated = repeated_parts(pl.DataFrame(rows, schema=columns, orient="row"))
    assert repeated["pass"].is_not_null().to_list() == expected


FORWARD: Final[Kernels] = [("sm90_gemm", 20), ("layer_norm", 5), ("sm90_gemm", 20)]
LOSS: Final[Kernels] = [("vectorized_elementwise_kernel", 1)]
HEAD: Final[Kernels] = [("sm80_gemm_nt", 10)]
ADD: Final[Kernels] = [("vectorized_elementwise_kernel", 5)]


def trunk(*, adds: bool) -> Kernels:
    """The backward pass of two layers, which adds to gradients that are there."""
    more = ADD if adds else []
    return [
        *[("sm90_gemm_nt", 20), ("sm90_gemm_tn", 20), *more, ("layer_norm_backward", 10), *more],
        *[("sm90_gemm_nt", 20), ("sm90_gemm_tn", 20), *more],
    ]


def passes(*parts: tuple[Kernels, bool], code_us: int = 5, ranges: bool = True) -> JudgedReport:
    """Steps of these parts, each of them the backward pass of one loss or not. Before each kernel
    the host works `code_us` and launches for 5 us; autograd's thread launches those of backward,
    perhaps in `ranges`."""
    rows: list[Row] = []
    at, free, number = 10, 0, 0
    for _ in range(8):
        begun = at
        for kernels, backward in parts:
            thread = tiny.AUTOGRAD if backward else tiny.MAIN
            if backward and ranges:
                length = len(kernels) * (code_us + 5)
                rows.append(opened(at, at + length, "backward"))
            for name, us in kernels:
                at, number = at + code_us + 5, number + 1
                rows.append(tiny.launch((at - 5) * US, at * US, number, thread=thread))
                start = max(at + 1, free)
                free = start + us
                rows.append(named(tiny.kernel(start * US, free * US, number), name))
        rows.append(opened(begun - 1, at + 1, "step"))
        at += 10
    return judged(*rows)


FIRST: Final = ([*HEAD, *trunk(adds=False)], True)
SECOND: Final = ([*HEAD, *trunk(adds=True)], True)


@pytest.mark.parametrize(
    ("parts", "fires"),
    [
        ([(FORWARD, False), FIRST, (LOSS, False), SECOND], True),
        # gradient accumulation, and a GAN: a forward pass between
        ([(FORWARD, False), FIRST, (FORWARD, False), SECOND], False),
        # two networks that are built alike, or gradients that are wanted one by one
        ([(FORWARD, False), FIRST, (LOSS, False), FIRST], False),
        ([(FORWARD, False), SECOND, (LOSS, False), SECOND], False),
        # another network, into which the first one's gradients do not go
        ([(FORWARD, False), FIRST, (LOSS, False), ([*HEAD, *HEAD, *ADD], True)], False),
        ([(FORWARD, False), SECOND], False),
    ],
)
def test_passes_through_the_same_layers_are_found(
    parts: list[tuple[Kernels, bool]], *, fires: bool
) -> None:
    findings = found(backward_per_loss, passes(*parts))
    assert len(findings) == fires
    for one in findings:
        assert one.title.startswith("2 backward passes in a row through the same layers: 33 %")
        assert one.evidence[0].endswith(": 7 kernels a step, 85.0 us, 33 % of kernel time")


def test_passes_are_told_by_the_thread_that_launches_them_without_ranges() -> None:
    parts = [(FORWARD, False), FIRST, (LOSS, False), SECOND]
    (one,) = found(backward_per_loss, passes(*parts, ranges=False))
    assert "7 kernels a step" in one.evidence[0]


def test_each_pass_but_the_first_counts() -> None:
    three = passes((FORWARD, False), FIRST, (LOSS, False), SECOND, (LOSS, False), SECOND)
    (one,) = found(backward_per_loss, three)
    assert one.title.startswith("3 backward passes in a row")
    assert one.evidence[0].split(": ")[1].startswith("14 kernels a step, 170 us")


def test_the_host_of_repeated_passes_counts_where_the_gpu_waits_for_it() -> None:
    parts = [(FORWARD, False), FIRST, (LOSS, False), SECOND]
    subject = passes(*parts, code_us=60)
    (one,) = found(backward_per_loss, subject)
    assert "launches and the code before each take the host 455 us a step" in one.evidence[-1]
    assert one.size_ns == one.at_most_ns == (7 * 65 + 85) * US
    assert set(left_of(one)) == {name for name, _ in trunk(adds=True)}
    assert [phase for phase, _ in changes_of(one).faster_host] == ["step/backward"]
    assert 85 * US < valued_of("backward-per-loss", subject).high_ns <= one.at_most_ns
