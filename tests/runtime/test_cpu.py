"""Waits for a CPU are read where steps begin, and the readings never harm the program."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.runtime import captures, cpu
from nsysflow.runtime.captures import CudaProfilerCapture, NvtxRangeCapture
from nsysflow.runtime.cpu import (
    PERIOD_NS,
    PROCESS,
    THREAD,
    WHOLE_NS,
    Reader,
    group_limit,
    process_reading,
    thread_reading,
)
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import READINGS
from tests.recording import Kept, kineto_capture

needs_schedstat = pytest.mark.skipif(
    thread_reading() is None, reason="this system does not count waits for a CPU"
)

MS = 1_000_000


@needs_schedstat
def test_a_reading_is_of_the_thread_that_asks() -> None:
    def busy() -> tuple[Any, Any, float, float]:
        wall, ran, first = time.perf_counter(), time.thread_time(), thread_reading()
        while time.thread_time() - ran < 0.05:
            pass
        last = thread_reading()
        return first, last, time.thread_time() - ran, time.perf_counter() - wall

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(busy()))
    thread.start()
    thread.join()
    first, last, ran_s, wall_s = found
    assert first[0] == last[0] == thread.native_id
    # what it ran is counted up to the last tick of the kernel
    assert abs((last[1] - first[1]) / 1e9 - ran_s) < 0.02
    assert abs((last[2] - first[2]) / 1e9 - (wall_s - ran_s)) < 0.02


@needs_schedstat
def test_other_threads_are_read_while_they_live() -> None:
    go_on, started = threading.Event(), threading.Event()

    def busy() -> None:
        while time.thread_time() < 0.05:
            pass
        started.set()
        go_on.wait()

    thread, idle = threading.Thread(target=busy), threading.Thread(target=go_on.wait)
    unstarted = threading.Thread(target=busy)
    thread.start()
    idle.start()
    started.wait()
    read = {tid: ran for tid, ran, _ in cpu.other_readings()}
    assert threading.get_native_id() not in read
    assert (read[thread.native_id] or 0) > 40 * MS > (read[idle.native_id] or 0)
    go_on.set()
    thread.join()
    idle.join()
    assert not {thread.native_id, idle.native_id, unstarted.native_id} & {
        tid for tid, *_ in cpu.other_readings()
    }


@needs_schedstat
def test_a_thread_that_ends_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = SimpleNamespace(native_id=1 << 30)
    monkeypatch.setattr(cpu, "threads_of_python", lambda: [gone, SimpleNamespace(native_id=None)])
    assert not [*cpu.other_readings()]


def test_other_threads_are_read_with_the_process_and_not_at_steps(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "other_readings", lambda: iter([(8, 30, 1), (9, 40, 2)]))
    kept = Kept()
    reader.begin(kept.keep)
    threads = [(THREAD, (7, 100, 9)), (THREAD, (8, 30, 1)), (THREAD, (9, 40, 2))]
    assert kept[:-1] == threads
    reader.at_step()
    assert kept[4:] == threads[:1]
    reader.end(kept.keep)
    assert kept[5:-1] == threads


@needs_schedstat
def test_a_reading_of_the_process_counts_what_it_started() -> None:
    before = process_reading()
    child = os.fork()
    if not child:
        while time.process_time() < 0.1:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    after = process_reading()
    assert before[0] == after[0] == len(os.sched_getaffinity(0))
    assert 50 * MS <= (after[2] or 0) - (before[2] or 0) <= 500 * MS
    assert (after[1] or 0) >= (before[1] or 0)
    if before[3] is not None:
        assert (after[3] or 0) >= before[3]


PERIOD = {"cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "250000 100000", "cpu.stat": "usage_usec 5\nthrottled_usec 7"},
         (2_500, 7_000)),
        ({"cpu.max": "max 100000"}, (None, None)),
        # of version 1
        (PERIOD | {"cpu.cfs_quota_us": "50000", "cpu.stat": "nr_periods 4\nthrottled_time 9"},
         (500, 9)),
        (PERIOD | {"cpu.cfs_quota_us": "-1"}, (None, None)),
        ({"cpu.max": "100000 100000"}, (1_000, None)),
        ({}, (None, None)),
        ({"cpu.max": "0 0"}, (None, None)),
    ],
)  # fmt: skip
def test_the_limit_of_a_control_group_is_found(
    files: dict[str, str], limit: tuple[int | None, int | None], tmp_path: Path
) -> None:
    for file, text in files.items():
        (tmp_path / file).write_text(f"{text}\n")
    assert group_limit([tmp_path]) == limit
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "cpu.max").write_text("400 100000")
    assert group_limit([tmp_path, outer, tmp_path / "gone"]) == (4, None)


def test_cpus_without_a_line_have_no_busy_time() -> None:
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    stat = "cpu  9 9 9 9\ncpu0 1 2 3 100 50 4 5 6 7 8\ncpu3 1 0 0 9 9 0 0 0\nintr 5\n"
    assert cpu._busy_ns(stat, {0}) == 21 * tick
    assert cpu._busy_ns(stat, {0, 3}) == 22 * tick
    assert cpu._busy_ns(stat, {0, 1}) is None
    assert cpu._busy_ns("", {0}) is None


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader in a process of `nsysflow profile`, which reads its thread at every step."""
    monkeypatch.setenv(READINGS, "1")
    monkeypatch.setattr(cpu, "PERIOD_NS", 0)
    monkeypatch.setattr(cpu, "WHOLE_NS", 1 << 60)
    monkeypatch.setattr(cpu, "thread_reading", lambda: (7, 100, 9))
    monkeypatch.setattr(cpu, "other_readings", lambda: iter(()))
    monkeypatch.setattr(cpu, "process_reading", lambda: (4, 5, 0, None, None, None))
    return Reader()


