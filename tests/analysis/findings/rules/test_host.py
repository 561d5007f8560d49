"""What the host does while the GPU waits."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import LOADS_DATA, JudgedReport
from nsysflow.analysis.findings.rules.compilation import code_loading
from nsysflow.analysis.findings.rules.host_code import data_loading, host_code
from nsysflow.analysis.findings.rules.periodic_pause import GARBAGE, Excess, periodic_pause
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, judged, launched, loop, options_of
from tests.oracle.model import Frame, Overhead, Sample

Pause = Callable[[int, int], Iterator[Row]]
"""The rows of a pause, for its start and the number of a call."""


def building(start: int, i: int) -> Iterator[Row]:
    """A kernel; 3 ms in which a library builds another one, loads it in 20 us and launches it."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    yield tiny.call(start + 3_100 * US, start + 3_120 * US, "cuLibraryLoadData")
    yield from launched(start, 100 * i + 2, at=3_200, took=5, kernel_ns=400 * US)


def test_what_builds_the_code_counts_with_what_loads_it() -> None:
    subject = loop(building, every=4_000)
    (one,) = found(code_loading, subject)
    assert one.culprit == "cuLibraryLoadData"
    assert one.steps == 7  # the last one lacks its tail
    assert one.at_most_ns > 2.9 * MS
    assert not found(host_code, subject)


@pytest.mark.parametrize(
    ("later_ns", "rules"), [(2_000 * US, {"code-loading"}), (1_900 * US, set())]
)
def test_loading_that_ends_with_the_recording_is_not_to_be_changed(
    monkeypatch: pytest.MonkeyPatch, later_ns: int, rules: set[str]
) -> None:
    subject = loop(building, every=4_000)
    options = replace(subject.timeline.options, unrecorded_step_ns=later_ns)
    monkeypatch.setattr(subject.timeline, "options", options)
    found_rules = {one.finding.rule for one in find(subject).valued}
    assert found_rules & {"code-loading", "host-code", "idle-gpu"} == rules


