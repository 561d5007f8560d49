from collections.abc import Iterable

import pytest

from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared, obstacles, over_time, remarks
from tests.compare.handmade import capture, ranks, row, track

STEADY = [100_000 + at % 3 for at in range(40)]
SLOWER = [each * 2 for each in STEADY]


def test_the_slowest_ranks_are_compared_and_each_with_its_like() -> None:
    base = ranks(track(row(*STEADY)), track(row(*SLOWER), device=1))
    new = ranks(track(row(*SLOWER)), track(row(*STEADY), device=1))
    found = compared([base], [new])
    assert found.change.verdict == "no significant change"
    assert [each.change.verdict for each in found.tracks] == ["worse", "better"]


def test_ranks_are_not_compared_one_by_one_where_their_numbers_differ() -> None:
    two = ranks(track(row(*STEADY)), track(row(*STEADY), device=1))
    assert compared([capture(row(*STEADY))], [two]).tracks == []


def test_over_time_each_capture_is_compared_with_the_first_and_the_last() -> None:
    captures = [capture(row(*STEADY)), capture(row(*SLOWER)), capture(row(*STEADY))]
    first, second, third = over_time(captures)
    assert first.since_first is first.since_last is None
    assert second.since_last is not None
    assert third.since_first is not None
    assert third.since_last is not None
    assert second.since_last.change.verdict == "worse"
    assert third.since_last.change.verdict == "better"
    assert third.since_first.change.verdict == "no significant change"


SAME = capture(row(100, 100))
TWO_RANKS = ranks(track(row(100)), track(row(100), device=1))
PART = capture(row(100), selection="--steps 2:5")
FLOAT, BF16 = (capture(row(100), unit=unit) for unit in ("float32", "bf16"))
PHASES = ("step/encode", "step/decode", "step/extra")
AUTOMATIC = ("forward", "backward", "optimizer")


def of_phases(phases: Iterable[str], name: str) -> Capture:
    return capture(*(row(9, phase=phase, name=name) for phase in phases))


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (SAME, capture(row(1), gpu="NVIDIA A100"), "different GPUs: NVIDIA H200 and NVIDIA A100"),
        (SAME, TWO_RANKS, "different numbers of ranks: 1 and 2"),
        (FLOAT, BF16, "different precision: matrix products are mostly float32 and bf16"),
        (SAME, capture(row(100), step_name="epoch"), "different steps: step and epoch; name the"),
        (SAME, PART, "different parts of the recordings: all of it, and --steps 2:5"),
        (SAME, capture(row(9), name="bad", invalid="Cut"), "bad cannot be judged: Cut"),
        (
            SAME,
            capture(row(5, name="gemm"), row(95, name="conv")),
            "different programs: 5 % of the kernel time is in kernels of the same name",
        ),
        # phases that every program has make no program the same
        (of_phases(AUTOMATIC, "conv"), of_phases(AUTOMATIC, "gemm"), "different programs: 0 %"),
    ],
)
def test_what_cannot_be_compared_has_one_reason(base: Capture, new: Capture, said: str) -> None:
    (found,) = obstacles([base], [new])
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("base", "new"),
    [
        (SAME, SAME),
        (SAME, BF16),  # a precision that is not known is no other
        (SAME, capture(row(100), step_name="train/step")),
        (PART, PART),
        (of_phases(PHASES, "eager"), of_phases(PHASES[:2], "fused")),
    ],
)
def test_what_is_one_program_can_be_compared(base: Capture, new: Capture) -> None:
    assert obstacles([base], [new]) == []
    assert remarks([base], [new]) == []


@pytest.mark.parametrize(("unprofiled_ns", "said"), [(95, 0), (80, 1)])
def test_a_profiler_that_slows_one_side_more_is_said(unprofiled_ns: int, said: int) -> None:
    base, new = (capture(row(100), unprofiled_step_ns=ns) for ns in (100, unprofiled_ns))
    assert len(remarks([base], [new])) == said
    assert obstacles([base], [new]) == []
