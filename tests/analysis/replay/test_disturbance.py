"""The profiler's share of the host's time, taken out of a recorded program (spec §14.15)."""

from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import PlainEstimate, Replays
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.disturbance import (
    LEAST_COST,
    MOST_COST,
    RecordingCost,
    with_cheaper_host,
    without_cost,
)
from nsysflow.analysis.replay.replay import recorded, replay
from nsysflow.analysis.replay.whatif import whatif
from tests.analyses import analysed, loaded
from tests.analysis.replay.replays import Row, kernel, launch, opened
from tests.analysis.replay.test_replay import PROGRAMS, SAMPLES, both
from tests.tiny import AS_RECORDED, analysis_of

pytestmark = pytest.mark.xdist_group("simulated")

US: Final = 1_000
STEPS: Final = 12
LAUNCHES: Final = 10


@pytest.mark.parametrize("less_ns", [0, 700, 6_000])
@pytest.mark.parametrize("name", [*SAMPLES, *PROGRAMS])
def test_the_oracle_agrees(name: str, less_ns: int) -> None:
    timeline, oracle = both(name)
    quiet = with_cheaper_host(recorded(timeline).program, less_ns)
    assert replay(quiet).ops["end_ns"].to_list() == oracle.ends_undisturbed(less_ns)


@pytest.mark.parametrize("cost", [LEAST_COST, MOST_COST])
@pytest.mark.parametrize("name", [*SAMPLES, *PROGRAMS])
def test_the_oracle_takes_the_same_cost_of_recording(name: str, cost: RecordingCost) -> None:
    timeline, oracle = both(name)
    for traced in (False, True):
        quiet = without_cost(recorded(timeline).program, cost, traced=traced)
        wanted = oracle.ends_without_cost(cost.pct, traced * cost.backtrace_ns)
        assert replay(quiet).ops["end_ns"].to_list() == wanted


def loop(*, share_us: int, kernel_us: int) -> list[Row]:
    """Steps of launches, each of 4 us after 6 us of Python, to both of which the profiler adds."""
    rows: list[Row] = []
    now, done, number = 0, 0, 0
    for _ in range(STEPS):
        begun = now
        for _ in range(LAUNCHES):
            number += 1
            start = now + 6 + share_us
            rows.append(launch(start, start + 4, number))
            first = max(done, start + 5)
            done = first + kernel_us
            rows.append(kernel(first, done, number))
            now = start + 4
        rows.append(opened(begun, now, "step"))
    return rows


def step_of(rows: list[Row], plain_us: float | None = None, changes: Changes | None = None) -> int:
    """A step after changes, in ns."""
    options = AS_RECORDED if plain_us is None else Options(unrecorded_step_ns=round(plain_us * US))
    timeline = analysis_of(*rows, options=options).timeline
    return whatif(timeline, changes or Changes()).after.step_ns or 0


def near(ns: float) -> object:
    return pytest.approx(ns, rel=0.005)


HALF_THE_CODE: Final = Changes(faster_host=(("step", 0.5),))


def test_a_host_bound_step_and_its_savings_are_the_plain_ones() -> None:
    plain_rows, rows = (loop(share_us=us, kernel_us=2) for us in (0, 7))
    assert step_of(rows) == 170 * US
    assert step_of(plain_rows) == 100 * US
    for plain_us in (100, 140):
        assert step_of(rows, plain_us) == near(plain_us * US)
    assert step_of(rows, plain_us=100, changes=HALF_THE_CODE) < step_of(rows, changes=HALF_THE_CODE)
    wholly = Changes(faster_host=(("step", 0.0),))
    assert step_of(rows, 100, wholly) == near(step_of(plain_rows, changes=wholly))


def estimate_of(rows: list[Row], **options: Any) -> PlainEstimate | None:
    return Replays(JudgedReport(analysis_of(*rows, options=Options(**options)))).plain_estimate


def test_a_plain_step_that_nobody_timed_lies_within_what_recording_usually_costs() -> None:
    """Steps of 10 launches at 17 us each, of which the profiler takes 7."""
    found = estimate_of(loop(share_us=7, kernel_us=2))
    assert found is not None
    assert (found.low_ns, found.high_ns, found.source) == (
        near(76.5 * US),
        near(144.5 * US),
        "usual",
    )
    assert estimate_of(loop(share_us=7, kernel_us=2), unrecorded_step_ns=100 * US) is None


def test_the_estimate_of_a_step_that_waits_for_its_gpu_is_narrow() -> None:
    found = estimate_of(loop(share_us=7, kernel_us=30))
    assert found is not None
    assert found.low_ns == found.high_ns == near(300 * US)


def test_a_machine_whose_costs_are_known_gives_a_narrower_estimate() -> None:
    found = estimate_of(loop(share_us=7, kernel_us=2), recording_pct=(36, 46))
    assert found is not None
    assert (found.low_ns, found.high_ns, found.source) == (near(92 * US), near(109 * US), "machine")


@pytest.mark.parametrize(("share_us", "pct"), [(0, 0), (7, 41)])
def test_a_timed_step_shows_what_recording_took_of_the_host(share_us: int, pct: int) -> None:
    rows, options = loop(share_us=share_us, kernel_us=2), Options(unrecorded_step_ns=100 * US)
    found = Replays(JudgedReport(analysis_of(*rows, options=options))).recorded_pct
    assert found == pytest.approx(pct, abs=1)


def test_what_the_gpu_takes_is_left() -> None:
    rows = loop(share_us=7, kernel_us=30)
    assert step_of(rows, plain_us=200) == near(300 * US)


def test_a_faster_host_shows_what_faster_kernels_save_at_most() -> None:
    """Kernels of 18 us, launched every 17 us: half of their time saves 1 us a launch, and once the
    host takes half of its time almost 9 us."""
    rows = loop(share_us=7, kernel_us=18)
    replays = Replays(JudgedReport(analysis_of(*rows, options=AS_RECORDED)))
    half = Changes(scaled=(("k", 0.5),))
    assert replays.saving_ns(half) == pytest.approx(10 * US, abs=US)
    assert replays.most_saved_ns(half, Changes()) == pytest.approx(90 * US, abs=5 * US)


def test_a_step_that_hardly_waits_for_its_host_does_not_show_how_fast_that_is() -> None:
    """Launched every 40 us, kernels of 38 us: the plain step is 5 us shorter, whatever the host
    takes without the profiler."""
    options = Options(unrecorded_step_ns=395 * US)
    rows = loop(share_us=30, kernel_us=38)
    replays = Replays(JudgedReport(analysis_of(*rows, options=options)))
    assert replays.before_ns == near(395 * US)
    half = Changes(scaled=(("k", 0.5),))
    assert replays.most_saved_ns(half, Changes()) == pytest.approx(190 * US, abs=10 * US)


@pytest.mark.parametrize("name", ["nan_check-sync", "h2d-pageable"])
def test_the_plan_is_of_the_undisturbed_step(name: str) -> None:
    before = analysed(name).found
    estimate = before.plain_estimate
    assert estimate is not None
    assert estimate.low_ns <= before.undisturbed_step_ns <= estimate.high_ns < before.step_ns
    plain = Options(unrecorded_step_ns=round(0.8 * before.typical_step_ns))
    after = nsysflow.analyze(loaded(name), plain).found
    assert after.step_ns == before.step_ns
    assert after.undisturbed_step_ns < before.step_ns
    left = after.undisturbed_step_ns
    for one in after.valued:
        assert 0 <= one.high_ns <= after.undisturbed_step_ns
        assert one.step_after_ns <= left
        left = one.step_after_ns
