from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.schema import BACKTRACES
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.analysis.trace import Trace
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from nsysflow.report.text import page_lines, summary
from nsysflow.report.validity import Invalid, are_named_as_ranks, failures
from nsysflow.report.verdict import DOING, LOSSES, WORDS, Verdict, judge, verdicts
from tests.report.handmade import (
    MS,
    STEP_NS,
    Handmade,
    Results,
    Row,
    captured,
    device,
    found_of,
    handmade,
    renamed,
    results,
    training,
    two_ranks,
    valued,
)


def judged(*devices: Row, **tables: Any) -> tuple[Verdict, ...]:
    return verdicts(results(accounting=list(devices), **tables))


def test_every_part_of_the_time_has_a_word_and_every_loss_a_name() -> None:
    assert {*WORDS} == {*DOING} == {*PARTS}
    assert {*LOSSES} == {*PARTS} - {"compute"}


@pytest.mark.parametrize("name", [part for part in PARTS if part != "compute"])
def test_the_largest_part_names_the_verdict(name: str) -> None:
    columns = {"communication": "comm_exposed_ns", "copies": "copy_exposed_ns"}
    (found,) = judged(device(60 * MS, **{columns.get(name, f"{name}_ns"): 40 * MS}))
    assert (found.bound, round(found.bound_pct or 0)) == (name, 67)
    assert found.word == WORDS[name]
    assert "67 %" in found.sentence
    assert "33 %" in found.sentence


def gpu(number: int = 0, **columns: Any) -> Row:
    """A GPU in a window of 100 ms."""
    return device(100 * MS, device=number, **columns)


def hardly_used(number: int, busy_ns: int, ops: int) -> Row:
    """A GPU that works for so long."""
    return gpu(number, unknown_ns=100 * MS - busy_ns, ops=ops)


def kernels(**total_ns: int) -> list[Row]:
    return [{"class": name, "total_ns": ns} for name, ns in total_ns.items()]


@pytest.mark.parametrize(
    ("gpus", "sentences"),
    [
        ([gpu(launch_ms=20)],
         ["Compute-bound: the GPU computes 80 % of the time; largest loss: launch overhead, 20 %"]),
        ([gpu(host_ms=60)],
         ["Host-bound: the GPU waits for the host 60 % of the time and computes 40 %"]),
        ([gpu(launch_ms=45, sync_ms=5)], ["Half computing, 45 % waiting for launches"]),
        # computing more than anything else is not computing most of the time
        ([gpu(launch_ms=20, sync_ms=18, host_ms=15, alloc_ms=8)],
         ["39 % computing, 20 % waiting for launches, 18 % waiting in a sync"]),
        # parts of like size, the larger first
        ([gpu(module_load_ms=42, launch_ms=40)],
         ["42 % loading kernels, 40 % waiting for launches, 18 % computing"]),
        # with a third one that is smaller
        ([gpu(module_load_ms=36, launch_ms=35, host_ms=20)],
         ["36 % loading kernels, 35 % waiting for launches, 20 % waiting for the host,"
          " 9 % computing"]),
        # GPUs of one bound share a verdict
        ([gpu(host_ms=60), gpu(1, host_ms=80)],
         ["Host-bound: 2 GPUs wait for the host 70 % of the time and compute 30 %"]),
        # from a hundredth of the work of the busiest on a GPU is used
        ([gpu(), gpu(1), hardly_used(2, 1, 1)],
         ["GPU 0, GPU 1: compute-bound, compute 100 % of the time",
          "GPU 2: hardly used (1 operation, 1 ns of work)"]),
    ],
)  # fmt: skip
def test_the_headline_is_a_sentence(gpus: list[Row], sentences: list[str]) -> None:
    assert [found.sentence for found in judged(*gpus)] == sentences


def test_one_hundredth_of_the_busiest_gpus_work_makes_a_gpu_used() -> None:
    bounds = {busy: [each.bound for each in judged(gpu(), hardly_used(1, busy, 3))]
              for busy in (MS - 100_000, MS)}  # fmt: skip
    assert bounds == {MS - 100_000: ["compute", None], MS: ["unknown", "compute"]}


def test_host_and_launch_are_one_loss_and_less_than_one_percent_is_none() -> None:
    (both,) = judged(gpu(launch_ms=10, host_ms=10, sync_ms=15))
    assert both.loss.endswith(", 20 %")
    (none,) = judged(gpu(sync_ms=0.9))
    assert none.loss == ""


@pytest.mark.parametrize(
    ("kernels", "named"),
    [
        (kernels(matmul=50, softmax=50), "mostly softmax"),
        (kernels(matmul=51, softmax=49), "mostly matmul"),
        (kernels(matmul=40, softmax=30, norm=30), ""),
        (kernels(comm=90, matmul=10), "mostly matmul"),
    ],
)
def test_a_class_with_half_of_the_time_is_named(kernels: list[Row], named: str) -> None:
    (found,) = judged(gpu(), kernels=kernels)
    assert found.what.endswith(named)
    assert named or "mostly" not in found.what


