"""Two sides compared, and reasons not to."""

import pytest

from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import common_kernels_pct, compared, obstacles, over_time, remarks
from tests.compare.handmade import capture, ranks, row, track

STEADY = [100_000 + at % 3 for at in range(40)]
SLOWER = [each * 2 for each in STEADY]


def test_a_slower_capture_is_worse() -> None:
    found = compared([capture(row(*STEADY))], [capture(row(*SLOWER))])
    assert found.change.verdict == "worse"
    assert found.bridge.total.change_ns == 100_001


def test_the_slowest_ranks_are_compared_and_each_with_its_like() -> None:
    base = ranks(track(row(*STEADY)), track(row(*SLOWER), device=1))
    new = ranks(track(row(*SLOWER)), track(row(*STEADY), device=1))
    found = compared([base], [new])
    assert found.change.verdict == "no significant change"
    assert [each.change.verdict for each in found.tracks] == ["worse", "better"]


def test_ranks_are_not_compared_one_by_one_where_their_numbers_differ() -> None:
    two = ranks(track(row(*STEADY)), track(row(*STEADY), device=1))
    assert compared([capture(row(*STEADY))], [two]).tracks == []


def test_a_few_long_steps_contradict_the_typical_one() -> None:
    base, faster = STEADY, [each * 9 // 10 for each in STEADY[:-1]]
    found = compared([capture(row(*base))], [capture(row(*faster, 10_000_000))])
    assert found.change.shift_pct < 0 < found.bridge.total.change_ns
    assert found.contradicts


def test_without_steps_windows_are_compared() -> None:
    window = capture(row(500), step_name=None, steps=[None], kinds=[None])
    found = compared([window], [window])
    assert not found.has_steps
    assert found.change.verdict == "not enough steps"


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


def only_obstacle(new: Capture, base: Capture = SAME) -> str:
    (found,) = obstacles([base], [new])
    return found


def test_a_capture_can_be_compared_with_itself() -> None:
    assert obstacles([SAME], [SAME]) == []
    assert remarks([SAME], [SAME]) == []


def test_another_gpu_cannot_be_compared() -> None:
    other = capture(row(100), gpu="NVIDIA A100")
    assert only_obstacle(other) == "different GPUs: NVIDIA H200 and NVIDIA A100"


def test_another_number_of_ranks_cannot_be_compared() -> None:
    two = ranks(track(row(100)), track(row(100), device=1))
    assert only_obstacle(two) == "different numbers of ranks: 1 and 2"


def test_captures_of_a_side_have_one_number_of_ranks() -> None:
    two = ranks(track(row(100)), track(row(100), device=1))
    found = obstacles([SAME, two], [SAME, two])
    assert found == ["different numbers of ranks: 1 or 2 and 1 or 2"]


def test_another_precision_cannot_be_compared() -> None:
    base, new = capture(row(100), unit="float32"), capture(row(100), unit="bf16")
    said = only_obstacle(new, base)
    assert said.startswith("different precision: matrix products are mostly float32 and bf16")
    assert obstacles([capture(row(100))], [new]) == [], "a precision that is not known is no other"


def test_other_steps_cannot_be_compared() -> None:
    assert "--step" in only_obstacle(capture(row(100), step_name="epoch"))
    assert obstacles([SAME], [capture(row(100), step_name="train/step")]) == []


def test_another_part_of_the_recording_cannot_be_compared() -> None:
    part = capture(row(100), selection="--steps 2:5")
    assert only_obstacle(part) == "different parts of the recordings: all of it, and --steps 2:5"
    assert obstacles([part], [part]) == []


def test_a_recording_that_cannot_be_judged_cannot_be_compared() -> None:
    bad = capture(row(100), name="bad", invalid="Incomplete capture")
    assert only_obstacle(bad) == "bad cannot be judged: Incomplete capture"


def test_other_kernels_are_another_program() -> None:
    other = capture(row(5, name="gemm"), row(95, name="conv"))
    assert only_obstacle(other) == (
        "different programs: 5 % of the kernel time is in kernels of the same name"
    )


def test_a_program_of_the_same_phases_may_have_other_kernels() -> None:
    phases = ("step/encode", "step/decode", "step/extra")
    base = capture(*(row(9, phase=phase, name="eager") for phase in phases))
    assert obstacles([base], [capture(*(row(5, phase=p, name="fused") for p in phases[:2]))]) == []


def test_phases_that_every_program_has_make_no_program_the_same() -> None:
    phases = ("forward", "backward", "optimizer")
    base, new = (
        capture(*(row(9, phase=phase, name=name) for phase in phases)) for name in ("conv", "gemm")
    )
    assert "different programs" in only_obstacle(new, base)


def test_generated_kernels_count_as_one_name() -> None:
    base = track(row(9, kind="triton", name="triton_poi_fused_0"))
    assert common_kernels_pct(base, track(row(5, kind="triton", name="triton_poi_fused_1"))) == 100


@pytest.mark.parametrize(("unprofiled_ns", "said"), [(95, 0), (80, 1)])
def test_a_profiler_that_slows_one_side_more_is_said(unprofiled_ns: int, said: int) -> None:
    base = capture(row(100), unprofiled_step_ns=100)
    found = remarks([base], [capture(row(100), unprofiled_step_ns=unprofiled_ns)])
    assert len(found) == said
    assert obstacles([base], [capture(row(100), unprofiled_step_ns=unprofiled_ns)]) == []
