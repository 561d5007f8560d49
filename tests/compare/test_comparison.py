from collections.abc import Iterable
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import Comparison, compared, obstacles, over_time, remarks
from nsysflow.compare.document import capture_of
from nsysflow.report.document import compared_json
from nsysflow.report.results import Results
from tests.compare.handmade import capture, ranks, row, track
from tests.oracle.model import GpuState, to_trace
from tests.tiny import Row, kernel, launch, opened, plain_of

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


def verdict(found: Comparison | None) -> str | None:
    return found.change.verdict if found else None


def test_over_time_each_capture_is_compared_with_the_first_and_the_last() -> None:
    captures = [capture(row(*STEADY)), capture(row(*SLOWER)), capture(row(*STEADY))]
    found = [(verdict(each.since_first), verdict(each.since_last)) for each in over_time(captures)]
    assert found == [(None, None), ("worse", "worse"), ("no significant change", "better")]


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
        (SAME, capture(row(5), row(95, name="conv")), "different programs: 5 % of the kernel time"),
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


MS = 1_000_000


def run(compute_ms: float, mhz: float | None, *, idle_ms: int = 1) -> Capture:
    """Five steps with so much compute and idle time each."""
    compute, idle = ([round(ms * MS)] * 5 for ms in (compute_ms, idle_ms))
    return capture(row(*compute), row(*idle, part="idle"), sm_clock_mhz=mhz)


CLOCKS = "Runs differ by their clock: 1980 and 1530 MHz"


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        # 13 ms · (1 - 1530/1980) = 2.95 ms
        (run(10, 1980), run(13, 1530), [CLOCKS, "2.95 ms of the 3.00 ms", "45.5 us are left"]),
        # no more than the change
        (run(10, 1980), run(12, 1530), [CLOCKS, "2.00 ms of the 2.00 ms", "longer; 0 are left"]),
        # 8 ms · (1 - 1980/1530) = -2.35 ms
        (run(12, 1530), run(8, 1980), ["2.35 ms of the 4.00 ms by which kernels take shorter"]),
        # 9 ms · (1 - 1530/1980) = 2.05 ms
        (run(10, 1980), run(9, 1530), ["1.00 ms shorter in spite of it", "up to 3.05 ms"]),
        (run(10, 1980), run(10, 1530), []),
        (run(10, 1980), run(13, 1950), []),
        (run(10, 1980), run(13, None), []),
        (run(10, None), run(13, None), []),
        (run(10, 0), run(13, 1530), []),
        (run(10, 1980), run(10, 1530, idle_ms=9), []),
    ],
)
def test_a_clock_explains_what_it_can_of_the_change_of_kernels(
    base: Capture, new: Capture, said: list[str]
) -> None:
    remarks = "".join(compared([base], [new]).remarks)
    assert all(part in remarks for part in said)
    assert bool(said) == bool(remarks)


def test_several_captures_have_the_median_of_their_clocks() -> None:
    new = [run(13, mhz) for mhz in (1200, 1530, None, 1545)]
    (remark,) = compared([run(10, 1980)] * 3, new).remarks
    assert remark.startswith(CLOCKS)


@pytest.mark.parametrize("marked", [True, False])
def test_a_document_has_the_mean_clock_of_the_steps_that_are_compared(*, marked: bool) -> None:
    rows: list[Row] = []
    for number in range(1, 7):
        at, end = (number - 1) * 10 * MS, number * 10 * MS
        rows += [launch(at + 1, at + 2, number), kernel(at + 3, end, number)]
        rows += [opened(at, end, "step")] if marked else []
    plain = plain_of(*rows)
    states = tuple(GpuState(at * 10 * MS, 0, 1000 + 100 * at) for at in range(6))
    for trace, expected in ((replace(plain, gpu_states=states), True), (plain, False)):
        results = Results([nsysflow.analyze(to_trace(trace))])
        clock = capture_of(compared_json(results).encode(), "r", "r.json").slowest.sm_clock_mhz
        assert (clock is not None) is expected
        if clock is not None:
            known = results.analyses[0].clocks["sm_clock_mhz"]
            assert known[0] - 1e-3 <= clock <= known[-1] + 1e-3
            assert clock > 1100
