"""The verdict: its word, its evidence, what to do next."""

from dataclasses import replace

import pytest
from nsysflow.report.verdict.bottlenecks import BOTTLENECKS, Bottleneck

from nsysflow.analysis.trace import Trace
from nsysflow.report.results import Origin
from nsysflow.report.verdict.verdict import verdicts
from tests.analyses import analysed
from tests.report.handmade import MS, Results, device, handmade, part, results, training


@pytest.mark.parametrize("bottleneck", BOTTLENECKS, ids=lambda each: str(each.kind))
def test_the_largest_loss_names_the_verdict(bottleneck: Bottleneck) -> None:
    others = {column: 1 * MS for each in BOTTLENECKS for column in each.columns}
    largest = dict.fromkeys(bottleneck.columns, 20 * MS)
    found = verdicts(results(accounting=[device(60 * MS, **{**others, **largest})]))
    assert found[0].kind == bottleneck.kind
    assert "{" not in found[0].sentence + found[0].advice


def test_idle_between_the_steps_is_not_named_after_the_phase_that_came_next() -> None:
    (verdict,) = verdicts(Results([training()]))
    assert verdict.sentence == (
        "host-bound (50 % idle); largest loss: host code outside any range, between the steps, 30 %"
    )
    assert "NVTX ranges" in verdict.advice
    assert "forward" not in verdict.sentence


def test_host_code_inside_a_range_is_named_after_it() -> None:
    (verdict,) = verdicts(
        results(
            accounting=[device(100 * MS, host_ns=40 * MS)],
            gap_summary=[part("host", 40 * MS, phase="step/data")],
        )
    )
    assert verdict.loss == "host code in step/data, 40 %"
    assert "in step/data" in verdict.advice
    assert "CUDA graph" not in verdict.advice


def test_a_bottleneck_at_many_places_names_none() -> None:
    places = [part("host", 10 * MS, phase=f"step/{each}") for each in "abcd"]
    (verdict,) = verdicts(
        results(accounting=[device(100 * MS, host_ns=40 * MS)], gap_summary=places)
    )
    assert verdict.loss == "host code, 40 %"
    assert "between the launches" in verdict.advice
    assert "CUDA graph" in verdict.advice


def test_a_sync_is_named_by_its_call() -> None:
    wait = part("sync", 40 * MS, culprit="cudaStreamSynchronize", phase="step/loss")
    (verdict,) = verdicts(
        results(accounting=[device(100 * MS, sync_ns=40 * MS)], gap_summary=[wait])
    )
    assert verdict.kind == "sync-bound"
    assert verdict.loss == "waiting in cudaStreamSynchronize in step/loss, 40 %"


def test_only_the_kernels_of_a_busy_gpu_can_get_faster() -> None:
    (verdict,) = verdicts(results(accounting=[device(300 * MS, host_ns=9 * MS)]))
    assert verdict.sentence == "GPU-bound (97 % computing)"
    assert "--table kernels" in verdict.advice


def test_a_gpu_bound_program_may_have_a_loss_worth_a_remark() -> None:
    (verdict,) = verdicts(results(accounting=[device(100 * MS, launch_ns=20 * MS)]))
    assert verdict.sentence == ("GPU-bound (80 % computing); largest loss: launch overhead, 20 %")
    assert verdict.advice.startswith(
        "first make the kernels faster (--table kernels), then launch less"
    )


def test_a_gpu_that_waits_for_others_is_communication_bound() -> None:
    (verdict,) = verdicts(
        results(accounting=[device(100 * MS, comm_exposed_ns=45 * MS, host_ns=5 * MS)])
    )
    assert verdict.sentence == (
        "communication-bound (50 % computing); largest loss: exposed communication, 45 %"
    )


def test_no_gpu_work_is_one_clear_sentence() -> None:
    (verdict,) = verdicts(results())
    assert verdict.sentence == "no GPU work (no kernel, copy or memset in this report)"
    assert "--trace includes cuda" in verdict.advice


def test_what_to_check_without_gpu_work_depends_on_who_recorded_and_on_what() -> None:
    trace = Trace(report="r", collector="kineto")
    kineto = replace(handmade(), trace=trace)
    (verdict,) = verdicts(Results([kineto]))
    assert "ProfilerActivity.CUDA" in verdict.advice
    assert "--trace" not in verdict.advice
    for analysis in (handmade(), kineto):
        (verdict,) = verdicts(Results([analysis], origin=Origin(on_cpu=True)))
        assert verdict.advice == "profile on a machine with a GPU, without --on cpu"


