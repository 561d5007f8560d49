"""Waits of the host, and of streams for each other."""

from collections.abc import Container
from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.allocations import (
    CHANGE_OF_RETRIES,
    ONCE,
    PINNED,
    allocations,
    allocator_retry,
)
from nsysflow.analysis.findings.rules.copies import blocking_copies, exposed_copy
from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from nsysflow.analysis.findings.rules.waits import dependency_wait, waits
from nsysflow.base.units import duration
from tests import tiny
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    changes_of,
    found,
    judged,
    later,
    launched,
    loop,
    named,
    options_of,
    valued_of,
)
from tests.analysis.replay.test_overlapped import Engine, step_us
from tests.in_us import call, copy, kernel, launch, opened, sample
from tests.oracle.model import Call, Frame, Op, Sample, to_trace
from tests.tiny import AS_RECORDED, plain_of

SYNC: Final = "cudaDeviceSynchronize"
COPY: Final = "cudaMemcpyAsync"
UP, DOWN = ("HtoD", "pinned", "device"), ("DtoH", "device", "pinned")


def waiting(*phases: str) -> list[Row]:
    """A kernel of 100 us, and a wait in each phase; the host then takes 60 us to go on."""
    rows: list[Row] = [*launched(10, 100)]
    for at, phase in zip(range(20, 1_000, 110), phases, strict=False):
        rows += [opened(at, at + 105, phase), call(at + 1, at + 98, SYNC), *launched(at + 160, 20)]
    return rows


def test_a_wait_without_a_line_is_found_by_its_phase() -> None:
    (one,) = found(waits, loop(waiting("log"), every=300))
    assert (one.rule, one.phase, one.source) == ("sync-in-loop", "step/log", "")
    assert options_of(one) == "--remove sync@step/log"
    assert one.evidence[0].startswith("one call a step blocks the host for 97.0 us")


def test_a_wait_in_a_notebook_is_found_and_removed_by_its_line() -> None:
    in_a_cell = *waiting("log"), *(sample(at, "<cell line: 0>") for at in (30, 110))
    one = valued_of("sync-in-loop", loop(in_a_cell, every=300))
    assert one.finding.source == "train.py:1 in <cell line: 0>"
    assert options_of(one.finding) == "--remove sync@train.py:1"
    assert one.low_ns > 0


def test_all_waits_are_a_finding_beside_each_phase_s_but_save_no_more_together() -> None:
    subject = loop(waiting("log", "check"), every=400)
    rows = found(waits, subject)
    assert [one.phase for one in rows if not one.joint] == ["step/log", "step/check"]
    assert len([one for one in rows if one.joint]) == 1
    alone = [one for one in find(subject).valued if one.finding.waits]
    assert alone
    assert not any(one.finding.joint for one in alone)


def test_a_wait_of_few_steps_hides_none_of_the_others() -> None:
    rarely = loop(lambda i: waiting("log", *(("check",) if i == 8 else ())), steps=24, every=400)
    assert not any(one.joint for one in found(waits, rarely))


def test_waits_that_hide_each_other_are_one_finding_together() -> None:
    """Two waits for a kernel of 500 us, right after each other; then 300 us of the host."""
    both = (
        *launched(10, 500),
        *(opened(20, 519, "log"), call(21, 518, SYNC)),
        *(opened(520, 524, "check"), call(521, 523, SYNC)),
    )
    first, *others = find(loop(both, steps=12, every=820)).valued
    assert first.finding.joint
    assert first.finding.effort == "lines"  # one for each
    assert first.high_ns > 250 * US
    assert all(one.high_ns < 150 * US for one in others if one.finding.waits)


DELAYED: Final = *launched(10, 100), *launched(20, 80, queued=395)
"""A kernel, and one launched right behind it that begins 300 us after the first has ended."""


def test_idle_time_long_after_a_launch_is_a_wait_for_work_that_is_not_named() -> None:
    told = call(16, 18, "cudaStreamWaitEvent"), *DELAYED
    (one,) = found(dependency_wait, loop(told, every=550))
    assert one.title == "the GPU waits for work that the report does not name in step"
    assert one.phase == "step"
    assert 250 * US < one.at_most_ns <= 303 * US
    assert one.method == "bound"


