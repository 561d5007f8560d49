"""A process says how far it is while it is recorded, and times its steps once it is not."""

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.runtime import bound as bound_module
from nsysflow.runtime.bound import Bound, PlainRun, note_step
from nsysflow.runtime.durations import LONGEST, Durations
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import BEGUN, BOUND, ENOUGH, PLAIN, RUN_FOLDER, TIMED, WRITTEN

HERE = os.getpid()
BEGUN_HERE, ENOUGH_HERE, TIMED_HERE = f"{BEGUN}-{HERE}", f"{ENOUGH}-{HERE}", f"{TIMED}-{HERE}"


@dataclass
class Clock:
    """A clock that stands in for `time`, and that the test sets."""

    now_ns: int = 5_000

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of bounds that need 3 steps and 100 ns, and then time 4 steps for as long; in a
    plain run for 40 ns."""
    clock = Clock()
    limits = {"ENOUGH_STEPS": 3, "ENOUGH_NS": 100, "PLAIN_STEPS": 4, "PLAIN_NS": 40}
    limits |= {"START_UP_STEPS": 2, "START_UP_NS": 50}
    for name, value in {**limits, "FEWEST_PLAIN": 2, "time": clock}.items():
        monkeypatch.setattr(bound_module, name, value)
    fresh = {"plain_step_ns": None, "plain_wait_ns": None, "recorded": False, "later": None}
    for name, value in {**fresh, "evaluates": False, "evaluations": 0, "waited_ns": 0}.items():
        monkeypatch.setattr(THIS_PROCESS, name, value)
    return clock


def said(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def take(bound: Bound | PlainRun, clock: Clock, *lengths_ns: int) -> None:
    """Begin a step, and another after each of these lengths."""
    for length in lengths_ns:
        clock.now_ns += length
        bound.step()


@pytest.mark.parametrize(
    ("lengths_ns", "enough"),
    [
        ((0, 50, 50), False),  # the third has only begun
        ((0, 50, 25, 25), True),
        ((0, 30, 30, 39), False),  # steps enough, but 99 ns
        ((0, 30, 30, 39, 1), True),
        ((0, 1_000), False),
    ],
)
def test_a_process_says_when_it_begins_and_when_it_has_enough(
    tmp_path: Path, clock: Clock, lengths_ns: tuple[int, ...], enough: bool
) -> None:
    bound = Bound(tmp_path)
    assert said(tmp_path) == set()
    take(bound, clock, lengths_ns[0])
    assert said(tmp_path) == {BEGUN_HERE}
    take(bound, clock, *lengths_ns[1:])
    assert said(tmp_path) == {BEGUN_HERE} | ({ENOUGH_HERE} if enough else set())


def test_steps_are_timed_once_nsys_has_written_its_report(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronize = Mock()
    monkeypatch.setattr(bound_module, "synchronize", synchronize)
    said_when_saved: list[set[str]] = []
    monkeypatch.setattr(bound_module, "save_status", lambda: said_when_saved.append(said(tmp_path)))
    bound = Bound(tmp_path)
    take(bound, clock, 0, 500, 500)
    synchronize.assert_not_called()
    assert not THIS_PROCESS.recorded
    (tmp_path / WRITTEN).touch()
    take(bound, clock, 500)  # begun while nsys imported
    synchronize.assert_called_once()
    assert THIS_PROCESS.recorded
    take(bound, clock, 17)
    assert THIS_PROCESS.plain_step_ns is None  # one is too few
    take(bound, clock, 19)
    assert THIS_PROCESS.plain_step_ns == 18
    take(bound, clock, 18, 18)  # four, but no 100 ns
    assert TIMED_HERE not in said(tmp_path)
    take(bound, clock, 28)
    assert THIS_PROCESS.plain_step_ns == 20
    assert TIMED_HERE in said(tmp_path)
    assert [TIMED_HERE in each for each in said_when_saved] == [False]  # it may be ended then
    take(bound, clock, 1_000)
    assert THIS_PROCESS.plain_step_ns == 20
    assert synchronize.call_count == 4  # at the start, and after 2, 4 and 5 steps
    assert THIS_PROCESS.later is not None
    later = THIS_PROCESS.later.summary()
    assert later is not None
    assert (later.first, later.count, later.total_ns) == (4, 6, 17 + 19 + 18 + 18 + 28 + 1_000)
    assert later.longest[-1] == (9, 1_000)


def test_the_waits_for_batches_of_plain_steps_are_summed(tmp_path: Path, clock: Clock) -> None:
    bound = Bound(tmp_path)
    THIS_PROCESS.waited_ns = 900  # while it was recorded
    (tmp_path / WRITTEN).touch()
    take(bound, clock, 0)
    for waited_ns in (4, 8, 0, 0):
        THIS_PROCESS.waited_ns += waited_ns
        take(bound, clock, 30)
    assert (THIS_PROCESS.plain_step_ns, THIS_PROCESS.plain_wait_ns) == (30, 3)


def test_a_host_that_runs_ahead_of_the_gpu_makes_no_step_shorter(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host takes 1 ns a step, the GPU 30, and the program ends before enough are timed."""

    def synchronize() -> None:
        clock.now_ns = max(clock.now_ns, 5_000 + 30 * (bound._steps - 1))

    bound = Bound(tmp_path)
    (tmp_path / WRITTEN).touch()
    take(bound, clock, 0)
    monkeypatch.setattr(bound_module, "synchronize", synchronize)
    take(bound, clock, 1, 1, 1)
    assert THIS_PROCESS.plain_step_ns == 30
    assert TIMED_HERE not in said(tmp_path)