def test_gpus_of_one_kind_share_a_verdict() -> None:
    both = [device(100 * MS, host_ns=40 * MS), device(100 * MS, host_ns=60 * MS, device=1)]
    (verdict,) = verdicts(results(accounting=both))
    assert verdict.sentence == ("host-bound (2 GPUs, 50 % idle); largest loss: host code, 50 %")


def test_gpus_of_two_kinds_are_told_apart_by_report() -> None:
    first = handmade(accounting=[device(100 * MS, host_ns=40 * MS, report="rank0.sqlite")])
    second = handmade(accounting=[device(100 * MS, report="rank1.sqlite")])
    slow, fine = verdicts(Results([first, second]))
    assert slow.sentence.startswith("rank0.sqlite GPU 0: host-bound (")
    assert fine.sentence.startswith("rank1.sqlite GPU 0: GPU-bound (")


def test_the_line_that_waits_is_what_to_look_at() -> None:
    lines = [("train.py:31 in train", 30 * MS), (None, 4 * MS), ("train.py:9 in train", 6 * MS)]
    waits = [part("sync", ns, phase="step/loss", source=line) for line, ns in lines]
    (verdict,) = verdicts(
        results(accounting=[device(100 * MS, sync_ns=40 * MS)], gap_summary=waits)
    )
    assert "delay the wait in step/loss, at train.py:31 in train (" in verdict.advice


def test_without_any_range_the_line_is_the_place() -> None:
    (verdict,) = verdicts(
        results(
            accounting=[device(100 * MS, sync_ns=40 * MS)],
            gap_summary=[part("sync", 40 * MS, phase="", source="train.py:31 in train")],
        )
    )
    assert "delay the wait at train.py:31 in train (" in verdict.advice


def test_host_code_is_before_the_line_that_is_known() -> None:
    place = {"phase": "step/data", "source": "train.py:22 in train"}
    (verdict,) = verdicts(
        results(
            accounting=[device(100 * MS, host_ns=40 * MS)],
            gap_summary=[part("host", 40 * MS, **place)],
        )
    )
    assert "see what Python does in step/data, before train.py:22;" in verdict.advice


def test_none_of_many_lines_is_named() -> None:
    rows = [
        part("host", 10 * MS, phase="step/data", source=f"train.py:{line} in train")
        for line in range(4)
    ]
    (verdict,) = verdicts(results(accounting=[device(100 * MS, host_ns=40 * MS)], gap_summary=rows))
    assert "train.py" not in verdict.advice


@pytest.mark.parametrize(("launches", "graphed"), [(100, False), (5, True)])
def test_replayed_graphs_are_not_to_become_graphs(launches: int, graphed: bool) -> None:
    phases = [
        {"path": "step", "depth": 1, "kernels": 200, "launches": 200},
        {"path": "step/replay", "depth": 2, "kernels": 100, "launches": launches},
    ]
    (verdict,) = verdicts(
        results(
            accounting=[device(100 * MS, launch_ns=40 * MS)],
            gap_summary=[part("launch", 40 * MS, phase="step/replay")],
            phases=phases,
        )
    )
    first, makes_one = verdict.advice.split(":")[0], "a CUDA graph" in verdict.advice
    assert first == f"{'replay' if graphed else 'launch'} less in step/replay"
    assert makes_one is not graphed


def test_a_rank_that_waits_in_collectives_hears_of_the_straggler() -> None:
    reports = [analysed(f"h200-ddp-rank{rank}") for rank in (0, 1)]
    waiting = verdicts(Results(reports))[0]
    assert waiting.gpus == "h200-ddp-rank1 GPU 1"
    assert waiting.loss.startswith("waiting in collectives for h200-ddp-rank0 GPU 0")
    assert "why h200-ddp-rank0 GPU 0 is late" in waiting.advice
    even = [analysed(f"ddp-no_overlap-rank{rank}") for rank in (0, 1)]
    (verdict,) = verdicts(Results(even))
    assert verdict.loss.startswith("exposed communication")
    assert "overlap it with compute" in verdict.advice