def test_where_no_stream_is_told_to_wait_the_cause_is_not_known() -> None:
    (one,) = found(dependency_wait, loop(DELAYED, every=550))
    assert one.title == "the GPU starts late what was launched, and why is not recorded in step"
    assert not any("stream" in text for text in one.change)


def test_idle_time_of_a_cause_that_is_not_known_makes_the_saving_of_a_wait_a_bound() -> None:
    late = *launched(10, 100, queued=400), call(16, 520, SYNC)
    (one,) = (one for one in find(loop(late, every=530)).valued if one.finding.waits)
    assert (one.finding.method, one.low_ns) == ("bound", 0)
    assert one.finding.evidence[-1].startswith("why the GPU starts late")


def norms() -> list[Row]:
    """40 kernels of 60 us, then a norm for each of 100 parameters, each read back at once."""
    rows: list[Row] = []
    now = free = 5
    for _ in range(40):
        start = max(free, now + 7)
        free = start + 60
        rows += [launch(now, now + 5, now), kernel(start, free, now)]
        now += 12
    for _ in range(100):
        start = max(free + 1, now + 7)
        free = max(start + 5, now + 15)
        rows += [launch(now, now + 5, now), kernel(start, start + 4, now)]
        rows += [
            launch(now + 8, now + 13, now + 8, name=COPY),
            copy(free, free + 2, now + 8, *DOWN),
        ]
        rows.append(call(now + 14, free + 5, "cudaStreamSynchronize"))
        now, free = free + 11, free + 2
    return rows


READS: Final = norms()[80:]
"""The norms alone."""


def test_values_read_back_one_by_one_are_one_finding_with_what_all_of_them_save() -> None:
    report = find(loop(norms(), every=6_000))
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
    first, *_ = find(loop(READS, every=6_000)).valued
    assert first.finding.rule == "scalar-readback"
    assert not first.is_range


def repeats() -> list[Row]:
    """The same, where every second read is right before the kernel of repeat_interleave."""
    rows = norms()
    norms_alone = [at for at, row in enumerate(rows) if isinstance(row, Op) and not row.copy][40:]
    for at in norms_alone[::2]:
        rows[at] = named(rows[at], "void compute_cuda_kernel<long>()")  # type: ignore[arg-type]
    return rows


@pytest.mark.parametrize(
    ("rows", "change"),
    [(norms(), "read all values at once"), (repeats(), "repeat_interleave(…, ")],
    ids=["norms", "repeats"],
)
def test_reads_of_sizes_are_told_how_to_do_without(rows: list[Row], change: str) -> None:
    (one,) = found(waits, loop(rows, every=6_000))
    assert one.change[0].startswith(change)


LIBRARIES: Final = "/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("file", "function", "checks"),
    [
        ("distribution.py", "__init__", True),
        ("distribution.py", "_validate_sample", True),
        ("categorical.py", "sample", False),
    ],
)
def test_reads_that_check_the_arguments_of_a_distribution_are_told_how_to_do_without(
    file: str, function: str, checks: bool
) -> None:
    inside = Frame(f"{LIBRARIES}/torch/distributions/{file}", 76, function)
    stack = inside, Frame("/me/agent.py", 7, "act")
    rows = (
        *(*launched(10, 100), launch(20, 25, 20, name=COPY), copy(120, 122, 20, *DOWN)),
        call(26, 123, "cudaStreamSynchronize"),
        *(Sample(at * US, tiny.MAIN, stack) for at in (40, 60, 80)),
    )
    (one,) = found(waits, loop(rows, every=300))
    assert one.source == "agent.py:7 in act"
    assert ("validate_args=False" in one.change[0]) is checks
    assert one.method == ("least" if checks else "replay")


def counting(phase: str, file: str) -> Finding:
    """Values read back 100 times in this phase, by this file of libraries."""
    inside = Frame(f"{LIBRARIES}/{file}", 570, "_multi_tensor_adam")
    stack = inside, Frame("/me/train.py", 7, "train")
    samples = (Sample(at * US, tiny.MAIN, stack) for at in range(1_300, 5_000, 5))
    reads = opened(1_215, 7_900, phase), *later(READS, 1_210), *samples
    both = found(waits, loop([*launched(10, 100), *reads], every=8_000))
    return next(one for one in both if one.source and not one.joint)  # some have no sample


