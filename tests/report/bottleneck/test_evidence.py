"""Where the verdict places a bottleneck, and what it advises there."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.schema import COLLECTIVES
from nsysflow.report.bottleneck.bottlenecks import LAUNCH
from nsysflow.report.bottleneck.evidence import evidence_of
from nsysflow.report.bottleneck.verdict import Verdict, verdicts
from nsysflow.report.results import Results
from tests.report.handmade import MS, Handmade, device, frame, handmade, part

WAYS = ("HtoD", "DtoH")
"""Of copies that run side by side."""


def verdict(**rows: Any) -> Verdict:  # noqa: ANN401
    (only,) = verdicts(Results([handmade(**rows)]))
    return only


def read_back(size_bytes: int) -> Verdict:
    call = {"api": "cudaMemcpyAsync", "kind": "blocking_copy"}
    copy = {"direction": "DtoH", "bytes": size_bytes, "induced_idle_ns": 40 * MS}
    where = {"phase": "step/log", "culprit": "cudaMemcpyAsync"}
    return verdict(
        accounting=[device(100 * MS, blocking_copy_ns=40 * MS)],
        syncs=[{**call, **copy}],
        gap_summary=[part("blocking_copy", 40 * MS, **where)],
    )


def test_exposed_copies_are_named_after_their_phase() -> None:
    found = verdict(
        accounting=[device(100 * MS, copy_exposed_ns=50 * MS, host_ns=5 * MS)],
        copies=[
            {"phase": "step/data", "exposed_ns": 48 * MS, "count": 9},
            {"phase": "step/log", "exposed_ns": 2 * MS, "count": 9},
        ],
    )
    assert found.loss == "exposed copies in step/data, 48 %"
    assert found.advice.startswith("overlap the copies in step/data (pinned memory")


def test_copies_at_the_same_time_share_their_exposed_time() -> None:
    """Each row of the copies has all of it: both ways at once would be 160 % of the window."""
    both_ways = [{"phase": "step/swap", "direction": way, "exposed_ns": 80 * MS} for way in WAYS]
    found = verdict(accounting=[device(100 * MS, copy_exposed_ns=80 * MS)], copies=both_ways)
    assert found.loss == "exposed copies in step/swap, 80 %"


def test_copies_within_the_gpu_are_not_to_be_pinned() -> None:
    copies = [
        {"phase": "step/cat", "direction": "DtoD", "exposed_ns": 60 * MS},
        {"phase": "step/data", "direction": "HtoD", "exposed_ns": 10 * MS},
    ]
    found = verdict(accounting=[device(100 * MS, copy_exposed_ns=70 * MS)], copies=copies)
    assert found.loss == "exposed copies within the GPU in step/cat, 60 %"
    assert found.advice.startswith("copy less in step/cat (write in place")


def test_copies_between_gpus_are_not_within_one() -> None:
    copies = [{"phase": "step/exchange", "direction": "PtoP", "exposed_ns": 60 * MS}]
    found = verdict(accounting=[device(100 * MS, copy_exposed_ns=70 * MS)], copies=copies)
    assert found.loss == "exposed copies between GPUs in step/exchange, 60 %"
    assert found.advice.startswith("overlap them with compute in step/exchange on another stream")


def clearing(options: Options, *recorded: dict[str, Any]) -> str:
    """What is said of 70 ms of copies and memsets, 10 ms of which are copies."""
    copies = [{"phase": "step/data", "direction": "HtoD", "exposed_ns": 10 * MS}]
    run = handmade(accounting=[device(100 * MS, copy_exposed_ns=70 * MS)], copies=copies)
    details = run.trace.copy_details.clear(len(recorded))
    trace = replace(run.trace, copy_details=details)
    (found,) = verdicts(Results([replace(run, options=options, trace=trace)]))
    return found.sentence + found.advice


@pytest.mark.parametrize("options", [Options(), Options(device=0), Options(steps=(2, None))])
def test_exposed_time_that_is_in_no_copy_is_of_memsets(options: Options) -> None:
    said = clearing(options, {})
    assert "exposed memsets, 70 %" in said
    assert "clear less: zero_grad(set_to_none=True)" in said


def test_a_window_that_may_cut_copies_has_memsets_only_where_nothing_is_copied() -> None:
    """A memcpy that began before the window is in no row of its copies."""
    cut = Options(from_ns=MS)
    assert "exposed memsets" in clearing(cut)
    assert "exposed memsets" not in clearing(cut, {})


def test_a_gpu_is_not_blamed_for_waits_that_stopped_another() -> None:
    wait = {"culprit": "cudaStreamSynchronize", "phase": "generate"}
    run = handmade(
        accounting=[
            device(100 * MS, device=0, sync_ns=60 * MS),
            device(100 * MS, device=1, host_ns=50 * MS),
        ],
        gap_summary=[
            part("sync", 60 * MS, **wait),
            part("host", 50 * MS, device=1, phase="train"),
        ],
    )
    first, second = verdicts(Results([run]))
    assert first.sentence == (
        "GPU 0: sync-bound (60 % idle); largest loss:"
        " waiting in cudaStreamSynchronize in generate, 60 %"
    )
    assert second.sentence.startswith("GPU 1: host-bound")
    assert "generate" not in second.sentence


def test_graphs_whose_kernels_were_not_recorded_are_known_as_graphs() -> None:
    launches = part("launch", 60 * MS, phase="decode", culprit="cudaGraphLaunch")
    found = verdict(accounting=[device(100 * MS, launch_ns=60 * MS)], gap_summary=[launches])
    assert found.advice.startswith("replay less")
    one_by_one = {**launches, "culprit": "cudaLaunchKernel"}
    found = verdict(accounting=[device(100 * MS, launch_ns=60 * MS)], gap_summary=[one_by_one])
    assert found.advice.startswith("launch less")


def test_a_gpu_without_graphs_is_not_advised_for_another_ones() -> None:
    launches = {"phase": "step"}
    graphed = part("launch", 90 * MS, device=0, culprit="cudaGraphLaunch", **launches)
    eager = part("launch", 60 * MS, device=1, culprit="cudaLaunchKernel", **launches)
    phase = {"path": "step", "depth": 1}
    run = handmade(
        step_name="step",
        accounting=[device(100 * MS, device=0, launch_ns=90 * MS),
                    device(100 * MS, device=1, launch_ns=60 * MS)],
        gap_summary=[graphed, eager],
        phases=[{**phase, "process": 11, "kernels": 900, "launches": 9},
                {**phase, "process": 12, "kernels": 90, "launches": 90}],
        steps=[{"process": 11, "device": 0, "launch_ns": 90 * MS},
               {"process": 12, "device": 1, "launch_ns": 60 * MS}],
    )  # fmt: skip
    results = Results([run])
    both = results.table("accounting")

    def advice(gpu: int) -> str:
        return evidence_of(results, both.filter(device=gpu), LAUNCH, ["launch_ns"]).advice

    assert advice(0).startswith("replay less")
    assert advice(1).startswith("launch less")


def test_warm_up_is_left_out_by_steps_only_where_there_are_steps() -> None:
    loading = handmade(accounting=[device(100 * MS, module_load_ns=60 * MS)])
    (found,) = verdicts(Results([loading]))
    assert "--from SECONDS" in found.advice

    def advice(steps: int) -> str:
        each = {"start_ns": 0, "end_ns": MS, "module_load_ns": 20 * MS}
        rows = frame("steps", *({**each, "step": step} for step in range(steps)))
        (found,) = verdicts(Results([replace(loading, tables={**loading.tables, "steps": rows})]))
        return found.advice

    assert "--steps 2:" in advice(3)
    assert "--steps" not in advice(2)  # none would be left


def test_what_is_said_of_idle_time_leaves_out_copies_on_the_gpu() -> None:
    found = verdict(
        accounting=[device(100 * MS, blocking_copy_ns=30 * MS, copy_exposed_ns=20 * MS)],
        gap_summary=[part("blocking_copy", 30 * MS, phase="step/scatter")],
        copies=[{"phase": "step/scatter", "exposed_ns": 20 * MS}],
    )
    assert found.sentence == (
        "copy-bound (30 % idle); largest loss: exposed copies in step/scatter, 30 %"
    )


@pytest.mark.parametrize(
    ("paths", "place"),
    [
        ([f"step/forward/layer{layer}" for layer in range(4)], "in step/forward"),
        (["step/forward/a", "step/backward/a", "step/loss", "step/b/c"], ""),
        (["load/shard", "load/shard", "load/shard", "other"], "in load/shard"),
    ],
    ids=["inner ranges of one", "all over the step", "one that holds most"],
)
def test_a_bottleneck_is_named_after_the_innermost_range_with_half_of_it(
    paths: list[str], place: str
) -> None:
    outer = [("step", 1), ("step/forward", 2), ("step/backward", 2), ("load", 1)]
    found = verdict(
        accounting=[device(100 * MS, launch_ns=40 * MS)],
        gap_summary=[part("launch", 10 * MS, phase=path) for path in paths],
        phases=[
            *({"path": path, "depth": depth} for path, depth in outer),
            *({"path": path, "depth": path.count("/") + 1} for path in paths),
        ],
    )
    assert f"launch overhead{' ' if place else ''}{place}, " in found.loss
    assert f"launch less{' ' if place else ''}{place}: torch.compile" in found.advice


@pytest.mark.parametrize(("outside_ms", "said"), [(70, True), (10, False)])
def test_time_before_the_steps_is_not_theirs(outside_ms: int, said: bool) -> None:
    inside_ms = 80 - outside_ms
    found = verdict(
        step_name="step",
        accounting=[device(100 * MS, alloc_ns=80 * MS)],
        steps=[{"duration_ns": 30 * MS, "alloc_ns": inside_ms * MS}],
        gap_summary=[part("alloc", 80 * MS, phase="load", culprit="cudaMalloc")],
    )
    assert ("in load, before or after the steps, 80 %" in found.loss) is said
    assert ("--steps 0:" in found.advice) is said


@pytest.mark.parametrize(
    ("times", "mean_us", "eager"),
    [(20, 60, True), (19, 60, False), (20, 300, False)],
    ids=["many short pauses", "a few short ones", "many long ones"],
)
def test_slow_launching_is_not_code_to_move_to_another_thread(
    times: int, mean_us: int, eager: bool
) -> None:
    host_ns = times * mean_us * 1_000
    found = verdict(
        accounting=[device(2 * host_ns, host_ns=host_ns)],
        steps=[{"duration_ns": 2 * host_ns, "host_ns": host_ns}],
        gap_summary=[part("host", host_ns, phase="step/forward", gaps=times)],
    )
    assert ("torch.compile" in found.advice) is eager
    assert ("in another thread" in found.advice) is not eager
    assert "in step/forward" in found.advice


def test_a_value_that_is_read_needs_no_pinned_memory() -> None:
    assert "reading a few bytes back with cudaMemcpyAsync in step/log" in read_back(4).loss
    assert read_back(4).advice.startswith("drop the read in step/log")
    assert read_back(1 << 20).advice.startswith("overlap the copies in step/log (pinned memory")


def test_a_gpu_that_hardly_works_comes_after_the_others() -> None:
    used = device(100 * MS, host_ns=1 * MS)
    unused = device(90 * MS, launch_ns=90 * MS - 20_000, device=1, ops=2)
    first, last = verdicts(Results([handmade(accounting=[used, unused])]))
    assert first.sentence.startswith("GPU 0: GPU-bound")
    assert last.sentence == "GPU 1: hardly used (2 operations, 20.0 us of work)"
    assert "--device 0" in last.advice


def test_a_gpu_that_works_less_than_another_is_not_hardly_used() -> None:
    busy, less = device(100 * MS), device(100 * MS, host_ns=98 * MS, device=1)
    assert verdicts(Results([handmade(accounting=[busy, less])]))[0].kind == "host-bound"


def waiting(*late_ms: tuple[int, int]) -> list[Handmade]:
    """Two ranks that come this late to collectives of 10 ms."""
    found = []
    for rank in (0, 1):
        of_rank = {"report": f"rank{rank}", "process": rank, "device": rank, "name": "nccl"}
        rows = [
            {
                "start_ns": (20 * number + late[rank]) * MS,
                "end_ns": (20 * number + 10) * MS,
                **of_rank,
            }
            for number, late in enumerate(late_ms)
        ]
        comm_ns = sum(10 - late[rank] for late in late_ms) * MS
        accounting = device(
            100 * MS,
            comm_exposed_ns=60 * MS,
            comm_ns=comm_ns,
            report=f"rank{rank}",
            device=rank,
        )
        made = handmade(accounting=[accounting])
        collectives = pl.DataFrame(rows, schema=COLLECTIVES)
        trace = replace(made.trace, report=f"rank{rank}")
        found.append(replace(made, collectives=collectives, trace=trace))
    return found


@pytest.mark.parametrize(
    ("late_ms", "said"),
    [
        (((0, 9), (0, 9), (0, 9)), "waiting in collectives for rank1 GPU 1"),
        (((0, 9), (9, 0), (0, 9), (9, 0)), "waiting in collectives (the slowest rank varies)"),
    ],
    ids=["one is late each time", "each in turn"],
)
def test_only_a_rank_that_leads_is_named(late_ms: tuple[tuple[int, int], ...], said: str) -> None:
    assert any(said in each.loss for each in verdicts(Results(waiting(*late_ms))))


def test_stages_that_send_to_each_other_are_a_pipeline() -> None:
    sends = {"name": "ncclDevKernel_SendRecv", "exposed_ns": 30 * MS}
    others = {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "exposed_ns": 15 * MS}
    found = verdict(
        accounting=[device(100 * MS, comm_exposed_ns=45 * MS, comm_ns=45 * MS)],
        comm=[sends, others],
    )
    assert "microbatches" in found.advice