@pytest.mark.parametrize(
    ("culprit", "pct", "named"),
    [("add", 51, True), ("add", 50, False), ("memcpy UVM DtoH", 90, False)],
)
def test_kernels_that_wait_for_managed_memory_do_not_compute(
    culprit: str, pct: float, named: bool
) -> None:
    one = valued(round(pct * STEP_NS / 100), rule="managed-memory", culprit=culprit)
    run = handmade(accounting=[gpu()], kernels=kernels(matmul=1))
    (found,) = verdicts(Results([replace(run, found=found_of(one))]))
    assert found.what.endswith("wait for managed memory") == named


def test_the_class_is_that_of_the_gpus_of_the_verdict() -> None:
    some = [*kernels(norm=1), {"class": "softmax", "total_ns": 9, "device": 1}]
    _, found = judged(gpu(), gpu(1, host_ms=60), kernels=some)
    assert found.what.endswith("mostly norm")


def test_the_host_is_python_where_the_reports_show_its_lines() -> None:
    run = handmade(accounting=[gpu(host_ms=60)])
    kineto = replace(run, trace=replace(run.trace, collector="kineto"))
    (found,) = verdicts(Results([kineto]))
    assert found.what.startswith("waits for Python 60 %")


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
    return [str(line) for line in page_lines(of, width=200, top=None)]


def test_a_failed_check_stands_in_place_of_the_bound() -> None:
    failed = FailedCheck(check=Check.UNSTAMPED, count=1, of=9)
    run = Results([replace(training(), failed_checks=(failed,))])
    for text in ("\n".join(lines(run)), summary(run)):
        assert "Incomplete capture: 1 of 9 operations" in text
        assert "-bound" not in text.lower()


def slowed(recorded_ms: float) -> Handmade:
    """Steps of 10 ms that take longer under the profiler."""
    rows = [{"process": 7, "duration_ns": int(recorded_ms * MS), "steady": True}]
    run = handmade(accounting=[device(9 * MS)], step_name="step", steps=rows)
    return captured(run, (7, 10 * MS))


def without(share: str, others: str) -> str:
    """The same where the headline is without the profiler: all of these steps is compute."""
    return (
        f"The tables show the recorded steps. They are {share} slower than {others}, and the GPU"
        " computes 100 % of the time"
    )


LATER = "those after the recording"
NOT_TYPICAL = f"Recorded steps are not typical: 16.0 ms, {LATER} 7.00 ms. Record later ones: record"


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin(plain_step_ns=8 * MS), without("100 %", "plain ones")),
        (Origin(plain_step_ns=8 * MS, later_step_ns=9 * MS), without("100 %", "plain ones")),
        (Origin(later_step_ns=12 * MS), without("33 %", LATER)),
        (Origin(plain_step_ns=15 * MS), ""),
        (Origin(later_step_ns=7 * MS, record_later="record"), NOT_TYPICAL),
        (Origin(later_step_ns=8 * MS, record_later="record"), without("100 %", LATER)),
        (Origin(later_step_ns=7 * MS), without("129 %", LATER)),  # no command is known
        (Origin(plain_step_ns=7 * MS, record_later="record"), without("129 %", "plain ones")),
    ],
)
def test_plain_steps_count_before_those_after_the_recording(origin: Origin, said: str) -> None:
    assert judge(Results([slowed(16)], origin=origin)).remarks == ((said,) if said else ())


@pytest.mark.parametrize(
    ("origin", "headline"),
    [
        (Origin(), "25 % waiting for the host"),
        (Origin(plain_step_ns=14 * MS), "25 % waiting for the host"),  # below 15 % it is noise
        (Origin(plain_step_ns=13 * MS), "31 % computing, 31 % waiting in a sync"),
        (Origin(later_step_ns=10 * MS), "40 % computing, 40 % waiting in a sync"),
        (Origin(later_step_ns=7 * MS, record_later="record"), "25 % waiting for the host"),
        (Origin(plain_step_ns=MS), "Half computing, half waiting in a sync"),
    ],
)
def test_a_headline_is_without_the_profiler_where_a_step_was_timed_without_it(
    origin: Origin, headline: str
) -> None:
    steps = [{"duration_ns": 16 * MS, "steady": True}]
    parts = device(16 * MS, host_ms=4, launch_ms=4, sync_ms=4)
    run = handmade(accounting=[parts], step_name="step", steps=steps)
    assert headline in judge(Results([run], origin=origin)).text