@pytest.mark.parametrize(
    ("phase", "file", "counts"),
    [
        ("optimizer", "torch/optim/adam.py", True),
        ("Optimizer.step#AdamW.step", "torch/optim/adamw.py", True),
        ("optimizer", "torch/optim/optimizer.py", False),  # around the program's own
        ("update", "torch/optim/adam.py", False),
    ],
)
def test_reads_of_an_optimizer_s_step_counts_are_told_how_to_do_without(
    phase: str, file: str, counts: bool
) -> None:
    one = counting(phase, file)
    assert one.source == "train.py:7 in train"
    assert one.rule == "scalar-readback"
    assert ("fused=True" in one.change[0]) is counts


def test_reads_in_backward_without_a_line_are_of_a_gradient() -> None:
    in_backward = opened(1_215, 7_900, "backward"), *later(READS, 1_210)
    (one,) = found(waits, loop([*launched(10, 100), *in_backward], every=8_000))
    assert "torch.cumprod" in one.change[0]


def searching(written: str) -> Finding:
    """What is found of 40 operators that write down their stacks at this file for half the time, 30
    us each; then a gradient is compared and read back 100 times."""
    program = Frame("/me/train.py", 7, "forward")
    writes = Frame(f"{LIBRARIES}/{written}", 3, "format_stack")
    rows: list[Row] = [opened(0, 1_210, "forward"), opened(1_215, 7_900, "backward")]
    for at in range(0, 1_200, 30):
        rows += launched(at, 15)
        rows += [Sample((at + 8) * US, tiny.MAIN, (writes, program))]
        rows += [Sample((at + 18) * US, tiny.MAIN, (program,))]
    (one,) = found(waits, loop([*rows, *later(READS, 1_210)], every=8_000))
    return one


def test_reads_in_backward_where_operators_write_down_stacks_are_of_anomaly_detection() -> None:
    one = searching("torch/fx/traceback.py")
    assert one.rule == "anomaly-detection"
    assert one.title.startswith("autograd looks for NaN in each gradient, 100 times a step: ")
    ((phase, factor),) = changes_of(one).faster_host
    assert phase == "step/forward"
    assert 0.3 < factor < 0.7
    assert options_of(one).startswith("--remove loop@step/backward ")
    assert options_of(replace(one, changes=one.sure)) == "--remove sync@step/backward"


def test_other_reads_in_backward_are_values_read_back() -> None:
    assert searching("logs/traceback.py").rule == "scalar-readback"


def batches(memory: str = "pinned", moved: int = 1_000) -> list[Row]:
    """A batch of 2 MB copied from pageable memory in 180 us, and 20 kernels of 60 us; then values
    are read back to this memory."""
    rows: list[Row] = [
        *(launch(5, 200, 5, name=COPY), call(201, 204, "cudaStreamSynchronize")),
        copy(15, 195, 5, "HtoD", "pageable", "device", moved=2_000_000),
    ]
    for number in range(20):
        at, start = 210 + 12 * number, 217 + 60 * number
        rows += [launch(at, at + 5, at), kernel(start, start + 60, at)]
    rows += [launch(450, 455, 450, name=COPY), call(456, 1_422, "cudaStreamSynchronize")]
    return [*rows, copy(1_417, 1_419, 450, "DtoH", "device", memory, moved=moved)]


def test_a_batch_copied_from_pageable_memory_saves_at_most_what_copying_ahead_does() -> None:
    report = loop(batches(), every=1_440)
    one = valued_of("pageable-copy", report)
    assert (one.finding.method, one.low_ns) == ("bound", 0)
    # the copy and its calls; what is left is 1.2 ms of kernels, and the read-back
    assert one.high_ns == pytest.approx(220 * US, rel=0.1)
    assert not any(each.finding.joint for each in find(report).valued)


def test_a_copy_to_the_host_takes_no_copies_to_the_gpu_with_it() -> None:
    results = batches("pageable", 300_000)
    fetch, batch = found(blocking_copies, loop(results, every=1_440))
    assert fetch.title.startswith("copy to pageable memory")
    assert batch.title.startswith("pageable HtoD copy ")
    assert (fetch.exact, changes_of(fetch).scaled) == (True, ())


