"""A recording ends once each rank holds enough, and the program goes on."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsysflow.record import bound as bound_module
from nsysflow.record.bound import EVERY_S, MOST_S, START_UP_S, TIMING_S, Bound
from nsysflow.runtime.protocol import BEGUN, ENOUGH, TIMED, WRITTEN
from tests.nsys.fakes import an_nsys, fake_nsys

ONE, TWO = ("run",), ("run-0", "run-1")
Begin = Callable[..., Bound]


@dataclass
class Clock:
    """A clock that stands in for `time`, and that the test sets."""

    now_s: float = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bound_module, "time", clock)
    return clock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run."""
    made = tmp_path / "out"
    made.mkdir()
    return made


@pytest.fixture
def begin(tmp_path: Path, folder: Path, clock: Clock) -> Iterator[Begin]:
    """Begin a recording with an nsys that notes what it was called with and then fails, as it does
    where a session has ended by itself."""
    bounds: list[Bound] = []
    nsys = an_nsys(fake_nsys(tmp_path / "nsys", body=f'echo "$@" >> {tmp_path}/calls; exit 1'))

    def begun(sessions: tuple[str, ...] = ONE, *, reports_steps: bool = True) -> Bound:
        bounds.append(Bound(folder, nsys, sessions, reports_steps=reports_steps))
        return bounds[-1]

    yield begun
    for bound in bounds:
        bound.end()


def say(folder: Path, what: str, *processes: int) -> None:
    for process in processes:
        (folder / f"{what}-{process}").touch()


def look_until(bound: Bound, clock: Clock, is_so: Callable[[], bool]) -> None:
    """Look again and again."""
    limit_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < limit_s
        time.sleep(0.01)
        clock.now_s += EVERY_S
        bound.look()


def stops(bound: Bound, clock: Clock, after_s: float = 1) -> bool:
    """Look again after a while; whether that ends the recording."""
    clock.now_s += after_s
    bound.look()
    look_until(bound, clock, lambda: bound.done or not bound._stopping)
    return bound.done


def calls(folder: Path) -> list[str]:
    """What nsys was called with."""
    file = folder.parent / "calls"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def test_all_sessions_stop_together_once_each_process_has_enough(
    begin: Begin, folder: Path, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    bound = begin(TWO)
    say(folder, BEGUN, 11)
    say(folder, ENOUGH, 11)
    assert not stops(bound, clock)  # the other rank has not begun
    say(folder, BEGUN, 12)
    assert not stops(bound, clock)
    assert not (folder / WRITTEN).exists()
    assert (calls(folder), capfd.readouterr().err) == ([], "")
    say(folder, ENOUGH, 12)
    assert stops(bound, clock)
    assert calls(folder) == ["stop --session=run-0", "stop --session=run-1"]
    assert (folder / WRITTEN).exists()
    assert "the program goes on without the profiler" in capfd.readouterr().err
    stops(bound, clock, MOST_S)
    assert len(calls(folder)) == 2


def test_a_slow_process_is_waited_for_up_to_a_limit_from_its_first_step(
    begin: Begin, folder: Path, clock: Clock
) -> None:
    bound = begin()
    assert not stops(bound, clock, START_UP_S - 1)
    say(folder, BEGUN, 11, 12)
    say(folder, ENOUGH, 11)
    assert not stops(bound, clock, 1)
    assert not stops(bound, clock, MOST_S - 1)
    assert stops(bound, clock, 1)


def test_steps_are_not_timed_while_nsys_imports_the_report_of_a_rank(
    tmp_path: Path, folder: Path, clock: Clock
) -> None:
    imports = f"""
        echo "Generating 'nsys-report-1.qdstrm'"
        for _ in $(seq 9000); do echo "[1/1] [=10%] report.nsys-rep"; done
        echo >> {tmp_path}/begun
        until [ -e {tmp_path}/imported$2 ]; do sleep 0.01; done
    """
    nsys = an_nsys(fake_nsys(tmp_path / "nsys", body=imports))
    bound = Bound(folder, nsys, TWO, reports_steps=True)
    say(folder, BEGUN, 11, 12)
    say(folder, ENOUGH, 11, 12)

    begun = tmp_path / "begun"
    look_until(bound, clock, lambda: begun.exists() and len(begun.read_text()) == 2)
    (tmp_path / "imported--session=run-0").touch()
    a_second_later = clock.now_s + 1
    look_until(bound, clock, lambda: clock.now_s >= a_second_later)
    assert not bound.done
    assert not (folder / WRITTEN).exists()
    (tmp_path / "imported--session=run-1").touch()
    look_until(bound, clock, lambda: bound.done)
    assert (folder / WRITTEN).exists()
    assert bound.end() == ()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("timed", "after_s", "ends"),
    [((), 0, False), ((11,), 0, False), ((11, 12), 0, True), ((11,), TIMING_S, True)],
)
def test_a_program_that_is_ended_gets_time_for_plain_steps(
    begin: Begin, folder: Path, clock: Clock, timed: tuple[int, ...], after_s: float, ends: bool
) -> None:
    bound = begin()
    say(folder, BEGUN, 11, 12)
    say(folder, ENOUGH, 11, 12)
    assert not bound.has_timed()
    assert stops(bound, clock)
    say(folder, TIMED, *timed)
    clock.now_s += after_s
    assert bound.has_timed() == ends


@pytest.mark.parametrize(("reports_steps", "limit_s"), [(True, START_UP_S), (False, MOST_S)])
def test_a_program_without_steps_is_recorded_for_a_time(
    begin: Begin, folder: Path, clock: Clock, reports_steps: bool, limit_s: float
) -> None:
    bound = begin(reports_steps=reports_steps)
    assert not stops(bound, clock, limit_s - 1)
    assert stops(bound, clock, 1)
    assert calls(folder) == ["stop --session=run"]