@pytest.mark.parametrize(
    ("path", "loads"),
    [
        ("/data", True),
        ("/next_batch", True),
        ("/get_data", True),
        ("/wait_for_batch", True),
        ("/enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("/loader/decode", True),
        ("/tokenize", True),
        ("/forward", False),
        ("/batch_norm", False),
        ("/h2d", False),
        ("/load_checkpoint", False),
        ("/metadata", False),
        ("/input_projection", False),
    ],
)
def test_a_phase_loads_data_by_its_name(path: str, loads: bool) -> None:
    assert pl.select(pl.lit(path).str.contains(LOADS_DATA)).item() == loads


def between(start: int, i: int) -> Iterator[Row]:
    """A range for the model in a step, and 2 ms of host code before it outside any range."""
    yield from launched(start, 100 * i + 1, at=2_010, took=5, kernel_ns=900 * US)


def test_host_code_outside_all_ranges_is_an_upper_bound() -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 3_000 * US
        rows.append(tiny.opened(start + 2_000 * US, start + 2_030 * US, "step"))
        rows += between(start, i)
    (one,) = found(data_loading, judged(*rows))
    assert one.title == "host code between the steps"
    assert one.changes is not None
    assert list(one.changes.options()) == ["--faster-host", "(outside ranges)=0"]
    assert one.method == "bound"
    assert "num_workers" in one.change[1]


@pytest.mark.parametrize(("at", "on_gpu"), [(4_980, True), (5_010, False)])
def test_host_code_outside_all_ranges_is_no_loader_where_batches_have_a_phase(
    at: int, on_gpu: bool
) -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 6_000 * US
        rows.append(tiny.opened(start + 2_000 * US, start + 6_000 * US, "step"))
        rows.append(tiny.opened(start + 3_000 * US, start + 5_000 * US, "data"))
        rows += between(start, i)
        rows += launched(start, 100 * i + 2, at=at, took=5, kernel_ns=900 * US)
    subject = judged(*rows)
    elsewhere, loads = found(data_loading, subject)
    assert (loads.phase, elsewhere.phase) == ("step/data", "")
    assert ("on the GPU" in loads.change[0]) is on_gpu  # where kernels make a batch
    assert not any("num_workers" in advice for advice in elsewhere.change)


def test_steps_that_are_called_batch_load_nothing_by_that() -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 100 * US
        rows.append(tiny.opened(start, start + 99 * US, "batch"))
        rows += launched(start, 100 * i + 1, at=60, took=5, kernel_ns=20 * US)
    assert not found(data_loading, judged(*rows))


def test_short_loops_without_a_loader_are_none() -> None:
    assert not found(
        data_loading,
        loop(
            lambda start, i: launched(start, 100 * i, at=10, took=5, kernel_ns=80 * US), every=100
        ),
    )


def logging(start: int, i: int, every: int = 1) -> Iterator[Row]:
    """Two kernels; 3 ms of Python between them in a range, in every so many steps."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    late = 3_200 if i % every == 0 else 120
    yield tiny.opened(start + 20 * US, start + (late + 20) * US, "log")
    yield from launched(start, 100 * i + 2, at=late, took=5, kernel_ns=(3_980 - late) * US)


def test_a_long_piece_of_python_in_each_step_is_an_upper_bound() -> None:
    (one,) = find(loop(logging, every=4_000)).valued
    assert (one.finding.rule, one.finding.phase) == ("host-code", "step/log")
    assert one.finding.method == "bound"
    assert one.low_ns == 0
    assert 2 * MS < one.high_ns < 3.2 * MS


def test_one_function_in_a_phase_and_between_the_steps_is_one_finding() -> None:
    rows: list[Row] = []
    for start in range(0, 48_000 * US, 6_000 * US):
        rows.append(tiny.opened(start, start + 4_000 * US, "step"))
        rows += logging(start, start // (6_000 * US))
        code = (Frame("/me/t.py", 7, "look_up"),)
        sampled = [*range(100, 3_100, 100), *range(4_000, 6_000, 100)]
        rows += [Sample(start + at * US, tiny.MAIN, code) for at in sampled]
    subject = judged(*rows)
    (one,) = found(host_code, subject)
    assert one.title == "look_up (t.py:7) holds the GPU up between the steps and in step/log"
    assert one.source == "t.py:7 in look_up"
    assert options_of(one) == "--faster-host (outside ranges)=0 --faster-host step/log=0"
    assert 4.8 * MS < one.size_ns < 5.2 * MS
    assert not found(data_loading, subject)


@pytest.mark.parametrize(
    ("function", "advice"),
    [("aten::_cudnn_attention_forward", "enable_cudnn_sdp"), ("aten::mm", "on another thread")],
)
def test_attention_that_cudnn_builds_anew_has_advice_of_its_own(function: str, advice: str) -> None:
    def running(start: int, i: int) -> Iterator[Row]:
        yield from logging(start, i)
        stack = (Frame("", None, function),)
        yield from (Sample(start + at * US, tiny.MAIN, stack) for at in range(100, 3_100, 100))

    (one,) = found(host_code, loop(running, every=4_000))
    assert advice in one.change[0]


def test_the_host_s_time_in_the_phases_inside_is_not_taken_with_it() -> None:
    def nested(start: int, i: int) -> Iterator[Row]:
        yield from logging(start, i)
        yield tiny.opened(start + 3_190 * US, start + 3_210 * US, "inner")

    (one,) = found(host_code, loop(nested, every=4_000))
    assert one.changes is not None
    assert list(one.changes.options()) == ["--faster-host", "step/log/.=0"]


def test_a_piece_in_a_third_of_the_steps_is_none() -> None:
    assert not found(host_code, loop(lambda start, i: logging(start, i, 3), steps=9, every=4_000))


def test_start_up_is_none_where_no_steps_are_marked() -> None:
    rows = [*launched(0, 1, at=10, took=5, kernel_ns=100 * US)]
    rows += launched(0, 2, at=90_000, took=5, kernel_ns=100 * US)
    assert not found(host_code, JudgedReport(tiny.analysis_of(*rows)))


def flushing(start: int, i: int) -> Iterator[Row]:
    """A kernel, and one that is launched 200 us later since the profiler works meanwhile."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=200 * US)
    begin, end = start + 220 * US, start + 420 * US
    yield Overhead(begin, end, tiny.PROCESS, tiny.MAIN, "Buffer flush")
    yield from launched(start, 100 * i + 2, at=425, took=5, kernel_ns=200 * US)


def test_what_the_profiler_takes_is_a_replay_without_it() -> None:
    (one,) = (
        one
        for one in find(loop(flushing, every=650)).valued
        if one.finding.rule == "profiler-overhead"
    )
    assert one.finding.changes is not None
    assert list(one.finding.changes.options()) == ["--no-profiler"]
    assert one.high_ns > 150 * US


def pausing(every: int, pause: Pause | None = None, *, until: int = 40) -> JudgedReport:
    """40 steps of 1 ms; each so many of the first takes 5 ms longer, in a range that saves, with
    the rows of `pause` from 500 us of the step on."""

    def rows() -> Iterator[Row]:
        start = 0
        for i in range(40):
            slow = 5_000 if i % every == every - 1 and i < until else 0
            yield tiny.opened(start, start + (990 + slow) * US, "step")
            yield from launched(start, 10 * i + 1, at=10, took=5, kernel_ns=400 * US)
            yield tiny.opened(start + 30 * US, start + (420 + slow) * US, "save")
            if pause and slow:
                yield from pause(start + 500 * US, 10 * i + 3)
            begin = start + (420 + slow) * US
            yield from launched(begin, 10 * i + 2, at=5, took=5, kernel_ns=500 * US)
            start += (1_000 + slow) * US

    return judged(*rows())


def test_what_every_tenth_step_takes_longer_is_spread_over_all_steps() -> None:
    (one,) = found(periodic_pause, pausing(8))
    assert one.title.startswith("every 8 steps one takes longer")
    assert 0.5 * MS < one.at_most_ns < 0.7 * MS
    assert one.method == "bound"


def test_what_ends_before_the_run_does_is_spread_over_all_steps_too() -> None:
    (one,) = found(periodic_pause, pausing(6, until=30))
    assert 0.55 * MS < one.at_most_ns < 0.7 * MS


QUEUE: Final = "/usr/lib/python3.12/multiprocessing"


def standing(*stack: str) -> Pause:
    """Samples each 100 us of this stack: `FILE:LINE FUNCTION`, the innermost first."""
    frames = tuple(
        Frame(file, int(number), function)
        for file, number, function in (re.split(r"[: ]", frame) for frame in stack)
    )
    return lambda start, _: (
        Sample(start + at * US, tiny.MAIN, frames) for at in range(0, 4900, 100)
    )


def copying(start: int, number: int) -> Iterator[Row]:
    """A copy to pageable memory that the host waits for, 4 ms of 4.5."""
    yield tiny.launch(start, start + 4_500 * US, number, name="cudaMemcpy")
    yield tiny.copy(start + 10 * US, start + 4_010 * US, number, "DtoH", "device", "pageable")


def evaluating(start: int, number: int) -> Iterator[Row]:
    """A kernel of 4.8 ms."""
    yield from launched(start, number, at=0, took=5, kernel_ns=4_800 * US)


@pytest.mark.parametrize(
    ("pause", "what", "change"),
    [
        (None, "host code in step/save", "--sample-python 1000"),
        (standing("/me/t.py:7 write", "/me/t.py:1 main"), "host code, t.py:7 in write", "another"),
        (
            standing(f"{QUEUE}/c.py:1 _recv", f"{QUEUE}/q.py:2 get", "/me/t.py:7 main"),
            "waiting for another process or thread, t.py:7 in main",
            "ask for it earlier",
        ),
        (
            standing("/me/t.py:7 gc_collect", "/me/t.py:1 main"),
            "garbage collection, t.py:7 in gc_collect",
            "gc.freeze()",
        ),
        (copying, "copies to the host in step/save", "copy only the result"),
        (evaluating, "GPU work", "do it less often, or with fewer samples"),
    ],
)
def test_the_advice_on_a_pause_is_about_the_largest_part_of_it(
    pause: Pause | None, what: str, change: str
) -> None:
    (one,) = found(periodic_pause, pausing(8, pause))
    assert one.title.startswith(f"every 8 steps one takes longer: {what}")
    assert change in one.change[0]
    assert ("gc." in " ".join(one.change)) == (pause is None or "garbage" in what)


def test_a_line_without_half_of_the_samples_is_advised_on_before_garbage_is() -> None:
    excess = Excess(
        parts={"host": 1}, spot=None, sampled=True, collects=False, copies="", stall=("", "")
    )
    assert "on another thread" in excess.change("train.py:7 in write")[0]
    assert excess.change("train.py:7 in write")[-1] == excess.change("")[0] == GARBAGE


def test_a_step_right_behind_each_pause_is_part_of_the_pause() -> None:
    def rows() -> Iterator[Row]:
        start = 0
        for i in range(41):
            slow = {7: 5_000, 0: 1_000}.get(i % 8, 0) if i else 0
            yield tiny.opened(start, start + (990 + slow) * US, "step")
            yield from launched(start, 10 * i + 1, at=10, took=5, kernel_ns=400 * US)
            phase = "save" if i % 8 == 7 else "forward"
            yield tiny.opened(start + 30 * US, start + (520 + slow) * US, phase)
            yield from launched(start, 10 * i + 2, at=420 + slow, took=5, kernel_ns=400 * US)
            start += (1_000 + slow) * US

    (one,) = found(periodic_pause, judged(*rows()))
    assert one.size_ns == pytest.approx(6 * MS / 8, rel=0.1)
    assert one.evidence[-1].endswith("is in the steps behind them")
