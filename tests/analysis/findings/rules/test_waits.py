"""Waits of the host, and of streams for each other."""

from collections.abc import Callable, Container, Iterator
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.allocations import ONCE, PINNED, allocations
from nsysflow.analysis.findings.rules.allocator_retry import CHANGE as CHANGE_OF_RETRIES
from nsysflow.analysis.findings.rules.allocator_retry import allocator_retry
from nsysflow.analysis.findings.rules.copies import blocking_copies, exposed_copy
from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from nsysflow.analysis.findings.rules.waits import dependency_wait, waits
from nsysflow.base.units import duration
from tests import tiny
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    found,
    judged,
    launched,
    loop,
    named,
    options_of,
)
from tests.analysis.replay.test_overlapped import Engine, step_us
from tests.oracle.model import Frame, Op, Sample, to_trace
from tests.tiny import AS_RECORDED, plain_of


def waiting(start: int, i: int, *phases: str) -> Iterator[Row]:
    """A kernel of 100 us, and a wait in each phase; the host then takes 60 us to go on."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    for turn, phase in enumerate(phases):
        begin = start + (20 + 110 * turn) * US
        yield tiny.opened(begin, begin + 105 * US, phase)
        end = start + (118 + 110 * turn) * US
        yield tiny.call(begin + 1 * US, end, "cudaDeviceSynchronize")
        yield from launched(
            start, 100 * i + 2 + turn, at=180 + 110 * turn, took=5, kernel_ns=20 * US
        )


def test_a_wait_without_a_line_is_found_by_its_phase() -> None:
    (one,) = found(waits, loop(lambda start, i: waiting(start, i, "log"), every=300))
    assert (one.rule, one.phase, one.source) == ("sync-in-loop", "step/log", "")
    assert options_of(one) == "--remove sync@step/log"
    assert one.evidence[0].startswith("one call a step blocks the host for 97.0 us")


def test_a_wait_in_a_notebook_is_found_and_removed_by_its_line() -> None:
    def in_a_cell(start: int, i: int) -> Iterator[Row]:
        yield from waiting(start, i, "log")
        yield from (tiny.sample(start + at * US, "<cell line: 0>") for at in (30, 110))

    subject = loop(in_a_cell, every=300)
    (one,) = (each for each in find(subject).valued if each.finding.rule == "sync-in-loop")
    assert one.finding.source == "train.py:1 in <cell line: 0>"
    assert options_of(one.finding) == "--remove sync@train.py:1"
    assert one.low_ns > 0


def test_all_waits_are_a_finding_beside_each_phase_s_but_save_no_more_together() -> None:
    subject = loop(lambda start, i: waiting(start, i, "log", "check"), every=400)
    rows = found(waits, subject)
    assert [one.phase for one in rows if not one.joint] == ["step/log", "step/check"]
    assert len([one for one in rows if one.joint]) == 1
    alone = [one for one in find(subject).valued if one.finding.waits]
    assert alone
    assert not any(one.finding.joint for one in alone)


def test_a_wait_of_few_steps_hides_none_of_the_others() -> None:
    def rarely(start: int, i: int) -> Iterator[Row]:
        yield from waiting(start, i, "log", *(("check",) if i == 8 else ()))

    assert not any(one.joint for one in found(waits, loop(rarely, steps=24, every=400)))


def both(start: int, i: int) -> Iterator[Row]:
    """A kernel of 500 us, and two waits for it right after each other, in two phases; then the
    host works for 300 us."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=500 * US)
    for begin, end, phase in ((20, 518, "log"), (520, 523, "check")):
        yield tiny.opened(start + begin * US, start + (end + 1) * US, phase)
        yield tiny.call(start + (begin + 1) * US, start + end * US, "cudaDeviceSynchronize")


def test_waits_that_hide_each_other_are_one_finding_together() -> None:
    first, *others = find(loop(both, steps=12, every=820)).valued
    assert first.finding.joint
    assert first.high_ns > 250 * US
    assert all(one.high_ns < 150 * US for one in others if one.finding.waits)


