from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.findings.finding import Growth
from nsysflow.analysis.schema import BACKTRACES
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.analysis.trace import Trace
from nsysflow.base.names import are_named_as_ranks
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from nsysflow.report.text import page_lines, summary
from nsysflow.report.validity import failures
from nsysflow.report.verdict import DOING, LOSSES, WORDS, Verdict, judge, verdicts
from tests.analyses import analysed
from tests.report.handmade import (
    MS,
    STEP_NS,
    Handmade,
    Results,
    Row,
    captured,
    device,
    found_of,
    frame,
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


def test_one_hundredth_of_the_busiest_gpus_work_makes_a_gpu_used() -> None:
    for busy_ns, bounds in ((MS - 100_000, ["compute", None]), (MS, ["unknown", "compute"])):
        assert [each.bound for each in judged(gpu(), hardly_used(1, busy_ns, 3))] == bounds


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


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin(plain_step_ns=8 * MS), "100 % slower than plain ones"),
        (Origin(plain_step_ns=8 * MS, later_step_ns=9 * MS), "100 % slower than plain ones"),
        (Origin(later_step_ns=12 * MS), "33 % slower than those after the recording"),
        (Origin(plain_step_ns=15 * MS), None),
        (Origin(plain_step_ns=18 * MS, record_later="record"), None),
        (Origin(later_step_ns=18 * MS), None),
        (Origin(later_step_ns=17 * MS, record_later="record"), None),
        (Origin(later_step_ns=18 * MS, record_later="record"), None),  # no loader: it is noise
        (Origin(later_step_ns=19 * MS, record_later="record"), "slows later steps. Record later"),
        (Origin(later_step_ns=7 * MS, record_later="record"), "those after the recording 7.00 ms."),
        (Origin(later_step_ns=8 * MS, record_later="record"), "100 % slower than those after the"),
        (Origin(later_step_ns=7 * MS), "129 % slower than those after the"),  # no command is known
        (Origin(plain_step_ns=7 * MS, record_later="record"), "129 % slower than plain ones"),
    ],
)
def test_plain_steps_count_before_those_after_the_recording(
    origin: Origin, said: str | None
) -> None:
    remarks = judge(Results([slowed(16)], origin=origin)).remarks
    assert [str(said) in remark for remark in remarks] == [True] * bool(said)


@pytest.mark.parametrize(("later_ms", "lacks"), [(17, False), (18, True)])
def test_steps_of_a_loader_that_get_longer_lack_an_empty_queue(
    later_ms: int, *, lacks: bool
) -> None:
    origin = Origin(later_step_ns=later_ms * MS, record_later="record")
    loader = frame("loader_workers", {"process": 7, "worker": None})
    run = slowed(16)
    run = replace(run, tables={**run.tables, "loader_workers": loader})
    remarks = judge(Results([run], origin=origin)).remarks
    assert ["a loader whose queue runs empty" in remark for remark in remarks] == [True] * lacks


@pytest.mark.parametrize(
    ("ns_a_step", "middle", "said"),
    [
        (
            MS / 20,
            100,
            "in compute (train.py:7) grows from step to step: by step 100 that is about",
        ),
        (MS / 20, 100, "about 4.00 ms more, most of the difference (growing-work)."),
        (MS / 40, 100, "about 2.00 ms more (growing-work). The recording lacks what else slows"),
        (MS / 5, 100, "The recording lacks what slows later steps"),  # it has ended
        (MS / 20, None, "ones 16.0 ms. The recording lacks what slows later steps"),
    ],
)
def test_work_that_grows_explains_later_steps(
    ns_a_step: float, middle: float | None, said: str
) -> None:
    growth = Growth(ns_a_step=ns_a_step, middle=20)
    one = valued(rule="growing-work", source="train.py:7 in compute")
    grown = replace(one, finding=replace(one.finding, growth=growth))
    run = replace(slowed(16), found=found_of(grown))
    origin = Origin(later_step_ns=22 * MS, later_middle=middle, record_later="record")
    (remark,) = judge(Results([run], origin=origin)).remarks
    assert said in remark
    assert ("Record later ones" in remark) == ("most of the difference" not in remark)


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
    (remark,) = judge(run).remarks
    assert remark.startswith("Recorded steps are 59 % slower than those before the window: ")
    assert judge(run).valid
    assert judge(run).text.endswith(f". {remark}")
    assert lines(run)[3] == remark
    assert f"\n{remark}.\n" in summary(run)
    counts = {ms: len(judge(Results([slowed(ms)])).remarks) for ms in (9.0, 11.4, 11.5)}
    assert counts == {9.0: 0, 11.4: 0, 11.5: 1}  # from 15 % on it matters


