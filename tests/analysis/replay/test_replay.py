"""The replay: unchanged it is the report, and it agrees with the oracle, also without the
profiler's share of the host's time (spec §14.15)."""

import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import IN_RETRIES, KINDS, LOOP, Changes
from nsysflow.analysis.replay.disturbance import (
    LEAST_COST,
    MOST_COST,
    USUAL_PCT,
    RecordingCost,
    behind_backtraces,
    cost_between,
    cost_in_proportion,
    recorded_pct,
    without_cost,
)
from nsysflow.analysis.replay.replay import recorded, replay
from nsysflow.analysis.replay.whatif import whatif
from nsysflow.analysis.selection.timeline import Timeline
from tests import tiny
from tests.analyses import analysed, few_reports, loaded
from tests.analysis.replay.replays import Row, kernel_starts, replayed, timeline_of, without
from tests.analysis.replay.sites import sites
from tests.analysis.test_simulated import simulated
from tests.in_us import kernel, launch, opened
from tests.oracle.export import read_export
from tests.oracle.model import Backtrace, Frame, PlainTrace, to_trace
from tests.oracle.replay import Replay
from tests.reports import DATA, sqlite_report
from tests.tiny import AS_RECORDED, analysis_of, trace_of

pytestmark = pytest.mark.xdist_group("simulated")


def off_by_ns(timeline: Timeline) -> int:
    """The largest difference between a recorded time of an operation and the replayed one."""
    times = replayed(timeline, Changes()).ops
    ops = timeline.events.ops
    off = [(times[side] - ops[side]).abs().max() for side in ("start_ns", "end_ns")]
    return max(each for each in off if isinstance(each, int)) if len(ops) else 0


@few_reports
def test_an_unchanged_replay_is_the_report_to_the_ns(name: str) -> None:
    assert off_by_ns(analysed(name).timeline) == 0


def test_an_unchanged_replay_is_the_simulated_program_to_the_ns() -> None:
    analyses, _ = simulated()
    off = {name: off_by_ns(analysis.timeline) for name, analysis in analyses.items()}
    assert off == dict.fromkeys(off, 0)


@pytest.mark.parametrize("behind", [20, 0])
def test_a_kernel_that_overlaps_the_one_before_waits_for_it_however_fast_the_host(
    behind: int,
) -> None:
    """As cuDNN launches its kernels. Launched early, they ran beside all others before."""
    launches = [launch(at, at + 5, at) for at in (20, 30, 40)]
    ran = [kernel(50, 150, 20), kernel(143, 150 + behind, 30), kernel(180, 200, 40)]
    timeline = timeline_of(opened(0, 300, "step"), *launches, *ran)
    slow, *_ = kernel_starts(timeline, Changes())
    first, second, third = kernel_starts(timeline, Changes(faster_host=(("step", 0.0),)))
    assert first < slow
    assert second - first == 93
    assert third - second >= max(7, 7 + behind)


SAMPLES = ("nan_check-sync", "alloc_churn-empty_cache", "h2d-pageable", "overlap-side_stream")
"""Without recorded events, and small: the oracle takes the square of their size."""

PROGRAMS = (
    *("alloc-009", "queue_full-018", "two_streams-015", "two_threads-014", "autograd-035"),
    "mixture-034",
)
every_program = pytest.mark.parametrize("name", [*SAMPLES, *PROGRAMS])


@cache
def plain(name: str) -> PlainTrace:
    with TemporaryDirectory() as folder:
        if name in SAMPLES:
            return read_export(sqlite_report(Path(folder), name))
        with tarfile.open(DATA / "simulated.tar.xz") as archive:
            archive.extract(f"simulated/{name}.sqlite", folder, filter="data")
        return read_export(Path(folder) / "simulated" / f"{name}.sqlite")


@cache
def both(name: str) -> tuple[Timeline, Replay]:
    """A program as the analysis has it, and as the oracle does; every second cudaMalloc fails."""
    calls = tuple(call for call in plain(name).calls if call.name == "cudaMalloc")
    trace = replace(plain(name), failed_calls=calls[::2])
    return nsysflow.analyze(to_trace(trace), Options()).timeline, Replay(trace)


@pytest.mark.parametrize("kind", KINDS)
@every_program
def test_the_oracle_agrees(name: str, kind: str) -> None:
    timeline, oracle = both(name)
    ends = replayed(timeline, without(kind)).ops["end_ns"].to_list()
    if kind == LOOP:
        assert oracle.ends_without_loops() == ends
    else:
        assert oracle.ends_without(KINDS[kind], retried=IN_RETRIES.get(kind)) == ends


AIM: Final = 0.95


