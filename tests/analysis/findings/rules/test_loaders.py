"""What `data-loading` says where workers were recorded (spec §27.4)."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.host_code import data_loading
from nsysflow.analysis.observed import WorkerCode
from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.units import duration
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, launched, repeated
from tests.oracle.model import Frame, LoaderTime, Sample, to_trace

STEP_NS = 24 * MS
STEPS = 12
STARTS = range(0, STEPS * STEP_NS, STEP_NS)


def waiting(
    *times: LoaderTime,
    wait_ms: int = 15,
    kernel_ms: int = 2,
    seen: Sequence[Row] = (),
    options: Options = tiny.AS_RECORDED,
    notes: tuple[Note, ...] = (),
) -> JudgedReport:
    """Steps with a wait for a batch, and a kernel behind which the host sleeps; samples of each."""
    data = tiny.opened(10, wait_ms * MS, "data")
    step = (
        tiny.opened(0, STEP_NS - 1, "step"),
        data,
        *launched(1_000 * wait_ms + 10, 1_000 * kernel_ms),
        *seen,
    )
    rows = repeated(step, STEP_NS // US, STEPS)
    trace = to_trace(replace(tiny.plain_of(*rows), loader_times=times))
    return JudgedReport(nsysflow.analyze(replace(trace, notes=notes), options))


def finding(*times: LoaderTime) -> list[Finding]:
    """What is found where loaders did this."""
    return found(data_loading, waiting(*times))


def with_workers(**settings: Any) -> list[Finding]:
    """What is found where workers are these."""
    return found(data_loading, loading(**settings))


def loading(
    *,
    batch_ms: float,
    workers: int,
    wait_ms: int = 15,
    kernel_ms: int = 2,
    slow_ms: float = 0,
    seen: Sequence[Row] = (),
    options: Options = tiny.AS_RECORDED,
    notes: tuple[Note, ...] = (),
    **more: Any,
) -> JudgedReport:
    """Steps where each worker takes so long for a batch, and each 12th one longer."""
    settings = {"workers": workers, "prefetch_factor": 2, "pin_memory": True, "cores": 32, **more}

    def made(worker: int | None, *times: Any) -> LoaderTime:
        return LoaderTime(tiny.PROCESS, 0, worker, *times, **settings)

    times = [made(None, start + 10, None, start + wait_ms * MS) for start in STARTS]
    for worker in range(workers):
        at = 0
        while at < STARTS.stop:
            slow = slow_ms and at // STEP_NS % 4 == worker
            took = round((slow_ms if slow else batch_ms) * MS)
            times.append(made(worker, at, at + took - 9, at + took))
            at += max(took, workers * STEP_NS)
    like = {"wait_ms": wait_ms, "kernel_ms": kernel_ms}
    return waiting(*times, **like, seen=seen, options=options, notes=notes)


LOADER, KEPT = "DataLoader(…", ", persistent_workers=True, pin_memory=True"


@pytest.mark.parametrize(
    ("given", "change", "evidence"),
    [
        (  # 72 ms a batch, 3 workers; the rest of a step takes 9 ms
            {"batch_ms": 72, "workers": 3},
            f"{LOADER}, num_workers=8{KEPT})",
            "3 workers give 42 batches/s, the loop takes 111: 8 workers needed",
        ),
        (
            {"batch_ms": 72, "workers": 3, "kernel_ms": 12, "prefetch_factor": 4},
            f"{LOADER}, num_workers=6{KEPT}, prefetch_factor=4)",
            "3 workers give 42 batches/s, the loop takes 83: 6 workers needed",
        ),
        (
            {"batch_ms": 72, "workers": 3, "cores": 4},
            f"{LOADER}, num_workers=4{KEPT})",
            "this process may use 4 cores, so more workers than that are no help",
        ),
        (
            {"batch_ms": 72, "workers": 3, "cores": 3},
            "make a batch cheaper",
            "this process may use 3 cores, so more workers than that are no help",
        ),
        (
            {"wait_ms": 18, "batch_ms": 0, "workers": 0},
            f"{LOADER}, num_workers=3{KEPT})",
            "a batch takes 18.0 ms in this process, the rest of a step 6.00 ms: 3 workers needed",
        ),
        (
            {"batch_ms": 5, "workers": 2},
            "send fewer, larger tensors",
            "its workers are busy 12 % of the time: more are no help",
        ),
        (
            {"batch_ms": 5, "workers": 2, "pin_memory": False},
            "DataLoader(…, pin_memory=True)",
            "its workers are busy 12 % of the time: more are no help",
        ),
        (
            {"batch_ms": 2, "workers": 2, "slow_ms": 40},
            "DataLoader(…, prefetch_factor=4): more batches ahead bridge a slow one",
            "5 % of the batches take 40.0 ms or longer, the median 2.00 ms",
        ),
    ],
)
def test_the_workers_that_a_loop_needs(given: dict[str, Any], change: str, evidence: str) -> None:
    (one,) = with_workers(**given)
    assert one.change[0].startswith(change)
    assert evidence in one.evidence
    assert one.table == "loader_workers"


@pytest.mark.parametrize(
    ("given", "least_ms"),
    [
        ({"wait_ms": 18, "batch_ms": 0, "workers": 0, "cores": 2}, 9),  # 18 ms a batch, 3 needed
        ({"batch_ms": 72, "workers": 3, "cores": 4}, 18),
    ],
)
def test_a_step_never_takes_less_than_the_advised_workers_for_its_batch(
    given: dict[str, Any], least_ms: int
) -> None:
    subject = loading(**given)
    plan = find(subject).valued
    (at,) = (at for at, one in enumerate(plan) if one.finding.rule == "data-loading")
    assert plan[at].finding.method == "replay"
    assert plan[at].alone_ns == pytest.approx(STEP_NS - least_ms * MS, rel=0.01)
    assert all(one.step_after_ns >= 0.99 * least_ms * MS for one in plan[at:])


def test_the_workers_that_the_end_of_the_plan_needs_are_said() -> None:
    subject = loading(batch_ms=48, workers=2)
    plan = find(subject).valued
    (loads,) = (one for one in plan if one.finding.rule == "data-loading")
    a_batch_ns, end_ns = 48 * MS, plan[-1].step_after_ns
    said = "as recorded, 2 workers of the DataLoader keep up with steps of "
    said += f"{duration(round(a_batch_ns / 2))}; this plan ends with steps of {duration(end_ns)}"
    assert loads.finding.evidence[-1] == f"{said}, which need {ceil(a_batch_ns / end_ns)}"
    assert end_ns < a_batch_ns / 2
    quick = find(loading(batch_ms=5, workers=2)).valued
    assert not any("keep up" in text for one in quick for text in one.finding.evidence)


@pytest.mark.parametrize("cores", [3, 32])
def test_without_a_number_of_workers_the_saving_is_a_bound(cores: int) -> None:
    given = {"batch_ms": 72, "workers": 3} if cores == 3 else {"batch_ms": 5, "workers": 2}
    (one,) = with_workers(**given, cores=cores)
    assert one.method == "bound"


@pytest.mark.parametrize(("workers", "said"), [(0, True), (1, False)])
def test_where_the_loop_makes_its_batches_the_code_that_takes_longest_is_named(
    workers: int, *, said: bool
) -> None:
    code = (Frame("/me/data.py", 9, "draw"),)
    seen = [Sample(at * MS, tiny.MAIN, code) for at in range(1, 18)]
    given = {"wait_ms": 18, "batch_ms": 19 * workers, "workers": workers}
    (one,) = with_workers(**given, seen=seen)
    named = "make it faster: vectorise loops, cache what does not change, most of all in draw"
    assert one.change[1].startswith(named) is said


def test_a_loop_that_never_waits_needs_no_workers() -> None:
    assert not with_workers(wait_ms=1, batch_ms=40, workers=2, kernel_ms=24)


def test_workers_that_a_slow_recorded_loop_never_waits_for_limit_a_faster_one() -> None:
    subject = loading(wait_ms=1, batch_ms=40, workers=2)
    (one,) = found(data_loading, subject)
    assert one.title == "2 workers of the DataLoader have a batch every 20.0 ms"
    assert one.change[0] == f"{LOADER}, num_workers=4{KEPT})"
    assert one.evidence[1:4] == (
        "the recorded loop takes 23.0 ms a batch, and finds it ready",
        "without the profiler it is faster",
        "2 workers give 50 batches/s, the loop may take 87: 4 workers needed",
    )
    assert one.size_ns == pytest.approx((20 - 11.5) * MS, rel=0.02)
    (few,) = with_workers(wait_ms=1, batch_ms=40, workers=2, cores=2)
    assert few.change[0].startswith("make a batch cheaper")
    assert not with_workers(wait_ms=1, batch_ms=22, workers=2)  # half of the host's time is enough


def test_a_plain_step_that_waits_is_what_the_loader_saves() -> None:
    """The recorded one, of 24 ms, never did: the plain one took 20, of which it waited 2."""
    options = Options(unrecorded_step_ns=20 * MS, unrecorded_wait_ns=2 * MS)
    first, *_ = find(loading(wait_ms=1, batch_ms=38, workers=2, options=options)).valued
    assert first.finding.rule == "data-loading"
    assert first.step_ns == pytest.approx(20 * MS, rel=0.01)
    assert first.finding.title == "2 workers of the DataLoader have a batch every 19.0 ms"
    assert "without the profiler it is faster, and waits 2.00 ms a step" in first.finding.evidence
    assert first.alone_ns == pytest.approx(3 * MS, rel=0.01)  # and the range of data, of 1 ms


@pytest.mark.parametrize(("samples", "named"), [(80, True), (20, False)])
def test_what_workers_run_most_of_the_time_is_named(samples: int, *, named: bool) -> None:
    code = WorkerCode("decode", "data.py:7", 0, samples, 100)
    other = WorkerCode("crop", "data.py:9", 1, 90, 100)
    notes = (Note(NoteKind.WORKER_CODE, "", seen=each) for each in (other, code))
    subject = loading(wait_ms=1, batch_ms=40, workers=2, notes=tuple(notes))
    (one,) = found(data_loading, subject)
    said = "the workers run decode (data.py:7) 80 % of the time"
    assert one.title.endswith(", most of it in decode (data.py:7)") == named
    assert (f"make decode (data.py:7) cheaper: {said}" == one.change[1]) == named
    assert (said in one.evidence) == named


def test_workers_of_a_stream_are_to_share_its_records_first() -> None:
    """More workers do nothing for one of which each decodes all."""
    code = WorkerCode("decode", "data.py:7", 0, 80, 100, streams=1)
    note = Note(NoteKind.WORKER_CODE, "", seen=code)
    (one,) = found(data_loading, loading(wait_ms=1, batch_ms=40, workers=2, notes=(note,)))
    first, more, *others = one.change
    assert first.startswith("take each worker's share of the records before decode (data.py:7)")
    assert more.startswith("DataLoader(…, num_workers=")
    assert not [change for change in others if "worker decodes all" in change]


def test_nothing_recorded_names_no_number() -> None:
    (one,) = finding()
    assert "4 or more" in one.change[0]
    assert one.table == "gap_summary"
