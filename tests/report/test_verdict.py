from dataclasses import replace
from typing import Any

import pytest

from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.analysis.trace import Trace
from nsysflow.report.markdown import summary
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from nsysflow.report.terminal import page
from nsysflow.report.verdict import LOSSES, WORDS, Verdict, bound_word, judge, verdicts
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    Row,
    captured,
    device,
    handmade,
    results,
    training,
)


def judged(*devices: Row, **tables: Any) -> tuple[Verdict, ...]:
    return verdicts(results(accounting=list(devices), **tables))


def test_every_part_of_the_time_has_a_word_and_every_loss_a_name() -> None:
    assert {*WORDS} == {*PARTS}
    assert {*LOSSES} == {*PARTS} - {"compute"}


@pytest.mark.parametrize("name", [part for part in PARTS if part != "compute"])
def test_the_largest_part_names_the_verdict(name: str) -> None:
    columns = {"communication": "comm_exposed_ns", "copies": "copy_exposed_ns"}
    (found,) = judged(device(60 * MS, **{columns.get(name, f"{name}_ns"): 40 * MS}))
    assert found.sentence == f"{WORDS[name]} (67 %, 33 % computing)"
    assert (found.bound, round(found.bound_pct or 0)) == (name, 67)


@pytest.mark.parametrize(
    ("names", "word"),
    [
        ([], "no part of the time stands out"),
        (["host", "launch", "sync"], "host-, launch- and sync-bound"),
        (["host", "queue_delay"], "host-bound and bound by queue delay"),
        (["copies", "blocking_copy"], "copy-bound"),
    ],
)
def test_words_of_several_parts_are_joined_each_once(names: list[str], word: str) -> None:
    assert bound_word(names) == word


def gpu(number: int = 0, **columns: Any) -> Row:
    """A GPU in a window of 100 ms."""
    return device(100 * MS, device=number, **columns)


def hardly_used(number: int, busy_ns: int, ops: int) -> Row:
    """A GPU that works for so long."""
    return gpu(number, unknown_ns=100 * MS - busy_ns, ops=ops)


def kernels(**total_ns: int) -> list[Row]:
    return [{"class": name, "total_ns": ns} for name, ns in total_ns.items()]


@pytest.mark.parametrize(
    ("gpus", "kernels", "sentences"),
    [
        ([gpu(launch_ms=20)], [], ["compute-bound (80 %); largest loss: launch overhead, 20 %"]),
        ([gpu(sync_ms=0.9)], [], ["compute-bound (99 %)"]),  # less than 1 % is no remark
        ([gpu(host_ms=60)], [], ["host-bound (60 %, 40 % computing)"]),  # no loss again
        # host and launch are one loss
        ([gpu(launch_ms=10, host_ms=10, sync_ms=15)], [],
         ["compute-bound (65 %); largest loss: host and launch, 20 %"]),
        # parts of like size, the larger first
        ([gpu(host_ms=42, launch_ms=40)], [], ["host- and launch-bound (42 %, 18 % computing)"]),
        # a class with half of the kernel time is named, communication aside
        ([gpu()], kernels(matmul=50, softmax=50), ["compute-bound (100 %, mostly softmax)"]),
        ([gpu()], kernels(matmul=51, softmax=49), ["compute-bound (100 %, mostly matmul)"]),
        ([gpu()], kernels(matmul=40, softmax=30, norm=30), ["compute-bound (100 %)"]),
        ([gpu()], kernels(comm=90, matmul=10), ["compute-bound (100 %, mostly matmul)"]),
        # it is that of the GPUs of the verdict
        ([gpu(), gpu(1, host_ms=60)],
         [{"class": "norm", "total_ns": 1}, {"class": "softmax", "total_ns": 9, "device": 1}],
         ["GPU 1: host-bound (60 %, 40 % computing)", "GPU 0: compute-bound (100 %, mostly norm)"]),
        # GPUs of one bound share a verdict
        ([gpu(host_ms=60), gpu(1, host_ms=80)], [],
         ["host-bound (2 GPUs, 70 %, 30 % computing)"]),
        # from a hundredth of the work of the busiest on a GPU is used
        ([gpu(), hardly_used(1, MS - 100_000, 3)], [],
         ["GPU 0: compute-bound (100 %)", "GPU 1: hardly used (3 operations, 900 us of work)"]),
        ([gpu(), gpu(1), hardly_used(2, 1, 1)], [],
         ["GPU 0, GPU 1: compute-bound (2 GPUs, 100 %)",
          "GPU 2: hardly used (1 operation, 1 ns of work)"]),
        ([gpu(), hardly_used(1, MS, 3)], [],
         ["GPU 1: unexplained (99 %, 1 % computing)", "GPU 0: compute-bound (100 %)"]),
    ],
)  # fmt: skip
def test_the_sentences_have_what_bounds_the_gpus_and_their_largest_loss(
    gpus: list[Row], kernels: list[Row], sentences: list[str]
) -> None:
    assert [found.sentence for found in judged(*gpus, kernels=kernels)] == sentences