def delayed(start: int, i: int) -> Iterator[Row]:
    """A kernel, and one launched right behind it that begins 300 us after the first has ended."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    yield from launched(start, 100 * i + 2, at=20, took=5, kernel_ns=80 * US, queued=395)


def test_idle_time_long_after_a_launch_is_a_wait_for_work_that_is_not_named() -> None:
    def told(start: int, i: int) -> Iterator[Row]:
        yield tiny.call(start + 16 * US, start + 18 * US, "cudaStreamWaitEvent")
        yield from delayed(start, i)

    (one,) = found(dependency_wait, loop(told, every=550))
    assert one.title == "the GPU waits for work that the report does not name in step"
    assert one.phase == "step"
    assert 250 * US < one.at_most_ns <= 303 * US
    assert one.method == "bound"


def test_where_no_stream_is_told_to_wait_the_cause_is_not_known() -> None:
    (one,) = found(dependency_wait, loop(delayed, every=550))
    assert one.title == "the GPU starts late what was launched, and why is not recorded in step"
    assert not any("stream" in text for text in one.change)


def test_idle_time_of_a_cause_that_is_not_known_makes_the_saving_of_a_wait_a_bound() -> None:
    def late(start: int, i: int) -> Iterator[Row]:
        yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US, queued=400)
        yield tiny.call(start + 16 * US, start + 520 * US, "cudaDeviceSynchronize")

    (one,) = (one for one in find(loop(late, every=530)).valued if one.finding.waits)
    assert (one.finding.method, one.low_ns) == ("bound", 0)
    assert one.finding.evidence[-1].startswith("why the GPU starts late")


def copied(start: int, end: int, number: int, of: Op) -> Iterator[Row]:
    """A copy, and the call that makes it."""
    yield replace(tiny.launch(start, end, number), name="cudaMemcpyAsync")
    yield of


def norms(start: int, i: int) -> Iterator[Row]:
    """40 kernels of 60 us, then a norm for each of 100 parameters, each read back at once."""
    now, free = start + 5 * US, start + 5 * US
    for number in range(1_000 * i + 1, 1_000 * i + 41):
        yield tiny.launch(now, now + 5 * US, number)
        first, free = free, max(free, now + 7 * US) + 60 * US
        yield tiny.kernel(max(first, now + 7 * US), free, number)
        now += 12 * US
    for number in range(1_000 * i + 41, 1_000 * i + 241, 2):
        yield tiny.launch(now, now + 5 * US, number)
        begun = max(free + 1 * US, now + 7 * US)
        yield tiny.kernel(begun, begun + 4 * US, number)
        free = max(begun + 5 * US, now + 15 * US)
        read = tiny.copy(free, free + 2 * US, number + 1, "DtoH", "device", "pinned")
        yield from copied(now + 8 * US, now + 13 * US, number + 1, read)
        yield tiny.call(now + 14 * US, free + 5 * US, "cudaStreamSynchronize")
        now, free = free + 11 * US, free + 2 * US


def test_values_read_back_one_by_one_are_one_finding_with_what_all_of_them_save() -> None:
    report = find(loop(norms, every=6_000))
    first, *others = report.valued
    assert not report.notes
    assert first.finding.rule == "scalar-readback"
    assert first.finding.title.startswith("value read back in the loop, 100 times a step: ")
    # 2,400 us of kernels, then 100 times a norm and its copy, 10 us with the pauses between
    assert first.step_ns - first.low_ns == pytest.approx(3_400 * US, rel=0.05)
    # without the loop only the kernels before it are left
    assert first.step_after_ns == pytest.approx(2_400 * US, rel=0.05)
    ends = f"{duration(first.low_ns)} if only the waits go, {duration(first.high_ns)} if the 100 "
    assert first.finding.evidence[-1] == f"{ends}kernels and the code between them go, too"
    assert not any(one.finding.waits for one in others)


def test_a_program_that_reads_in_each_of_its_blocks_is_no_loop_to_remove() -> None:
    first, *_ = find(loop(lambda start, i: list(norms(start, i))[80:], every=6_000)).valued
    assert first.finding.rule == "scalar-readback"
    assert not first.is_range


def repeats(start: int, i: int) -> Iterator[Row]:
    """The same, where every second read is right before the kernel of repeat_interleave."""
    for row in norms(start, i):
        if isinstance(row, Op) and not row.copy:
            number = (row.correlation or 0) % 1_000
            is_one = number > 40 and number % 4 == 1
            yield named(row, "void compute_cuda_kernel<long>()") if is_one else row
        else:
            yield row


@pytest.mark.parametrize(
    ("body", "change"), [(norms, "read all values at once"), (repeats, "repeat_interleave(…, ")]
)
def test_reads_of_sizes_are_told_how_to_do_without(
    body: Callable[[int, int], Iterator[Row]], change: str
) -> None:
    (one,) = found(waits, loop(body, every=6_000))
    assert one.change[0].startswith(change)


def read_in(start: int, i: int, library: str) -> Iterator[Row]:
    """A value read back, while a function of the program calls this function of a library."""
    file, function = library.split(" ")
    inside = (
        Frame(f"/lib/python3.12/site-packages/{file}", 76, function),
        Frame("/me/agent.py", 7, "act"),
    )
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    copied_at = start + 120 * US
    read = tiny.copy(copied_at, copied_at + 2 * US, 100 * i + 2, "DtoH", "device", "pinned")
    yield from copied(start + 20 * US, start + 25 * US, 100 * i + 2, read)
    yield tiny.call(start + 26 * US, copied_at + 3 * US, "cudaStreamSynchronize")
    yield from (Sample(start + at * US, tiny.MAIN, inside) for at in (40, 60, 80))


@pytest.mark.parametrize(
    ("library", "checks"),
    [
        ("torch/distributions/distribution.py __init__", True),
        ("torch/distributions/distribution.py _validate_sample", True),
        ("torch/distributions/categorical.py sample", False),
    ],
)
def test_reads_that_check_the_arguments_of_a_distribution_are_told_how_to_do_without(
    library: str, checks: bool
) -> None:
    (one,) = found(waits, loop(lambda start, i: read_in(start, i, library), every=300))
    assert one.source == "agent.py:7 in act"
    assert ("validate_args=False" in one.change[0]) is checks
    assert one.method == ("least" if checks else "replay")


def searching(start: int, i: int, written: str) -> Iterator[Row]:
    """40 operators that write down their stacks at this file for half the time, 30 us each; then a
    gradient is compared and read back 100 times."""
    library, program = "/lib/python3.12/site-packages", Frame("/me/train.py", 7, "forward")
    yield tiny.opened(start, start + 1_210 * US, "forward")
    for k in range(40):
        yield from launched(start, 1_000 * i + 500 + k, at=30 * k, took=5, kernel_ns=15 * US)
        for at, frames in ((8, (Frame(f"{library}/{written}", 3, "format_stack"),)), (18, ())):
            yield Sample(start + (30 * k + at) * US, tiny.MAIN, (*frames, program))
    yield tiny.opened(start + 1_215 * US, start + 7_900 * US, "backward")
    yield from (row for row in norms(start + 1_215 * US, i) if _of_reads(row))


def _of_reads(row: Row) -> bool:
    """Whether a row is of the 100 reads, not of the 40 kernels before them."""
    number = getattr(row, "correlation", None)
    return number is None or number % 1_000 > 40


@pytest.mark.parametrize(
    ("written", "rule"),
    [("torch/fx/traceback.py", "anomaly-detection"), ("logs/traceback.py", "scalar-readback")],
)
def test_reads_in_backward_are_of_anomaly_detection_where_operators_write_down_stacks(
    written: str, rule: str
) -> None:
    subject = loop(lambda start, i: searching(start, i, written), every=8_000)
    (one,) = found(waits, subject)
    assert one.rule == rule
    if rule == "anomaly-detection":
        assert one.title.startswith("autograd looks for NaN in each gradient, 100 times a step: ")
        assert one.changes is not None
        assert one.sure is not None
        ((phase, factor),) = one.changes.faster_host
        assert phase == "step/forward"
        assert 0.3 < factor < 0.7
        assert options_of(one).startswith("--remove loop@step/backward ")
        assert options_of(replace(one, changes=one.sure)) == "--remove sync@step/backward"


def batches(start: int, i: int) -> Iterator[Row]:
    """A batch of 2 MB copied from pageable memory in 180 us, and 20 kernels of 60 us; then a value
    is read back."""
    now, number = start + 5 * US, 100 * i + 1
    up = tiny.copy(now + 10 * US, now + 190 * US, number, "HtoD", "pageable", "device")
    moved = replace(up.copy, bytes=2_000_000) if up.copy else None
    yield from copied(now, now + 195 * US, number, replace(up, copy=moved))
    yield tiny.call(now + 196 * US, now + 199 * US, "cudaStreamSynchronize")
    now += 205 * US
    free = now + 7 * US
    for number in range(100 * i + 2, 100 * i + 22):
        yield tiny.launch(now, now + 5 * US, number)
        yield tiny.kernel(free, free + 60 * US, number)
        now, free = now + 12 * US, free + 60 * US
    read = tiny.copy(free, free + 2 * US, 100 * i + 22, "DtoH", "device", "pinned")
    yield from copied(now, now + 5 * US, 100 * i + 22, read)
    yield tiny.call(now + 6 * US, free + 5 * US, "cudaStreamSynchronize")


def test_a_batch_copied_from_pageable_memory_saves_at_most_what_copying_ahead_does() -> None:
    report = loop(batches, every=1_440)
    (one,) = (one for one in find(report).valued if one.finding.rule == "pageable-copy")
    assert (one.finding.method, one.low_ns) == ("bound", 0)
    # the copy and its calls; what is left is 1.2 ms of kernels, and the read-back
    assert one.high_ns == pytest.approx(220 * US, rel=0.1)
    assert not any(each.finding.joint for each in find(report).valued)


def test_a_copy_to_the_host_takes_no_copies_to_the_gpu_with_it() -> None:
    def results(start: int, i: int) -> Iterator[Row]:
        for row in batches(start, i):
            if isinstance(row, Op) and row.copy and row.copy.direction == "DtoH":
                fetched = replace(row.copy, target_memory="pageable", bytes=300_000)
                row = replace(row, copy=fetched)
            yield row

    fetch, batch = found(blocking_copies, loop(results, every=1_440))
    assert fetch.title.startswith("copy to pageable memory")
    assert batch.title.startswith("HtoD copy of pageable memory")
    assert fetch.changes is not None
    assert (fetch.exact, fetch.changes.scaled) == (True, ())


def pinned_copies(start: int, i: int, way: str, stream: int, kernel_us: int) -> Iterator[Row]:
    """A pinned batch that takes 200 us, and the kernel behind it."""
    number = 10 * i + 1
    sides = ("device", "pinned") if way == "DtoH" else ("pinned", "device")
    batch = tiny.copy(start + 10 * US, start + 210 * US, number, way, *sides)
    yield from copied(start, start + 5 * US, number, tiny.on_stream(batch, stream))
    yield tiny.launch(start + 6 * US, start + 11 * US, number + 1)
    yield tiny.kernel(start + 212 * US, start + (212 + kernel_us) * US, number + 1)


@pytest.mark.parametrize(
    ("way", "stream", "kernel_us", "change", "method"),
    [
        ("HtoD", 7, 700, "copy the next batch on a stream of its own", "replay"),
        ("DtoH", 7, 700, "copy on a stream of its own", "replay"),
        ("HtoD", 99, 700, "two buffers in turn", "replay"),
        ("HtoD", 99, 150, "two buffers in turn", "bound"),  # no kernels are left to copy under
        ("HtoD", 99, 80, "keep on the GPU", "bound"),
        # a tenth of a step is worth it for copies that have a stream of their own
        ("HtoD", 99, 1_800, "two buffers in turn", "replay"),
        ("HtoD", 99, 4_000, None, ""),
        ("HtoD", 7, 1_800, None, ""),
    ],
)
def test_copies_that_could_run_under_kernels_save_their_time(
    way: str, stream: int, kernel_us: int, change: str | None, method: str
) -> None:
    def rows(start: int, i: int) -> Iterator[Row]:
        return pinned_copies(start, i, way, stream, kernel_us)

    finding = asked(exposed_copy, loop(rows, every=220 + kernel_us))
    assert (finding is None) == (change is None)
    assert finding is None or finding.change[0].startswith(change or "")
    assert finding is None or finding.method == method
    if method == "bound":  # no more than what the evidence says
        assert finding is not None
        assert 0 < finding.at_most_ns <= finding.size_ns


@pytest.mark.parametrize(("way", "rules"), [("UVM DtoH", []), ("UVM HtoD", ["sync-in-loop"])])
def test_who_reads_managed_memory_needs_to_wait_for_the_gpu(way: str, rules: list[str]) -> None:
    def read_by_the_host(start: int, i: int) -> Iterator[Row]:
        yield from waiting(start, i, "log")
        yield tiny.copy(start + 130 * US, start + 131 * US, None, way, "managed", "managed")

    assert [one.rule for one in found(waits, loop(read_by_the_host, every=400))] == rules


SERIAL = "serial-scheduling"


def valued(engine: Engine) -> dict[str, int]:
    """The findings and what each saves, in ns."""
    analysis = nsysflow.analyze(to_trace(plain_of(*engine.rows())), AS_RECORDED)
    return {one.finding.rule: one.high_ns for one in analysis.found.valued}


@pytest.mark.parametrize("pageable", [False, True])
def test_serial_scheduling_is_the_finding_and_no_wait_for_tokens_is_another(pageable: bool) -> None:
    savings = valued(Engine(pageable=pageable))
    assert next(iter(savings)) == SERIAL
    saved_us = step_us(Engine(pageable=pageable)) - step_us(Engine(ahead=True))
    assert savings[SERIAL] / 1_000 == pytest.approx(saved_us, rel=0.05)
    assert not {"sync-in-loop", "scalar-readback", "host-round-trip"} & {*savings}


def test_overlapped_scheduling_has_no_such_finding() -> None:
    assert SERIAL not in valued(Engine(ahead=True))


@pytest.mark.parametrize(
    ("product", "advised", "bits"),
    [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNN", "more requests", True),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "more requests", False),
        ("marlin::Marlin<int4, gemm>", "more requests", False),
        ("flash_fwd_splitkv_kernel", "KV cache", None),
    ],
)
def test_an_engine_that_computes_all_the_time_is_advised_what_its_operator_can_do(
    product: str, advised: str, bits: bool | None
) -> None:
    engine = Engine(gpu=5_000, ahead=True)
    rows = [named(row, product) if isinstance(row, Op) else row for row in engine.rows()]
    (last,) = (
        one.finding
        for one in nsysflow.analyze(to_trace(plain_of(*rows)), AS_RECORDED).found.valued
        if one.finding.table == "kernels"
    )
    assert last.rule == "engine-kernels"
    assert advised in last.change[0]
    assert any("requests a step" in text for text in last.evidence)
    assert not any(word in " ".join(last.change) for word in ("padding", "Transformer Engine"))
    if bits is not None:
        assert any("fp8, AWQ, GPTQ" in line for line in last.change) == bits


def full(start: int, i: int) -> Iterator[Row]:
    """A kernel of 60 us; then an allocation fails, five frees follow the wait, and it succeeds.
    Another one later in the step has nothing to do with that."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=60 * US)
    yield tiny.opened(start + 20 * US, start + 400 * US, "forward")
    yield tiny.call(start + 30 * US, start + 50 * US, "cudaMalloc")
    yield tiny.call(start + 52 * US, start + 80 * US, "cudaDeviceSynchronize")
    for at in range(85, 285, 40):
        yield tiny.call(start + at * US, start + (at + 35) * US, "cudaFree")
    yield tiny.call(start + 290 * US, start + 330 * US, "cudaMalloc")
    yield from launched(start, 100 * i + 2, at=340, took=5, kernel_ns=100 * US)
    yield tiny.call(start + 450 * US, start + 500 * US, "cudaMalloc")
    yield from launched(start, 100 * i + 3, at=505, took=5, kernel_ns=20 * US)