def test_a_profiler_that_slows_the_steps_is_said_below_the_headline() -> None:
    run = Results([slowed(15.9)])
    than = "59 % slower than those before the window"
    remark = f"Recorded steps are {than}: host and launch shares are inflated"
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
    (remark,) = judge(results(accounting=[device(9 * MS)], step_name="step")).remarks
    assert remark.startswith("Too few steps were recorded")


BLIND = FailedCheck(check=Check.NO_KERNELS, count=9, of=0)
LOST = FailedCheck(
    check=Check.INCOMPLETE, count=2185, of=5925, start_ns=8_669_890_898, end_ns=9 * 10**9
)


@pytest.mark.parametrize(
    ("versions", "advice"),
    [
        ({}, "nsysflow profile marks steps and phases by itself"),
        ({"nsysflow": "0.1.0"}, "put the loop into nsysflow.steps"),  # profile could not mark them
    ],
)
def test_what_marks_inferred_steps_depends_on_who_recorded_them(
    versions: dict[str, str], advice: str
) -> None:
    run = replace(training(), steps_inferred=True)
    (remark,) = judge(Results([run], origin=Origin(versions=versions))).remarks
    assert remark.endswith(f"as no range marks them: {advice}")


def test_steps_that_grow_are_to_be_judged_by_size() -> None:
    said = "Work grows from step to step, from 7.00 ms to 3.97 s: judge steps of one size with"
    grown = replace(training(), growth_ns=(7_000_000, 3_970_000_000))
    assert any(said in remark for remark in judge(Results([grown])).remarks)
    assert not any(said in remark for remark in judge(Results([training()])).remarks)


def test_a_step_that_is_the_mean_of_two_kinds_is_said_to_be() -> None:
    said = "Two kinds of steps take turns, 6.27 ms and 10.4 ms, and figures are of their mean"
    turning = replace(training(), turns_ns=(6_270_000, 10_400_000))
    assert any(said in remark for remark in judge(Results([turning])).remarks)
    assert not any("take turns" in remark for remark in judge(Results([training()])).remarks)


def failing(failed: FailedCheck, report: str = "run.sqlite", source: str = "by hand") -> Handmade:
    run = renamed(replace(handmade(), failed_checks=(failed,)), report)
    return replace(run, trace=replace(run.trace, source=source))


def only(*runs: Handmade, origin: Origin | None = None) -> Invalid:
    (found,) = failures(Results(runs, origin=origin))
    return found


def test_without_a_kernel_the_versions_are_named_where_they_are_known() -> None:
    unknown = only(failing(BLIND))
    assert unknown.sentence == "No kernel in this report: nsys is probably older than the driver"
    run = failing(BLIND, source="Nsight Systems 2023.4.1.97, schema 3.11.0")
    known = only(run, origin=Origin(versions={"driver": "580.65"}))
    sentence = unknown.sentence.replace("nsys", "nsys 2023.4.1.97") + " (580.65)"
    advice = "record again with a newer nsys"
    assert known == Invalid(why="no-kernels", sentence=sentence, advice=advice)


@pytest.mark.parametrize(
    ("failed", "origin", "says", "advises"),
    [
        # without a launch another reason is possible
        (replace(BLIND, count=0), None, "probably older", "with cuda in --trace"),
        (replace(BLIND, count=0, of=5), None, "launches none", "if it should launch"),
        # of a program that was killed, not the age of nsys
        (BLIND, Origin(killed=True), "os._exit or a signal ended", "close() and join()"),
        (replace(BLIND, count=0), Origin(killed=True), "older than", ""),
        (LOST, None, "Incomplete capture: 2,185 of 5,925 launches have no operation"
         " (from 8.669891 s to 9.000000 s)", ""),
        (FailedCheck(check=Check.UNSTAMPED, count=688, of=6892), None,
         "Incomplete capture: 688 of 6,892 operations are", ""),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=1, of=0), None,
         "Incomplete capture: nsys reported an error while", "with a newer nsys"),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0), None,
         "Incomplete capture: nsys reported 2 errors while", ""),
    ],
)  # fmt: skip
def test_a_failed_check_says_what_is_wrong_and_what_to_do(
    failed: FailedCheck, origin: Origin | None, says: str, advises: str
) -> None:
    found = only(failing(failed), origin=origin)
    assert says in found.sentence
    assert advises in found.advice


def test_a_report_without_kernels_fails_alone_and_where_there_was_a_gpu() -> None:
    assert failures(Results([failing(BLIND)], origin=Origin(on_cpu=True))) == ()
    assert failures(Results([failing(BLIND, "rank0"), renamed(handmade(), "rank1")])) == ()


def unrelated(**origin: Any) -> tuple[Invalid, ...]:
    runs = [renamed(handmade(), name) for name in ("a b.sqlite", "c.sqlite")]
    return failures(Results(runs, origin=Origin(**origin)))