BLIND = FailedCheck(check=Check.NO_KERNELS, count=9, of=0)
UNREAD = FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0)
LOST = FailedCheck(
    check=Check.INCOMPLETE, count=2185, of=5925, start_ns=8_669_890_898, end_ns=9 * 10**9
)


def test_a_step_that_is_the_mean_of_two_kinds_is_said_to_be() -> None:
    said = "Two kinds of steps take turns, 6.27 ms and 10.4 ms, and figures are of their mean"
    turning = replace(training(), turns_ns=(6_270_000, 10_400_000))
    assert any(said in remark for remark in judge(Results([turning])).remarks)
    assert not any("take turns" in remark for remark in judge(Results([training()])).remarks)


def failing(failed: FailedCheck, report: str = "run.sqlite", source: str = "by hand") -> Handmade:
    run = renamed(replace(handmade(), failed_checks=(failed,)), report)
    return replace(run, trace=replace(run.trace, source=source))


def test_a_report_without_kernels_fails_alone_and_where_there_was_a_gpu() -> None:
    assert failures(Results([failing(BLIND)], origin=Origin(on_cpu=True))) == ()
    assert failures(Results([failing(BLIND, "rank0"), renamed(handmade(), "rank1")])) == ()


RUNS = ("a b.sqlite", "c.sqlite")


def unrelated(**origin: Any) -> Results:
    return Results([renamed(handmade(), name) for name in RUNS], origin=Origin(**origin))


def test_reports_that_are_no_ranks_of_one_run_have_no_findings_in_common() -> None:
    runs = [analysed(name) for name in ("nan_check-sync", "launch_bound-eager")]
    assert all(run.found.valued for run in runs)
    together = Results(runs)
    assert [failed.why for failed in failures(together)] == ["unrelated-reports"]
    assert not together.found.valued


def test_a_manifest_or_a_common_collective_makes_ranks_whatever_their_names() -> None:
    assert failures(unrelated(ranks=True)) == ()
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


def told(run: Handmade, *said: str, ranges: Sequence[str] = (), stacks: bool = False) -> Handmade:
    """The run, with these messages of nsys and NVTX ranges; `stacks`: with backtraces."""
    frames: dict[str, Any] = {
        "diagnostics": pl.DataFrame({"text": said}, schema={"text": pl.String}),
        "ranges": pl.DataFrame({"name": ranges}, schema={"name": pl.String}),
        "backtraces": pl.DataFrame([(1, 2, 3)] * stacks, schema=BACKTRACES, orient="row"),
    }
    return replace(run, trace=replace(run.trace, **frames))


UNIMPORTED = "Cannot find string for an exterior index"
OTHER_PROCESSES = (
    "CUDA profiling might have not been started correctly.",
    "No CUDA events collected. Does the process use CUDA?",
)
TOO_NEW_AND_CUT_OFF = (
    "Number of CUDA events collected: \t3.",
    "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems. CUDA"
    " trace will be collected using libraries for driver version 12.9",
    "Number of CUPTI events produced: \t31, CUPTI buffers: 49 of 50. Some CUPTI events might be"
    " missing. To make sure all the events are collected, let the application run.",
)
HEALTHY = (
    *("Not all CUDA events might have been collected.", "CUDA injection initialized."),
    *("Loaded CUPTI library: libcupti.so.13.0", "No NVTX events collected."),
)
FEW = (HEALTHY[0], "Number of CUDA events collected: \t2.", *OTHER_PROCESSES)
XLA = "XlaModule:#hlo_module=jit_step,program_id=7#"
NO_LAUNCH = failing(replace(BLIND, count=0))
KINETO = replace(handmade(), trace=Trace(report="r", collector="kineto"))
MOSTLY_HOST = handmade(accounting=[gpu(host_ms=60)])
KINETO_HOST = replace(MOSTLY_HOST, trace=replace(MOSTLY_HOST.trace, collector="kineto"))
GROWING = replace(training(), growth_ns=(7 * MS, 3_970 * MS))
PLAIN, LATER = Origin(plain_step_ns=8 * MS), Origin(later_step_ns=7 * MS)
KILLED, ON_CPU = Origin(killed=True), Origin(on_cpu=True)


