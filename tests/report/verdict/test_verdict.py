"""The verdict: what holds the GPUs back, in one line."""

from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.trace import Trace
from nsysflow.report.results import Origin
from nsysflow.report.verdict import LOSSES, WORDS, Verdict, bound_word, verdicts
from tests.report.handmade import MS, Results, device, handmade, results

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


def test_parts_of_like_size_share_the_verdict_the_larger_first() -> None:
    found = only(device(100 * MS, host_ns=42 * MS, launch_ns=40 * MS))
    assert found.sentence == "host- and launch-bound (42 %, 18 % computing)"
    assert found.bound == "host+launch"


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


def test_a_gpu_that_computes_has_its_largest_loss_beside_it() -> None:
    found = only(device(100 * MS, launch_ns=20 * MS))
    assert found.sentence == "compute-bound (80 %); largest loss: launch overhead, 20 %"
    assert found.advice == ""


def test_host_code_and_launches_are_one_loss() -> None:
    found = only(device(100 * MS, launch_ns=10 * MS, host_ns=10 * MS, sync_ns=15 * MS))
    assert found.loss == "host and launch, 20 %"


def test_a_loss_of_less_than_one_percent_is_no_remark() -> None:
    assert only(device(1000 * MS, sync_ns=9 * MS)).sentence == "compute-bound (99 %)"


def test_what_the_gpu_is_bound_by_is_not_its_loss_again() -> None:
    assert only(device(100 * MS, host_ns=60 * MS)).loss == ""


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


def test_a_gpu_that_works_for_a_hundredth_of_the_busiest_is_hardly_used() -> None:
    busy = device(100 * MS, ops=900)
    idle = device(100 * MS, device=1, unknown_ns=100 * MS - 900_000, ops=3)
    first, second = judged(busy, idle)
    assert first.sentence == "GPU 0: compute-bound (100 %)"
    assert second.sentence == "GPU 1: hardly used (3 operations, 900 us of work)"
    assert second.advice.endswith("if not, look at the other GPU alone with --device 0")
    assert second.bound is None


def test_of_two_busy_gpus_none_is_proposed_to_be_looked_at_alone() -> None:
    busy = [device(100 * MS, device=number) for number in (0, 1)]
    idle = device(100 * MS, device=2, unknown_ns=100 * MS - 1, ops=1)
    *_, last = judged(*busy, idle)
    assert last.sentence == "GPU 2: hardly used (1 operation, 1 ns of work)"
    assert "--device" not in last.advice


def test_a_gpu_with_a_hundredth_of_the_work_is_used() -> None:
    some = device(100 * MS, device=1, unknown_ns=99 * MS, ops=3)
    assert not any("hardly" in each.sentence for each in judged(device(100 * MS), some))


def test_no_gpu_work_is_one_clear_sentence() -> None:
    found = only()
    assert found.sentence == "no GPU work (no kernel, copy or memset in this report)"
    assert "--trace includes cuda" in found.advice


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