def retrying(steps: Container[int], *, count: int = 12) -> JudgedReport:
    """Steps of 200 us; those that find the memory full take 600 us."""
    rows: list[Row] = []
    start = 0
    for i in range(count):
        last = start + (600 if i in steps else 200) * US
        rows.append(tiny.opened(start, last - 1, "step"))
        if i in steps:
            rows += full(start, i)
        else:
            rows += launched(start, 100 * i + 1, at=10, took=5, kernel_ns=180 * US)
        start = last
    plain = plain_of(*rows)
    failed = tuple(
        row
        for row in plain.calls
        if row.name == "cudaMalloc" and row.end_ns - row.start_ns == 20 * US
    )
    trace = to_trace(replace(plain, failed_calls=failed))
    return JudgedReport(nsysflow.analyze(trace, replace(AS_RECORDED, skip=0)))


def test_a_retry_of_the_allocator_is_a_finding_of_its_own_and_shares_no_time_with_churn() -> None:
    subject = retrying(range(12))
    retry, churn = find(subject).valued
    assert retry.finding.rule == "allocator-retry"
    assert retry.finding.title == (
        "GPU memory was full: cudaMalloc failed and was tried again in step/forward"
    )
    steps = subject.steps
    assert retry.finding.evidence[:2] == (
        f"{steps} of {3 * steps} cudaMalloc calls in {steps} steps failed for want of memory",
        f"PyTorch gave its cached blocks back before it tried again, in {5 * steps} calls:"
        " 300 us a step, 253 us of it with an idle GPU",
    )
    assert not any("empty_cache" in line for line in retry.finding.change)
    assert options_of(retry.finding) == "--remove retry"
    # from where the first kernel ends (77 us) to the launch behind the retry, and the 50 us
    assert retry.low_ns == pytest.approx(263 * US, abs=5 * US)
    assert (churn.finding.rule, churn.finding.size_ns) == ("allocator-churn", 50 * US)
    assert options_of(churn.finding) == "--remove churn"
    assert churn.alone_ns == pytest.approx(50 * US, abs=US)


