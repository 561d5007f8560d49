"""Two sides that differ by their clock."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared
from nsysflow.compare.document import capture_of
from nsysflow.report.document import compared_json
from nsysflow.report.results import Results
from tests.compare.handmade import capture, row
from tests.oracle.model import GpuState, to_trace
from tests.tiny import Row, kernel, launch, opened, plain_of

MS = 1_000_000


def run(compute_ms: float, mhz: float | None, *, idle_ms: int = 1) -> Capture:
    """Five steps with so much compute and idle time each."""
    compute, idle = ([round(ms * MS)] * 5 for ms in (compute_ms, idle_ms))
    return capture(row(*compute), row(*idle, part="idle"), sm_clock_mhz=mhz)


SAID = "Runs differ by their clock: 1980 and 1530 MHz"


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        # 13 ms · (1 - 1530/1980) = 2.95 ms
        (run(10, 1980), run(13, 1530), f"{SAID}. That explains up to 2.95 ms of the 3.00 ms by"),
        (run(10, 1980), run(13, 1530), "which kernels take longer; 45.5 us are left"),
        # no more than the change
        (run(10, 1980), run(12, 1530), f"{SAID}. That explains up to 2.00 ms of the 2.00 ms"),
        (run(10, 1980), run(12, 1530), "longer; 0 are left"),
        # 8 ms · (1 - 1980/1530) = -2.35 ms
        (run(12, 1530), run(8, 1980), "up to 2.35 ms of the 4.00 ms by which kernels take shorter"),
        # 9 ms · (1 - 1530/1980) = 2.05 ms
        (run(10, 1980), run(9, 1530), "1.00 ms shorter in spite of it; at one clock that would be"),
        (run(10, 1980), run(9, 1530), "that would be up to 3.05 ms"),
        (run(10, 1980), run(10, 1530), ""),
        (run(10, 1980), run(13, 1950), ""),
        (run(10, 1980), run(13, None), ""),
        (run(10, None), run(13, None), ""),
        (run(10, 0), run(13, 1530), ""),
        (run(10, 1980), run(10, 1530, idle_ms=9), ""),
    ],
)
def test_a_clock_explains_what_it_can_of_the_change_of_kernels(
    base: Capture, new: Capture, said: str
) -> None:
    remarks = "".join(compared([base], [new]).remarks)
    assert said in remarks
    assert bool(said) == bool(remarks)


def test_several_captures_have_the_median_of_their_clocks() -> None:
    new = [run(13, mhz) for mhz in (1200, 1530, None, 1545)]
    (remark,) = compared([run(10, 1980)] * 3, new).remarks
    assert remark.startswith(SAID)


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
