"""The replay: unchanged it is the report, and it agrees with the oracle."""

import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import KINDS, LOOP, Changes
from nsysflow.analysis.selection.timeline import Timeline
from tests.analyses import analysed, few_reports
from tests.analysis.replay.replays import (
    kernel,
    kernel_starts,
    launch,
    opened,
    replayed,
    timeline_of,
    without,
)
from tests.analysis.replay.sites import sites
from tests.analysis.test_simulated import simulated
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.replay import Replay
from tests.reports import DATA, sqlite_report


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
    "alloc-009",
    "queue_full-018",
    "two_streams-015",
    "two_threads-014",
    "autograd-035",
    "mixture-034",
)


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
    """A program as the analysis has it, and as the oracle does."""
    return nsysflow.analyze(to_trace(plain(name)), Options()).timeline, Replay(plain(name))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*SAMPLES, *PROGRAMS])
def test_the_oracle_agrees(name: str, kind: str) -> None:
    timeline, oracle = both(name)
    ends = replayed(timeline, without(kind)).ops["end_ns"].to_list()
    expected = oracle.ends_without_loops() if kind == LOOP else oracle.ends_without(KINDS[kind])
    assert expected == ends


pytestmark = pytest.mark.xdist_group("simulated")

AIM: Final = 0.95


def hits(kind: str) -> tuple[int, int]:
    """How many sites of a kind are hit, of how many."""
    of_kind = [site for site in sites() if site.kind == kind]
    return sum(site.hit for site in of_kind), len(of_kind)


def test_what_a_wait_s_removal_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    hit, of = hits("stall")
    assert of == 99
    assert hit >= AIM * of


def test_what_host_code_s_removal_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    hit, of = hits("host")
    assert of == 37
    assert hit >= 0.9 * of  # 35: threads that compete, and a copy that would be waited for later


def test_what_a_graph_saves_is_within_a_tenth_or_a_hundredth_of_the_window() -> None:
    assert hits("graph") == (2, 2)


def test_waits_that_hurt_nobody_save_nothing() -> None:
    controls = [site for site in sites() if site.control]
    quiet = sum(site.said_ns <= 0.005 * site.window_ns for site in controls)
    assert len(controls) == 48
    assert quiet >= AIM * len(controls)