def test_allocations_that_all_succeed_are_churn_and_no_retry() -> None:
    subject = loop(full, every=600)
    assert not found(allocator_retry, subject)
    assert options_of(found(allocations, subject)[0]) == "--remove alloc"


def allocating(api: str, took: int) -> Callable[[int, int], Iterator[Row]]:
    """Two kernels of 20 us, and between their launches a call for memory of so many us."""

    def body(start: int, i: int) -> Iterator[Row]:
        yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=20 * US)
        yield tiny.call(start + 40 * US, start + (40 + took) * US, api)
        yield from launched(start, 100 * i + 2, at=50 + took, took=5, kernel_ns=20 * US)

    return body


@pytest.mark.parametrize(
    "api", ["cudaHostAlloc", "cudaFreeHost", "cuMemHostAlloc", "hipHostMalloc"]
)
def test_pinned_memory_is_to_be_pinned_once_and_has_no_cache_to_leave_full(api: str) -> None:
    (one,) = found(allocations, loop(allocating(api, 100), every=300))
    assert (one.rule, one.change[0], one.fits) == ("pinned-allocation", PINNED, True)
    assert one.title == f"pinned memory allocated and freed in the loop: {api} in step"
    assert not any("empty_cache" in line for line in one.change)


def calls_for_memory(*lengths: int) -> JudgedReport:
    """A kernel and a cudaFree of each of these lengths in us, in turn, without a step."""
    rows: list[Row] = []
    start = 0
    for i, took in enumerate(lengths):
        rows += allocating("cudaFree", took)(start, i)
        start += (took + 100) * US
    return judged(*rows)


def test_a_first_call_with_most_of_the_idle_time_is_start_up_where_no_steps_are_known() -> None:
    (one,) = found(allocations, calls_for_memory(6_000, 50, 50, 5))
    assert one.rule == "first-allocation"
    assert one.title == "start-up: the first cudaFree takes 6.00 ms outside any range"
    assert one.change == ONCE
    # no replay: the other calls stay
    assert (one.method, one.at_most_ns) == ("bound", one.size_ns)
    assert one.size_ns == pytest.approx(6_000 * US, abs=40 * US)


def test_calls_for_memory_that_come_again_and_again_are_churn_without_a_step_too() -> None:
    (one,) = found(allocations, calls_for_memory(*[50] * 12))
    assert one.rule == "allocator-churn"
    assert one.title == "memory allocated and freed, 12 times: cudaFree outside any range"


def test_a_pause_in_which_memory_was_full_says_so_and_does_not_advise_to_empty_the_cache() -> None:
    (pause,) = found(periodic_pause, retrying(range(5, 40, 5), count=40))
    assert pause.rule == "periodic-pause"
    assert pause.fits
    assert pause.change == CHANGE_OF_RETRIES
    assert "7 of 21 cudaMalloc calls in 7 steps failed for want of memory" in pause.evidence