def test_what_to_check_without_gpu_work_depends_on_who_recorded_and_on_what() -> None:
    kineto = replace(handmade(), trace=Trace(report="r", collector="kineto"))
    (found,) = verdicts(Results([kineto]))
    assert "ProfilerActivity.CUDA" in found.advice
    assert "--trace" not in found.advice
    for analysis in (handmade(), kineto):
        (found,) = verdicts(Results([analysis], origin=Origin(on_cpu=True)))
        assert found.advice == "profile on a machine with a GPU, without --on cpu"
    (found,) = verdicts(Results([handmade()], origin=Origin(killed=True)))
    assert "close() and join()" in found.advice


def lines(of: RealResults) -> list[str]:
    return [str(line) for line in page(of, width=200, top=None)]


def test_a_failed_check_stands_in_place_of_the_bound() -> None:
    failed = FailedCheck(check=Check.UNSTAMPED, count=1, of=9)
    run = Results([replace(training(), failed_checks=(failed,))])
    for text in ("\n".join(lines(run)), summary(run)):
        assert "Incomplete capture: 1 of 9 operations" in text
        assert "-bound" not in text


def slowed(recorded_ms: float, process: int = 7) -> Handmade:
    """Steps of 10 ms that take longer under the profiler."""
    rows = [{"process": process, "duration_ns": int(recorded_ms * MS), "steady": True}]
    run = handmade(accounting=[device(9 * MS)], step_name="step", steps=rows)
    return captured(run, (process, 10 * MS))


def slower(share: str, others: str) -> str:
    return f"Recorded steps are {share} slower than {others}: host and launch shares are inflated"


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin(plain_step_ns=8 * MS), slower("100 %", "plain ones")),
        (Origin(plain_step_ns=8 * MS, later_step_ns=9 * MS), slower("100 %", "plain ones")),
        (Origin(later_step_ns=12 * MS), slower("33 %", "those after the recording")),
        (Origin(plain_step_ns=15 * MS), ""),
    ],
)
def test_steps_of_the_plain_run_count_first_and_then_those_after_the_recording(
    origin: Origin, said: str
) -> None:
    assert judge(Results([slowed(16)], origin=origin)).remarks == ((said,) if said else ())


def test_a_profiler_that_slows_the_steps_is_said_below_the_headline() -> None:
    run = Results([slowed(15.9)])
    remark = slower("59 %", "those before the window")
    assert judge(run).remarks == (remark,)
    assert judge(run).valid
    assert judge(run).text.endswith(f". {remark}")
    assert lines(run)[3] == remark
    assert f"\n{remark}.\n" in summary(run)
    counts = {ms: len(judge(Results([slowed(ms)])).remarks) for ms in (9.0, 11.4, 11.5)}
    assert counts == {9.0: 0, 11.4: 0, 11.5: 1}  # from 15 % on it matters


def test_without_a_known_step_it_is_said_how_to_name_one() -> None:
    (remark,) = judge(results(accounting=[device(9 * MS)])).remarks
    assert remark.startswith("No step is known, so the whole window is judged: ")
    assert "--step NAME" in remark
    assert judge(Results([training()])).remarks == ()
