import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from benchmarks.gap_report_stability import changes, lines_of
from nsysflow.report.gap_report import (
    COARSE_SCALE,
    LAUNCHING,
    SCALE,
    WAITING,
    GapReport,
    Place,
    Track,
    as_csv,
    as_markdown,
    gap_report,
    is_listed,
    rounded_pct,
    tracks_of,
)
from nsysflow.report.results import Results as RealResults
from tests.analyses import EXAMPLES, few_reports, run_of
from tests.oracle import gap_report as oracle
from tests.oracle.gap_report import GROUPS, nearest
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.strategies import traces
from tests.pairs import PAIRS, Pair, steady
from tests.report.handmade import MS, Results

FORWARD = Place("forward", LAUNCHING)
LOSS = Place("loss", WAITING, "train (train.py)")


def track(step_ns: Sequence[int], **idle_ns: Sequence[int]) -> Track:
    """A process whose GPU waits in `forward` and in `loss`."""
    places = {"forward": (FORWARD, ("host", "")), "loss": (LOSS, ("sync", "cudaStreamSynchronize"))}
    found = {places[name][0]: {places[name][1]: values} for name, values in idle_ns.items()}
    return Track(gpu="NVIDIA H200", has_steps=True, step_ns=step_ns, idle_ns=found)


def oracle_lines(results: RealResults) -> list[tuple[Any, ...]]:
    steps, parts = results.table("steps"), results.table("step_parts")
    return oracle.gap_report(parts.to_dicts(), steps.to_dicts())


def found_lines(results: RealResults) -> list[tuple[Any, ...]]:
    """The same as `oracle_lines`."""
    smaller = Place(*oracle.SMALLER)
    rows = [(row.place or smaller, row.pct) for row in gap_report(tracks_of(results)).rows]
    return [(place.phase, place.cause, place.function, pct) for place, pct in rows]


@given(traces(), traces())
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
def test_random_ranks_agree_with_the_oracle_and_no_file_names_them(
    one: PlainTrace, other: PlainTrace
) -> None:
    ranks = [replace(to_trace(one), report="a-secret"), replace(to_trace(other), report="b-secret")]
    results = Results([nsysflow.analyze(rank) for rank in ranks])
    assert found_lines(results) == oracle_lines(results)
    report = gap_report(tracks_of(results))
    assert "secret" not in as_csv(report) + as_markdown(report)


@few_reports
def test_a_real_report_agrees_with_the_oracle(name: str) -> None:
    results = run_of(name)
    assert found_lines(results) == oracle_lines(results)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_rows_of_equal_steps_sum_to_their_idle_time(one: int, other: int) -> None:
    report = gap_report([track([1000] * 15, forward=[one] * 15, loss=[other] * 15)])
    assert sum(row.ns for row in report.rows) == report.idle_ns == one + other


def test_a_share_in_the_middle_of_two_figures_takes_the_larger() -> None:
    assert [rounded_pct(ns, 100, (5, 20)) for ns in (9.5, 10)] == [5, 20]


@given(st.integers(0, 10**12), st.integers(1, 10**12), st.sampled_from([SCALE, COARSE_SCALE]))
def test_rounding_agrees_with_the_oracle(halves: int, step: int, scale: tuple[int, ...]) -> None:
    assert rounded_pct(halves / 2, step, scale) == nearest(Fraction(halves, 2 * step), [*scale])


@pytest.mark.parametrize(
    ("ns", "low_ns", "step_ns", "listed"),
    [
        (5, None, 1000, True),  # half a percent
        (4.5, None, 1000, False),
        (9, 5, 1000, True),  # if its interval agrees
        (9, 4, 1000, False),
        (10, 0, 1000, True),  # one percent, however it varies
        (0, None, 0, False),  # of a step without length
    ],
)
def test_a_row_is_listed_from_half_a_percent_on(
    ns: float, low_ns: float | None, step_ns: int, listed: bool
) -> None:
    assert is_listed(ns, low_ns, step_ns) is listed


def test_a_name_stays_one_cell() -> None:
    def named(phase: str) -> GapReport:
        place = Place(phase, WAITING, "step (t.py)")
        idle_ns = {place: {("sync", "cudaStreamSynchronize"): range(200, 220)}}
        return gap_report([replace(track([1000] * 20), idle_ns=idle_ns)])

    assert '"a, b",waiting,' in as_csv(named("a, b"))
    assert r"| a\|b·# c, step (t.py) |" in as_markdown(named("a|b\n# c"))


def test_without_steps_the_markdown_speaks_of_the_window_and_gives_no_interval() -> None:
    window = replace(track([100 * MS], loss=[20 * MS]), has_steps=False)
    launching = {("launch", ""): [MS], ("host", ""): [3 * MS]}
    both = replace(window, idle_ns={**window.idle_ns, FORWARD: launching})
    page = as_markdown(gap_report([both]))
    assert page.startswith("# NVIDIA H200: idle 24 % of a window of 100 ms\n\nNo steps are known")
    assert "| 4.00 ms |  | 4.0 % | 5 % |" in page
    assert "a step" not in page.split("To compare")[0]


def test_a_report_without_gpu_work_has_files_too() -> None:
    assert as_csv(gap_report([])).splitlines() == ["place,cause,function,step_pct"]
    assert as_markdown(gap_report([])) == "# No GPU work was recorded\n"


@pytest.mark.xdist_group("pairs")
@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.after], ids=lambda pair: f"{pair.before}-{pair.after}"
)
def test_the_changed_place_leads(pair: Pair) -> None:
    assert pair.after is not None
    runs = [Results([steady(name)]) for name in (pair.before, pair.after)]
    found = changes(*(lines_of(gap_report(tracks_of(run))) for run in runs))
    # of a shorter step, the share of what stays may grow
    first = min(found, key=lambda row: found[row])
    phase, cause, *_ = first.split(",")
    assert re.fullmatch(pair.phase, phase), found
    assert cause in {GROUPS.get(name, name) for name in pair.causes}, found
    assert found[first] < 0