@pytest.mark.parametrize(
    ("kind", "count", "aim"),
    [
        ("stall", 99, AIM),
        ("host", 37, 0.9),  # 35: threads that compete, and a copy that would be waited for later
        ("graph", 2, 1),
    ],
)
def test_what_a_removal_saves_is_within_a_tenth_or_a_hundredth_of_the_window(
    kind: str, count: int, aim: float
) -> None:
    hits = [site.hit for site in sites() if site.kind == kind]
    assert len(hits) == count
    assert sum(hits) >= aim * count


def test_waits_that_hurt_nobody_save_nothing() -> None:
    quiet = [site.said_ns <= 0.005 * site.window_ns for site in sites() if site.control]
    assert len(quiet) == 48
    assert sum(quiet) >= AIM * 48


US: Final = 1_000
STEPS: Final = 12
LAUNCHES: Final = 10


@pytest.mark.parametrize("cost", [LEAST_COST, MOST_COST])
@every_program
def test_the_oracle_takes_the_same_cost_of_recording(name: str, cost: RecordingCost) -> None:
    timeline, oracle = both(name)
    program = recorded(timeline).program
    for every in (1, 3, len(oracle.calls) + 1):
        traced = oracle.nodes[every - 1 :: every]
        behind = program.calls["pred"].is_in(program.calls["node"][every - 1 :: every].implode())
        quiet = without_cost(program, cost, traced=behind.fill_null(value=False))
        wanted = oracle.ends_without_cost(cost.permille, cost.backtrace_ns, cost.gap_ns, traced)
        assert replay(quiet).ops["end_ns"].to_list() == wanted