@pytest.mark.parametrize(
    ("evaluates", "plain_step_ns", "evaluations"),
    [
        ((False,) * 6, 140, 0),
        ((False, True, False, False, False, False), 20, 1),
        ((True, False, True, False, True, False), 140, 3),  # in every other step: a part of it
    ],
)
def test_steps_with_an_evaluation_are_left_out_where_they_are_the_fewer(
    tmp_path: Path, clock: Clock, evaluates: tuple[bool, ...], plain_step_ns: int, evaluations: int
) -> None:
    bound = Bound(tmp_path)
    THIS_PROCESS.evaluates = True  # a model is made for evaluation
    (tmp_path / WRITTEN).touch()
    take(bound, clock, 0)
    for had_one, length_ns in zip(evaluates, (20, 500, 20, 20, 20, 20), strict=True):
        THIS_PROCESS.evaluates = had_one
        take(bound, clock, length_ns)
    assert (THIS_PROCESS.plain_step_ns, THIS_PROCESS.evaluations) == (plain_step_ns, evaluations)


@pytest.mark.parametrize("start_up_ns", [(50, 0), (20, 30), (20, 20, 20)])
def test_a_plain_run_times_the_steps_after_start_up_and_then_says_so(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, start_up_ns: tuple[int, ...]
) -> None:
    saved = Mock(side_effect=lambda: ENOUGH_HERE in said(tmp_path))
    monkeypatch.setattr(bound_module, "save_status", saved)
    run = PlainRun(tmp_path)
    take(run, clock, 0, *start_up_ns)
    take(run, clock, 7, 9, 8)
    assert THIS_PROCESS.plain_step_ns == 8
    assert said(tmp_path) == {BEGUN_HERE}  # four steps and 40 ns are enough
    take(run, clock, 36)
    assert THIS_PROCESS.plain_step_ns == 15
    saved.assert_called_once()
    assert said(tmp_path) == {BEGUN_HERE, ENOUGH_HERE}
    take(run, clock, 1_000)
    assert THIS_PROCESS.plain_step_ns == 15


@pytest.mark.parametrize(
    ("asked", "files"), [(None, set()), (BOUND, {BEGUN_HERE}), (PLAIN, {BEGUN_HERE})]
)
def test_steps_are_counted_only_in_bounded_recordings_and_plain_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, files: set[str]
) -> None:
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    if asked is not None:
        monkeypatch.setenv(asked, "1")
    bound_module._counter_of.cache_clear()
    note_step()
    assert said(tmp_path) == files
    bound_module._counter_of.cache_clear()


LENGTHS = st.lists(st.integers(1, 10**11), min_size=1, max_size=3 * LONGEST)


@given(LENGTHS, st.integers(0, 1_000))
def test_sums_are_exact_and_medians_within_a_percent(lengths_ns: list[int], first: int) -> None:
    durations = Durations(first)
    for number, length_ns in enumerate(lengths_ns, first):
        durations.add(number, length_ns)
    summary = durations.summary()
    assert summary is not None
    found = (summary.first, summary.count, summary.total_ns)
    assert found == (first, len(lengths_ns), sum(lengths_ns))
    middle_ns = sorted(lengths_ns)[(len(lengths_ns) - 1) // 2]
    assert abs(summary.median_ns - middle_ns) <= max(1, 0.01 * middle_ns)
    kept = [ns for _, ns in summary.longest]
    assert sorted(kept) == sorted(lengths_ns)[-LONGEST:]
    assert all(lengths_ns[number - first] == ns for number, ns in summary.longest)
    assert list(summary.longest) == sorted(summary.longest)


def test_without_a_step_there_is_nothing_and_many_take_no_more_memory() -> None:
    durations = Durations(3)
    assert durations.summary() is None
    for number in range(100_000):
        durations.add(number, 7_000_000 + number % 1_000)
    assert len(durations._classes) <= 2
    assert len(durations._longest) == LONGEST
    assert median(durations._classes.values()) >= 50_000
