"""The verdict."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.analysis.trace import Trace
from nsysflow.report.markdown import summary
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from nsysflow.report.terminal import page
from nsysflow.report.verdict import LOSSES, WORDS, Verdict, bound_word, judge, verdicts
from nsysflow.runs.analyze import analyze_reports
from tests.breaking import EVERY_TENTH_UNSTAMPED, ONE_GRAPH_KERNEL_STRETCHED, broken
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    captured,
    device,
    handmade,
    results,
    training,
)
from tests.reports import DATA, parquetdir_report

COLUMNS: Final = {"communication": "comm_exposed_ns", "copies": "copy_exposed_ns"}


def judged(*devices: dict[str, Any], **tables: Any) -> tuple[Verdict, ...]:
    return verdicts(results(accounting=list(devices), **tables))


def only(*devices: dict[str, Any], **tables: Any) -> Verdict:
    (found,) = judged(*devices, **tables)
    return found


def bound_by(name: str) -> dict[str, Any]:
    """A GPU that computes for a third of its time and else waits for one thing."""
    return device(60 * MS, **{COLUMNS.get(name, f"{name}_ns"): 40 * MS})


def test_every_part_of_the_time_has_a_word_and_every_loss_a_name() -> None:
    assert {*WORDS} == {*PARTS}
    assert {*LOSSES} == {*PARTS} - {"compute"}


@pytest.mark.parametrize("name", [part for part in PARTS if part != "compute"])
def test_the_largest_part_names_the_verdict(name: str) -> None:
    found = only(bound_by(name))
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


@pytest.mark.parametrize(
    ("window_ms", "parts", "sentence"),
    [
        (100, {"launch_ms": 20}, "compute-bound (80 %); largest loss: launch overhead, 20 %"),
        (1000, {"sync_ms": 9}, "compute-bound (99 %)"),  # less than 1 % is no remark
        (100, {"host_ms": 60}, "host-bound (60 %, 40 % computing)"),  # no loss again
        (100, {"launch_ms": 10, "host_ms": 10, "sync_ms": 15},  # host and launch are one loss
         "compute-bound (65 %); largest loss: host and launch, 20 %"),
        # parts of like size, the larger first
        (100, {"host_ms": 42, "launch_ms": 40}, "host- and launch-bound (42 %, 18 % computing)"),
    ],
)  # fmt: skip
def test_the_sentence_has_what_bounds_the_gpu_and_its_largest_loss(
    window_ms: int, parts: dict[str, int], sentence: str
) -> None:
    assert only(device(window_ms * MS, **parts)).sentence == sentence


def kernels(**total_ns: int) -> list[dict[str, Any]]:
    return [{"class": name, "total_ns": ns} for name, ns in total_ns.items()]


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (kernels(matmul=50, softmax=50), "compute-bound (100 %, mostly softmax)"),
        (kernels(matmul=51, softmax=49), "compute-bound (100 %, mostly matmul)"),
        (kernels(matmul=40, softmax=30, norm=30), "compute-bound (100 %)"),
        (kernels(comm=90, matmul=10), "compute-bound (100 %, mostly matmul)"),
    ],
)
def test_a_class_with_half_of_the_kernel_time_is_named(
    classes: list[dict[str, Any]], said: str
) -> None:
    assert only(device(100 * MS), kernels=classes).sentence == said


def test_the_class_is_that_of_the_gpus_of_the_verdict() -> None:
    both = [device(100 * MS), device(100 * MS, device=1, host_ns=60 * MS)]
    here = [{"class": "norm", "total_ns": 1}, {"class": "softmax", "total_ns": 9, "device": 1}]
    assert "mostly norm" in judged(*both, kernels=here)[1].sentence


def test_gpus_of_one_bound_share_a_verdict() -> None:
    both = [device(100 * MS, host_ns=60 * MS), device(100 * MS, host_ns=80 * MS, device=1)]
    assert only(*both).sentence == "host-bound (2 GPUs, 70 %, 30 % computing)"


def test_gpus_of_two_bounds_are_named_by_report_the_larger_loss_first() -> None:
    fine = handmade(accounting=[device(100 * MS, report="rank0")])
    slow = handmade(accounting=[device(100 * MS, host_ns=60 * MS, report="rank1")])
    first, second = verdicts(Results([fine, slow]))
    assert first.sentence == "rank1 GPU 0: host-bound (60 %, 40 % computing)"
    assert second.sentence == "rank0 GPU 0: compute-bound (100 %)"


def barely_used(busy_ns: int, **columns: Any) -> dict[str, Any]:
    """A GPU that works for so long of 100 ms."""
    return device(100 * MS, unknown_ns=100 * MS - busy_ns, **columns)


def test_a_gpu_that_works_for_less_than_a_hundredth_of_the_busiest_is_hardly_used() -> None:
    busy = device(100 * MS, ops=900)
    first, second = judged(busy, barely_used(MS - 100_000, device=1, ops=3))
    assert first.sentence == "GPU 0: compute-bound (100 %)"
    assert second.sentence == "GPU 1: hardly used (3 operations, 900 us of work)"
    assert second.advice.endswith("if not, look at the other GPU alone with --device 0")
    assert second.bound is None
    used = judged(busy, barely_used(MS, device=1, ops=3))
    assert not any("hardly" in each.sentence for each in used)


def test_of_two_busy_gpus_none_is_proposed_to_be_looked_at_alone() -> None:
    busy = [device(100 * MS, device=number) for number in (0, 1)]
    *_, last = judged(*busy, barely_used(1, device=2, ops=1))
    assert last.sentence == "GPU 2: hardly used (1 operation, 1 ns of work)"
    assert "--device" not in last.advice


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


ZEROS = FailedCheck(check=Check.UNSTAMPED, count=688, of=6892)


def lines(of: RealResults) -> list[str]:
    return [str(line) for line in page(of, width=200, top=None)]


def test_reports_of_other_formats_are_valid(tmp_path: Path) -> None:
    for path in (DATA / "h200-kineto.pt.trace.json.gz", parquetdir_report(tmp_path)):
        assert judge(analyze_reports([path], Options())).valid


def test_a_failed_check_stands_in_place_of_the_bound() -> None:
    run = Results([replace(training(), failed_checks=(ZEROS,))])
    found = judge(run)
    assert (found.valid, found.why, found.bound) == (False, "unstamped-operations", None)
    assert found.text == (
        "Incomplete capture: 688 of 6,892 operations are stamped 0. Record again with a newer nsys"
    )
    assert lines(run)[2] == "Incomplete capture: 688 of 6,892 operations are stamped 0"
    assert "**Incomplete capture: 688 of 6,892 operations are stamped 0**" in summary(run)
    assert "host-bound" not in summary(run)


def test_the_page_of_a_broken_report_begins_with_what_is_wrong(tmp_path: Path) -> None:
    run = analyze_reports([broken(tmp_path, "h200-train", EVERY_TENTH_UNSTAMPED)], Options())
    assert lines(run)[2] == "Incomplete capture: 688 of 6,892 operations are stamped 0"


def test_one_stretched_kernel_of_a_graph_is_said_below_the_headline(tmp_path: Path) -> None:
    path = broken(tmp_path, "h200-train", ONE_GRAPH_KERNEL_STRETCHED)
    run = analyze_reports([path], Options())
    assert judge(run).valid
    headline, remark = lines(run)[2:4]
    assert headline.startswith("host-bound")
    assert remark.startswith("1 operation of a CUDA graph has a wrong time")


def slowed(recorded_ms: float, process: int = 7) -> Handmade:
    """Steps of 10 ms that take longer under the profiler."""
    rows = [{"process": process, "duration_ns": int(recorded_ms * MS), "steady": True}]
    run = handmade(accounting=[device(9 * MS)], step_name="step", steps=rows)
    return captured(run, (process, 10 * MS))


def test_a_profiler_that_slows_the_steps_is_said_below_the_headline() -> None:
    run = Results([slowed(15.9)])
    remark = (
        "Recorded steps are 59 % slower than unprofiled ones: host and launch shares are inflated"
    )
    assert judge(run).remarks == (remark,)
    assert judge(run).valid
    assert judge(run).text.endswith(f". {remark}")
    assert lines(run)[3] == remark
    assert f"\n{remark}.\n" in summary(run)


@pytest.mark.parametrize(("recorded_ms", "said"), [(11.4, 0), (11.5, 1), (9.0, 0)])
def test_from_15_percent_on_the_profiler_matters(recorded_ms: float, said: int) -> None:
    assert len(judge(Results([slowed(recorded_ms)])).remarks) == said


def test_the_kind_of_steps_that_is_slowed_most_counts() -> None:
    most = replace(slowed(20, process=8), step_name="serve")
    (remark,) = judge(Results([slowed(12), most])).remarks
    assert remark.startswith("Recorded steps are 100 % slower")


def test_without_a_known_step_it_is_said_how_to_name_one() -> None:
    (remark,) = judge(results(accounting=[device(9 * MS)])).remarks
    assert remark.startswith("No step is known, so the whole window is judged: ")
    assert "--step NAME" in remark
    assert judge(Results([training()])).remarks == ()