@pytest.mark.parametrize("launches", [False, True])
def test_backtraces_cost_behind_the_calls_that_have_one(launches: bool) -> None:
    """Where launches have backtraces, all calls do."""
    rows = [tiny.launch(at * US, (at + 5) * US, at) for at in (10, 20, 30, 40)]
    wait = tiny.call(50 * US, 55 * US, "cudaDeviceSynchronize")
    later = tiny.launch(60 * US, 65 * US, 60)
    traced = [*rows, wait] if launches else [wait]
    model = tiny.plain_of(*rows, wait, later)
    stacks = tuple(Backtrace(row.start_ns, row.thread, (Frame("/a.py", 1, "f"),)) for row in traced)
    timeline = Timeline(to_trace(replace(model, backtraces=stacks)), Options())
    behind = behind_backtraces(recorded(timeline).program, timeline.events)
    wanted = [start_ns for start_ns in (20, 30, 40, 50, 60) if launches or start_ns == 60]
    starts = recorded(timeline).program.calls["start_ns"].filter(behind)
    assert (starts // US).to_list() == wanted


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
    of_call = 0.6 * 7 / 17  # of the 17 us for each launch, recording takes 7
    assert step_of(rows, 100, wholly) == near((1 - of_call) * step_of(rows, changes=wholly))


def test_a_factor_on_the_host_s_time_is_of_what_recording_leaves() -> None:
    rows = loop(share_us=7, kernel_us=2)
    changes = (Changes(faster_host=(("step", factor),)) for factor in (1.0, 0.5, 0.0))
    before_ns, half_ns, none_ns = (step_of(rows, 100, each) for each in changes)
    assert before_ns - half_ns == near((before_ns - none_ns) / 2)


def test_a_step_that_recording_does_not_explain_is_taken_without_almost_the_most() -> None:
    replays = replays_of(loop(share_us=7, kernel_us=2), unrecorded_step_ns=20 * US)
    most = replays.at(cost_in_proportion(800)).before_ns
    assert replays.before_ns == pytest.approx(most, rel=0.011)


def replays_of(rows: list[Row], **options: Any) -> Replays:
    return Replays(JudgedReport(analysis_of(*rows, options=Options(**options))))


@pytest.mark.parametrize(("plain_us", "limits"), [(100, (1, 799)), (170, (0, 0))])
def test_recording_costs_the_least_that_a_timed_step_shows(
    plain_us: int, limits: tuple[int, int]
) -> None:
    replays = replays_of(loop(share_us=7, kernel_us=2), unrecorded_step_ns=plain_us * US)
    share = replays.likely_cost().permille
    least, most = limits
    assert least <= share <= most
    if share < most:
        assert replays.at(cost_in_proportion(share)).before_ns <= plain_us * US
    if share > least:
        assert replays.at(cost_in_proportion(share - 1)).before_ns > plain_us * US


@pytest.mark.parametrize(
    ("kernel_us", "options", "low_us", "high_us", "source"),
    [
        (2, {}, 68, 136, "usual"),
        (2, {"recording_pct": (36, 46)}, 92, 109, "machine"),  # whose costs are known
        (30, {}, 300, 300, "usual"),  # the step waits for its GPU
    ],
)
def test_a_plain_step_that_nobody_timed_lies_within_what_recording_costs(
    kernel_us: int, options: dict[str, Any], low_us: float, high_us: float, source: str
) -> None:
    """Steps of 10 launches at 17 us each, of which the profiler takes 7."""
    rows = loop(share_us=7, kernel_us=kernel_us)
    found = replays_of(rows, **options).plain_estimate
    assert found is not None
    assert (found.low_ns, found.high_ns) == (near(low_us * US), near(high_us * US))
    assert found.source == source
    assert replays_of(rows, unrecorded_step_ns=100 * US).plain_estimate is None


@pytest.mark.parametrize(
    ("warm_up_us", "low_us", "high_us"),
    [
        (160, 68, 136),  # the usual costs explain it
        (120, 68, 119),  # whole per cents of the host
        (65, 64.6, 64.6),
        (10, 34.2, 34.2),  # 80 % of the host's time is as much as recording is taken to cost
    ],
)
def test_a_plain_step_is_no_longer_than_one_before_the_window(
    warm_up_us: int, low_us: float, high_us: float
) -> None:
    """The steps of the test above."""
    trace = trace_of(*loop(share_us=7, kernel_us=2))
    timed = {"process": trace.calls["process"].first(), "capture": "3:2:5"}
    captures = pl.DataFrame(
        [timed | {"unprofiled_step_ns": warm_up_us * US}], schema=trace.captures.schema
    )
    analysis = nsysflow.analyze(replace(trace, captures=captures))
    found = Replays(JudgedReport(analysis)).plain_estimate
    assert found is not None
    assert (found.low_ns, found.high_ns) == (near(low_us * US), near(high_us * US))
    middle = whatif(analysis.timeline, Changes()).before.step_ns
    assert middle is not None
    assert found.low_ns <= middle <= found.high_ns


@pytest.mark.parametrize(
    ("share_us", "pct"),
    [
        (0, None),  # the recorded step is no longer: the machine was slower then
        (7, 41),
        (11, None),  # it is more than twice as long: the program did other work
    ],
)
def test_a_timed_step_shows_what_recording_took_of_the_host(share_us: int, pct: int | None) -> None:
    replays = replays_of(loop(share_us=share_us, kernel_us=2), unrecorded_step_ns=100 * US)
    assert replays.recorded_pct == (None if pct is None else pytest.approx(pct, abs=1))


@pytest.mark.parametrize(("host_ns", "plain_ns"), [(20, 196), (100, 116)])
def test_a_step_that_a_faster_host_shortens_too_little_shows_nothing(
    host_ns: int, plain_ns: int
) -> None:
    """Of 200 ns, so many are the host's: at most a tenth of the step, or less than it lost."""
    assert recorded_pct(plain_ns, lambda cost: 200 - host_ns * cost.permille // 1_000) is None


def test_all_costs_are_in_proportion() -> None:
    usual = cost_between(USUAL_PCT)
    assert cost_in_proportion(usual.permille) == usual
    twice = cost_in_proportion(2 * usual.permille)
    assert (twice.backtrace_ns, twice.gap_ns) == (2 * usual.backtrace_ns, 2 * usual.gap_ns)


def test_what_the_gpu_takes_is_left() -> None:
    rows = loop(share_us=7, kernel_us=30)
    assert step_of(rows, plain_us=200) == near(300 * US)


@pytest.mark.parametrize(
    ("plain_us", "launch_us"),
    [
        (300, 10.2),  # the middle of what recording costs, which the GPU hid
        (290, 10.2),
        (331, 17),  # 10 % longer than the recorded one: the program did other work
    ],
)
def test_kernels_made_faster_show_the_host_without_the_profiler(
    plain_us: int, launch_us: float
) -> None:
    """Kernels of 30 us, launched every 17 us, of which the profiler takes 7."""
    rows = loop(share_us=7, kernel_us=30)
    assert step_of(rows, plain_us) == near(300 * US)
    after_ns = step_of(rows, plain_us, Changes(scaled=(("k", 0.1),)))
    assert after_ns == pytest.approx(10 * launch_us * US, rel=0.01)


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
    replays = replays_of(loop(share_us=30, kernel_us=38), unrecorded_step_ns=395 * US)
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


@pytest.mark.parametrize("name", ["h200-accumulation", "h100-nan-loop", "h200-train"])
def test_no_plain_step_that_recording_allows_saves_more_than_the_most(name: str) -> None:
    analysis = analysed(name)
    replays = Replays(JudgedReport(analysis))
    estimate = replays.plain_estimate
    assert estimate is not None
    for one in analysis.found.valued:
        if one.plain is not None:
            assert one.plain.low_ns <= one.low_ns <= one.high_ns <= one.plain.high_ns
            assert one.plain.high_ns <= estimate.high_ns
    first = next(one for one in analysis.found.valued if one.finding.changes is not None)
    assert first.plain is not None
    saved = [each.saving_ns(first.finding.changes) for each in replays.extremes]
    assert first.plain.high_ns == max(first.high_ns, *saved)