def test_reports_without_a_common_collective_are_to_be_analysed_by_themselves() -> None:
    (found,) = unrelated(paths={"a b.sqlite": Path("runs/a b.sqlite")})
    assert found == Invalid(
        why="unrelated-reports",
        sentence="These do not look like ranks of one run",
        advice="analyse each by itself: nsysflow analyze 'runs/a b.sqlite'",
    )


def test_a_manifest_or_a_common_collective_makes_ranks_whatever_their_names() -> None:
    assert unrelated(ranks=True) == ()
    ranks = [renamed(run, name) for run, name in zip(two_ranks(), "ab", strict=True)]
    assert failures(Results(ranks)) == ()


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("ddp-rank0", "ddp-rank1"), True),
        (("Rank_3.x", "other-rank12"), True),
        (("prof.0", "prof.1", "prof.2"), True),
        (("run/0/report", "run/1/report"), True),
        (("report1", "report2"), False),
        (("prof.0", "prof.2"), False),
        (("run0-gpu0", "run1-gpu1"), False),
        (("before", "after"), False),
        (("eager", "eager0"), False),
    ],
)
def test_names_tell_ranks_from_runs(names: tuple[str, ...], ranks: bool) -> None:
    assert are_named_as_ranks(names) == ranks


def without_import(run: Handmade) -> Handmade:
    """The run, with backtraces, of which nsys could not import all."""
    backtraces = pl.DataFrame([(1, 2, 3)], schema=BACKTRACES, orient="row")
    diagnostics = pl.DataFrame({"text": ["Cannot find string for an exterior index"]})
    return replace(run, trace=replace(run.trace, backtraces=backtraces, diagnostics=diagnostics))


OTHER_PROCESSES = (
    "CUDA profiling might have not been started correctly.",
    "No CUDA events collected. Does the process use CUDA?",
)
NO_GUESS = "record it until it ends, with cuda in --trace"


@pytest.mark.parametrize(
    ("said", "quoted", "advises"),
    [
        # as in public reports of nsys 2025.1 and 2025.3 without a kernel
        (("Not all CUDA events might have been collected.",
          "Number of CUDA events collected: \t2.", *OTHER_PROCESSES),
         '"Number of CUDA events collected: 2"', NO_GUESS),
        (("Number of CUDA events collected: \t3.",
          "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems."
          " CUDA trace will be collected using libraries for driver version 12.9",
          "Number of CUPTI events produced: \t31, CUPTI buffers: 49 of 50. Some CUPTI events might"
          " be missing. To make sure all the events are collected, let the application run."),
         '"Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems";'
         ' "Number of CUDA events collected: 3"; "Some CUPTI events might be missing"',
         "record again with a newer nsys"),
        (("Some CUPTI events might be missing.",), '"Some CUPTI events might be missing"',
         "let every process end"),
        # no process used CUDA
        (OTHER_PROCESSES * 2, '"CUDA profiling might have not been started correctly";'
         ' "No CUDA events collected"', NO_GUESS),
    ],
)  # fmt: skip
def test_without_a_kernel_nsys_is_quoted_where_it_says_why(
    said: tuple[str, ...], quoted: str, advises: str
) -> None:
    run = failing(replace(BLIND, count=0))
    messages = pl.DataFrame({"text": said})
    found = only(replace(run, trace=replace(run.trace, diagnostics=messages)))
    assert found.sentence == f"No kernel in this report: nsys says: {quoted}"
    assert advises in found.advice


def test_what_every_healthy_report_says_of_its_recording_is_no_reason() -> None:
    run = failing(BLIND)
    said = ["Not all CUDA events might have been collected.", "CUDA injection initialized."]
    said += ["Loaded CUPTI library: libcupti.so.13.0", "No NVTX events collected."]
    trace = replace(run.trace, diagnostics=pl.DataFrame({"text": said}))
    assert "probably older" in only(replace(run, trace=trace)).sentence


UNREAD = FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0)
XLA = "XlaModule:#hlo_module=jit_step,program_id=7#"


@pytest.mark.parametrize(
    ("failed", "ranges", "says", "advises"),
    [
        (UNREAD, [], "2 errors while importing", "--backtrace none --sample-python 0"),
        (BLIND, [], "No kernel in this report: nsys reported an error while importing the",
         "--backtrace none --sample-python 0"),
        (UNREAD, [XLA], "", "--nsys-arg=--nvtx-domain-exclude=TSL"),  # of a JAX program
    ],
)  # fmt: skip
def test_after_an_import_error_stacks_or_the_ranges_of_xla_go_first(
    failed: FailedCheck, ranges: list[str], says: str, advises: str
) -> None:
    run = without_import(failing(failed))
    named = pl.DataFrame({"name": ranges}, schema=pl.Schema({"name": pl.String()}))
    found = only(replace(run, trace=replace(run.trace, ranges=named)))
    assert says in found.sentence
    assert f"nsysflow profile {advises}" in found.advice