def test_it_reads_at_begin_and_end_and_seldom_between(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, kept = 0, Kept()
    monkeypatch.setattr(cpu, "PERIOD_NS", PERIOD_NS)
    monkeypatch.setattr(cpu, "WHOLE_NS", WHOLE_NS)
    monkeypatch.setattr(cpu, "time", SimpleNamespace(monotonic_ns=lambda: now))
    reader.at_step()
    reader.begin(kept.keep)
    assert kept == [(THREAD, (7, 100, 9)), (PROCESS, (4, 5, 0, None, None, None))]
    both, step, end = [THREAD, PROCESS], reader.at_step, partial(reader.end, kept.keep)
    for later_ns, keys in ((PERIOD_NS - 1, []), (1, [THREAD]), (0, []), (WHOLE_NS, both)):
        kept.clear()
        now += later_ns
        step()
        assert kept.keys == keys
    monkeypatch.setattr(THIS_PROCESS, "recorded", True)
    for does, keys in ((step, []), (end, both), (end, []), (step, [])):
        kept.clear()
        now += PERIOD_NS
        does()
        assert kept.keys == keys


def test_a_recording_inside_another_ends_alone(reader: Reader) -> None:
    kept = Kept()
    reader.begin(kept.keep)
    reader.begin(kept.keep)
    kept.clear()
    reader.at_step()
    assert len(kept) == 1
    reader.end(kept.keep)
    kept.clear()
    reader.at_step()
    assert len(kept) == 1


def test_nothing_is_read_in_a_forked_process_until_it_records(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    reader.begin(kept.keep)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    kept.clear()
    reader.at_step()
    reader.end(kept.keep)
    assert kept == []
    reader.begin(kept.keep)
    assert kept.keys == [THREAD, PROCESS]


@pytest.mark.parametrize(
    ("target", "value", "keys"),
    [
        ("os.environ", {}, []),  # not asked for
        ("nsysflow.runtime.cpu.thread_reading", lambda: None, []),  # not counted
        ("nsysflow.runtime.cpu.is_loader_worker", lambda: True, []),
        # odd files of the system cost only the reading of the process
        ("nsysflow.runtime.cpu.process_reading", lambda: int("max"), [THREAD] * 2),
    ],
)
def test_nothing_is_read_that_should_or_can_not(
    target: str, value: Any, keys: list[str], reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, value)
    kept = Kept()
    reader.begin(kept.keep)
    reader.at_step()
    assert kept.keys == keys


@pytest.mark.parametrize("text", [None, "", "1 2", "a b c", "1 2 3 4", "0 0 0"])
def test_a_system_that_does_not_count_says_nothing(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedstat"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(cpu, "_SCHEDSTAT", str(file))
    assert thread_reading() is None
    assert cpu._text(tmp_path / "gone") == ""


def test_every_kind_of_capture_keeps_readings(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setattr(captures, "READER", reader)
    monkeypatch.setattr(captures, "mark", marks.append)
    monkeypatch.setattr(captures, "synchronize", lambda: None)
    nvtx = SimpleNamespace(push_range=lambda *_, **__: None, pop_range=lambda **_: None)
    whole = ['{"nsysflow":{"thread_cpu":[[7,100,9]]}}']
    whole.append('{"nsysflow":{"process_cpu":[[4,5,0,null,null,null]]}}')
    for capture in (CudaProfilerCapture(), NvtxRangeCapture(nvtx)):  # type: ignore[arg-type]
        marks.clear()
        capture.start(None)
        capture.stop()
        assert marks == [*whole, *whole]
    kineto, written = kineto_capture(monkeypatch)
    before_ns = time.time_ns()
    reader.begin(kineto._keep)
    kineto.stop()
    first, last = written["nsysflow"]["thread_cpu"]
    assert first[1] == last[1] == [7, 100, 9]
    assert before_ns <= first[0] <= last[0] <= time.time_ns()
    of_process = [reading for _, reading in written["nsysflow"]["process_cpu"]]
    assert of_process == [[4, 5, 0, None, None, None]] * 2
    assert reader._keeps == []