@pytest.mark.parametrize(
    ("way", "stream", "kernel_us", "change", "method"),
    [
        (UP, 7, 700, "copy the next batch on a stream of its own", "replay"),
        (DOWN, 7, 700, "copy on a stream of its own", "replay"),
        (UP, 99, 700, "two buffers in turn", "replay"),
        (UP, 99, 150, "two buffers in turn", "bound"),  # no kernels are left to copy under
        (UP, 99, 80, "keep on the GPU", "bound"),
        # a tenth of a step is worth it for copies that have a stream of their own
        (UP, 99, 1_800, "two buffers in turn", "replay"),
        (UP, 99, 4_000, None, ""),
        (UP, 7, 1_800, None, ""),
    ],
)
def test_copies_that_could_run_under_kernels_save_their_time(
    way: tuple[str, str, str], stream: int, kernel_us: int, change: str | None, method: str
) -> None:
    """A pinned batch that takes 200 us, and the kernel behind it."""
    batch = tiny.on_stream(copy(10, 210, 1, *way), stream)
    rows = launch(0, 5, 1, name=COPY), batch, *launched(6, kernel_us, queued=201)
    findings = found(exposed_copy, loop(rows, every=220 + kernel_us))
    if change is None:
        assert not findings
        return
    assert findings[0].change[0].startswith(change)
    assert findings[0].method == method
    if method == "bound":  # no more than what the evidence says
        assert 0 < findings[0].at_most_ns <= findings[0].size_ns


@pytest.mark.parametrize(("way", "rules"), [("UVM DtoH", []), ("UVM HtoD", ["sync-in-loop"])])
def test_who_reads_managed_memory_needs_to_wait_for_the_gpu(way: str, rules: list[str]) -> None:
    read_by_the_host = *waiting("log"), copy(130, 131, None, way, "managed", "managed")
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
    valued = nsysflow.analyze(to_trace(plain_of(*rows)), AS_RECORDED).found.valued
    (last,) = (one.finding for one in valued if one.finding.table == "kernels")
    assert last.rule == "engine-kernels"
    assert advised in last.change[0]
    assert any("requests a step" in text for text in last.evidence)
    assert not any(word in " ".join(last.change) for word in ("padding", "Transformer Engine"))
    if bits is not None:
        assert any("fp8, AWQ, GPTQ" in line for line in last.change) == bits


FULL: Final = (
    *(*launched(10, 60), opened(20, 400, "forward")),
    *(call(30, 50, "cudaMalloc"), call(52, 80, SYNC)),
    *(call(at, at + 35, "cudaFree") for at in range(85, 285, 40)),
    *(call(290, 330, "cudaMalloc"), *launched(340, 100)),
    *(call(450, 500, "cudaMalloc"), *launched(505, 20)),
)
"""A kernel of 60 us; then an allocation fails, five frees follow the wait, and it succeeds. Another
one later in the step has nothing to do with that."""


def retrying(steps: Container[int], *, count: int = 12) -> JudgedReport:
    """Steps of 200 us; those that find the memory full take 600 us."""
    rows: list[Row] = []
    start = 0
    for i in range(count):
        took, body = (600, FULL) if i in steps else (200, launched(10, 180))
        rows += later([tiny.opened(0, took * US - 1, "step"), *body], start)
        start += took
    failed = (
        row
        for row in rows
        if isinstance(row, Call)
        and row.name == "cudaMalloc"
        and row.end_ns - row.start_ns == 20 * US
    )
    return judged(*rows, failed_calls=tuple(failed))


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
    subject = loop(FULL, every=600)
    assert not found(allocator_retry, subject)
    assert options_of(asked(allocations, subject)) == "--remove alloc"


def allocating(api: str, took: int) -> list[Row]:
    """Two kernels of 20 us, and between their launches a call for memory of so many us."""
    return [*launched(10, 20), call(40, 40 + took, api), *launched(50 + took, 20)]


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
    for took in lengths:
        rows += later(allocating("cudaFree", took), start)
        start += took + 100
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