def of_gpus(*rows: Row) -> Results:
    """A step on these GPUs."""
    step = {"duration_ns": 100 * MS, "steady": True}
    return results(accounting=[*rows], step_name="step", steps=[step])


def alone(run: Handmade, origin: Origin | None = None) -> Results:
    return Results([run], origin=origin)


JUDGED: Final[dict[str, Results]] = {
    "compute, and the largest loss": of_gpus(gpu(launch_ms=20)),
    "one loss": of_gpus(gpu(host_ms=60)),
    "half and half": of_gpus(gpu(launch_ms=45, sync_ms=5)),
    "computing more than anything else is not computing most of the time": of_gpus(
        gpu(launch_ms=20, sync_ms=18, host_ms=15, alloc_ms=8)
    ),
    "parts of like size, the larger first": of_gpus(gpu(module_load_ms=42, launch_ms=40)),
    "with a third one that is smaller": of_gpus(gpu(module_load_ms=36, launch_ms=35, host_ms=20)),
    "GPUs of one bound share a verdict": of_gpus(gpu(host_ms=60), gpu(1, host_ms=80)),
    "from a hundredth of the work of the busiest on a GPU is used": of_gpus(
        gpu(), gpu(1), hardly_used(2, 1, 1)
    ),
    "the host is Python where the reports show its lines": alone(KINETO_HOST),
    "no step": results(accounting=[gpu()]),
    "too few steps": results(accounting=[gpu()], step_name="step"),
    "steps that grow": alone(GROWING),
    "inferred steps": alone(replace(training(), steps_inferred=True)),
    "steps that profile could not mark": alone(
        replace(training(), steps_inferred=True), Origin(versions={"nsysflow": "0.1.0"})
    ),
    "slower than before the window": alone(slowed(16)),
    "slower than plain steps": alone(slowed(16), PLAIN),
    "slower than later ones": alone(slowed(16), LATER),
    "not typical": alone(slowed(16), replace(LATER, record_later="nsysflow profile")),
    "no GPU work": results(),
    "no GPU work, by torch.profiler": alone(KINETO),
    "no GPU work, on the CPU": alone(handmade(), ON_CPU),
    "no GPU work, by torch.profiler on the CPU": alone(KINETO, ON_CPU),
    "no GPU work, killed": alone(handmade(), KILLED),
    "no kernel": alone(failing(BLIND)),
    "no kernel, the versions are known": alone(
        failing(BLIND, source="Nsight Systems 2023.4.1.97, schema 3.11.0"),
        Origin(versions={"driver": "580.65"}),
    ),
    "no kernel and no launch": alone(NO_LAUNCH),
    "no kernel and no launch, but other work": alone(failing(replace(BLIND, count=0, of=5))),
    "no kernel, killed: not the age of nsys": alone(failing(BLIND), KILLED),
    "no kernel and no launch, killed": alone(NO_LAUNCH, KILLED),
    "lost launches": alone(failing(LOST)),
    "unstamped": alone(failing(FailedCheck(check=Check.UNSTAMPED, count=688, of=6892))),
    "an import error": alone(failing(replace(UNREAD, count=1))),
    "import errors": alone(failing(UNREAD)),
    "import errors with stacks": alone(told(failing(UNREAD), UNIMPORTED, stacks=True)),
    "no kernel after an import error": alone(told(failing(BLIND), UNIMPORTED, stacks=True)),
    "import errors of a JAX program": alone(
        told(failing(UNREAD), UNIMPORTED, ranges=[XLA], stacks=True)
    ),
    # as in public reports of nsys 2025.1 and 2025.3 without a kernel
    "nsys says why: few events": alone(told(NO_LAUNCH, *FEW)),
    "nsys counts events, but kernels were launched": alone(told(failing(BLIND), *FEW)),
    "nsys says why: too new a driver": alone(told(NO_LAUNCH, *TOO_NEW_AND_CUT_OFF)),
    "nsys says why: cut off": alone(told(NO_LAUNCH, "Some CUPTI events might be missing.")),
    "nsys says why: no process used CUDA": alone(told(NO_LAUNCH, *OTHER_PROCESSES * 2)),
    "what every healthy report says is no reason": alone(told(failing(BLIND), *HEALTHY)),
    "no ranks, without a common collective": unrelated(paths={RUNS[0]: Path("runs") / RUNS[0]}),
}
"""How each is judged is in pages/judgements.txt."""
