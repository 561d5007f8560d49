"""What the tool is for, one case per test: on real reports, and on exports written by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis import schema
from nsysflow.analysis.options import Options
from tests.analyses import analysed, loaded, sums
from tests.exports import Row, process, thread, write_export

PAGEABLE, PINNED, DEVICE = 0, 1, 2
TO_DEVICE, TO_HOST = 1, 2


def phase(name: str, path: str) -> dict[str, Any]:
    """One phase of a real report."""
    rows = analysed(name).phases.filter(pl.col("path") == path).to_dicts()
    assert len(rows) == 1
    return rows[0]


# --- real reports ---------------------------------------------------------------------------------


def test_a_wait_behind_a_full_queue_that_nothing_followed_costs_nothing() -> None:
    # 106 ms behind the 8192-wide matmuls of `overlap`, at the end of the program.
    waits = analysed("h200-train").syncs.with_row_index("rank")
    (wait,) = waits.filter(pl.col("blocked_ns").is_between(100_000_000, 110_000_000)).to_dicts()
    assert wait["gpu_busy_ns"] > 0.999 * wait["blocked_ns"]
    assert wait["induced_idle_ns"] == 0
    assert wait["rank"] >= len(waits.filter(pl.col("induced_idle_ns") > 0))


def test_the_longest_wait_costs_only_the_host_time_that_it_exposed() -> None:
    # 211 ms behind saturating matmuls. Waiting cost nothing, but then the host needed 13 ms to
    # build the next model. Without the wait, it would have done so during the matmuls.
    analysis = analysed("h200-train")
    wait = analysis.syncs.sort("blocked_ns", descending=True).row(0, named=True)
    assert wait["blocked_ns"] == 210_650_140
    assert wait["gpu_busy_ns"] > 0.999 * wait["blocked_ns"]
    end_ns = wait["start_ns"] + wait["blocked_ns"]
    gap = analysis.gaps.filter(pl.col("start_ns") < end_ns, pl.col("end_ns") > end_ns).row(
        0, named=True
    )
    assert gap["culprit"] == "cudaDeviceSynchronize"
    assert wait["induced_idle_ns"] == gap["sync_ns"] <= gap["duration_ns"]
    assert wait["induced_idle_ns"] < 0.07 * wait["blocked_ns"]


def test_copies_to_pageable_memory_are_charged_inside_the_copy_call() -> None:
    # o = out.detach().cpu(): no synchronize is called, the wait is within cudaMemcpyAsync.
    read_back = analysed("h200-train").syncs.filter(
        pl.col("phase") == "step_sync/metrics", pl.col("bytes") == 8 << 20
    )
    assert read_back["api"].to_list() == ["cudaMemcpyAsync"] * 6
    assert set(read_back["copy_label"]) == {"pageable_blocking"}
    assert read_back["induced_idle_ns"].to_list() == read_back["blocked_ns"].to_list()
    assert read_back["induced_idle_ns"].sum() > 30_000_000
    waits = analysed("h200-train").syncs.filter(pl.col("phase") == "step_sync/metrics")
    explicit = waits.filter(pl.col("kind") == "sync")["induced_idle_ns"].sum()
    assert explicit < 1_000_000


@pytest.mark.parametrize(
    ("path", "kernels"),
    [("warmup/backward", 116), ("step_sync/backward", 348), ("step_async/backward", 348)],
)
def test_kernels_of_backward_are_in_backward_although_another_thread_launched_them(
    path: str, kernels: int
) -> None:
    backward = phase("h200-train", path)
    assert backward["kernels"] == kernels
    assert backward["borrowed_ops"] > 0.98 * backward["ops"]


def test_kernels_of_a_graph_are_where_the_graph_was_launched() -> None:
    graph, eager = phase("h200-train", "graph"), phase("h200-train", "eager")
    assert graph["kernels"] == eager["kernels"] == 640
    assert (graph["launches"], eager["launches"]) == (10, 640)


def test_a_graph_traced_as_one_is_compute_but_no_kernel() -> None:
    analysis = analysed("h200-graph-level")
    graph = phase("h200-graph-level", "graph")
    assert (graph["ops"], graph["kernels"], graph["kernel_ns"]) == (10, 0, 0)
    assert graph["busy_ns"] > 1_900_000
    (whole,) = analysis.accounting.to_dicts()
    alone = analysis.trace.ops.filter(pl.col("kind") == "graph")
    graphs_ns = (alone["end_ns"] - alone["start_ns"]).sum()
    assert whole["compute_ns"] >= whole["kernel_ns"] + graphs_ns
    assert analysis.kernels["count"].sum() == whole["kernels"] == whole["ops"] - 10 - 118


def test_half_of_the_idle_of_gpt2_is_host_code_outside_the_steps() -> None:
    by_size = analysed("h200-gpt2-eager").gap_summary.sort("total_ns", descending=True)
    first = by_size.row(0, named=True)
    assert (first["cause"], first["phase"]) == ("host", "")
    assert first["total_ns"] > 0.49 * sums(by_size, ["total_ns"])["total_ns"]


def test_a_rank_waits_for_the_other_in_communication_and_not_in_idle() -> None:
    # Rank 1 computes less and waits inside NCCL's kernels.
    waiting, late = (
        analysed(f"h200-ddp-rank{rank}").accounting.row(0, named=True) for rank in (1, 0)
    )
    assert waiting["comm_exposed_ns"] > 5 * late["comm_exposed_ns"]
    assert waiting["idle_ns"] < waiting["comm_exposed_ns"]


# --- by hand: processes and GPUs ------------------------------------------------------------------

ONE, OTHER = 1000, 2000


def launched(pid: int, correlation: int, at: int, ns: int, device: int = 0) -> tuple[Row, Row]:
    """A call of 10 ns and its kernel, 10 ns later."""
    call = {
        "start": at,
        "end": at + 10,
        "globalTid": thread(pid, pid),
        "correlationId": correlation,
    }
    kernel = {
        "start": at + 20,
        "end": at + 20 + ns,
        "deviceId": device,
        "globalPid": process(pid),
        "correlationId": correlation,
    }
    return call, kernel


def two_processes(
    folder: Path, gpu_of: dict[int, int], *, nvtx: list[Row] | None = None
) -> nsysflow.Analysis:
    """Each launches two kernels with the same correlation ids, on its own device 0."""
    rows = [
        launched(ONE, 1, 0, 100),
        launched(ONE, 2, 1_000, 100),
        launched(OTHER, 1, 500, 30),
        launched(OTHER, 2, 1_500, 30),
    ]
    report = write_export(
        folder / "two.sqlite",
        calls=[call for call, _ in rows],
        kernels=[kernel for _, kernel in rows],
        cuda_devices=[{"gpuId": gpu, "cudaId": 0, "pid": pid} for pid, gpu in gpu_of.items()],
        gpus=[{"id": gpu, "uuid": f"uuid-{gpu}"} for gpu in sorted(set(gpu_of.values()))],
        nvtx=nvtx,
    )
    return nsysflow.analyze(nsysflow.load(report))


def test_equal_correlation_ids_of_two_processes_are_not_mixed(tmp_path: Path) -> None:
    ranges: list[Row] = [
        {"start": 0, "end": 2_000, "text": name, "globalTid": thread(pid, pid)}
        for pid, name in ((ONE, "training"), (OTHER, "serving"))
    ]
    analysis = two_processes(tmp_path, {ONE: 0, OTHER: 1}, nvtx=ranges)
    found = analysis.phases.select("process", "path", "kernels", "kernel_ns", "launches").rows()
    assert sorted(found) == [(ONE, "training", 2, 200, 2), (OTHER, "serving", 2, 60, 2)]
    launches = analysis.launches.select("path", "api_ns", "latency_median_ns", "queue_median_ns")
    assert sorted(launches.rows()) == [("serving", 20, 20, 10), ("training", 20, 20, 10)]
    assert analysis.integrity.filter(pl.col("check") == "kernels before their launch").is_empty()


def test_two_processes_that_each_see_device_0_are_kept_apart(tmp_path: Path) -> None:
    #  GPU 3   20--120                 1020--1120
    #  GPU 5             520--550                    1520--1550
    analysis = two_processes(tmp_path, {ONE: 3, OTHER: 5})
    columns = ["device", "window_ns", "compute_ns", "idle_ns", "gaps"]
    assert analysis.accounting.select(columns).rows() == [
        (3, 1_100, 200, 900, 1),
        (5, 1_030, 60, 970, 1),
    ]
    gaps = analysis.gaps.select("device", "start_ns", "end_ns").rows()
    assert gaps == [(3, 120, 1_020), (5, 550, 1_520)]


def test_two_processes_on_one_gpu_share_its_timeline(tmp_path: Path) -> None:
    #  GPU 3   20--120   520--550      1020--1120    1520--1550
    analysis = two_processes(tmp_path, {ONE: 3, OTHER: 3})
    columns = ["device", "window_ns", "compute_ns", "idle_ns", "gaps"]
    assert analysis.accounting.select(columns).rows() == [(3, 1_530, 260, 1_270, 3)]
    gaps = analysis.gaps.select("start_ns", "end_ns").rows()
    assert gaps == [(120, 520), (550, 1_020), (1_120, 1_520)]


# --- by hand: what a call is ----------------------------------------------------------------------


def test_a_launch_over_1_ms_loads_a_module_only_the_first_time(tmp_path: Path) -> None:
    slow_ns = 2_000_000
    calls, kernels = [], []
    for correlation, name in enumerate(("add", "mul", "add", "add"), 1):
        at = correlation * 10_000_000
        calls.append({"start": at, "end": at + slow_ns, "correlationId": correlation})
        kernels.append(
            {
                "start": at + slow_ns + 1_000,
                "end": at + slow_ns + 2_000,
                "correlationId": correlation,
                "demangledName": f"void {name}<float>(float*)",
                "shortName": name,
            }
        )
    report = write_export(tmp_path / "slow.sqlite", calls=calls, kernels=kernels)
    gaps = nsysflow.analyze(nsysflow.load(report)).gaps
    # before the first gap `add` ran once; then `mul` for the first time, then `add` again
    assert gaps["module_load_ns"].to_list() == [slow_ns, 0, 0]
    assert gaps["launch_ns"].to_list() == [0, slow_ns, slow_ns]
    assert gaps["host_ns"].to_list() == [10_000_000 - slow_ns - 2_000] * 3


LABELS: Final = {
    # what the copy's call and thread do: (host memory, call's end, a sync that follows at)
    "pageable_blocking": (PAGEABLE, 900, None),
    "pageable_async": (PAGEABLE, 100, None),
    "pinned_blocking": (PINNED, 100, 40_000),
    "pinned_async": (PINNED, 100, 60_000),
}


@pytest.mark.parametrize("label", LABELS)
def test_a_copy_is_labelled_by_its_memory_and_whether_the_host_waited(
    tmp_path: Path, label: str
) -> None:
    memory, call_end, sync_at = LABELS[label]
    calls: list[Row] = [
        {"start": 50, "end": call_end, "correlationId": 1, "nameId": "cudaMemcpyAsync_v3020"}
    ]
    if sync_at is not None:
        calls.append(
            {
                "start": call_end + sync_at,
                "end": call_end + sync_at + 500,
                "correlationId": 2,
                "nameId": "cudaStreamSynchronize_v3020",
            }
        )
    copy = {
        "start": 200,
        "end": 900,
        "bytes": 64,
        "copyKind": TO_HOST,
        "srcKind": DEVICE,
        "dstKind": memory,
    }
    report = write_export(tmp_path / "copy.sqlite", calls=calls, memcpys=[copy])
    analysis = nsysflow.analyze(nsysflow.load(report))
    columns = ["direction", "copy_label", "count", "bytes", "gpu_ns"]
    assert analysis.copies.select(columns).rows() == [("DtoH", label, 1, 64, 700)]


def test_a_small_copy_to_the_host_is_charged_with_the_whole_wait_for_it(tmp_path: Path) -> None:
    #  host   200 .cpu() ----------------------- 100 900       200 000 launch
    #  GPU    110 kernel ---- 98 000   100 000 copy 100 700        200 120 kernel
    # the 2 us before the copy are a gap of the same call; the call's wait must still count
    kernels = [
        {"start": 110, "end": 98_000, "correlationId": 1},
        {"start": 200_120, "end": 200_200, "correlationId": 3},
    ]
    calls: list[Row] = [
        {"start": 100, "end": 105, "correlationId": 1},
        {"start": 200, "end": 100_900, "correlationId": 2, "nameId": "cudaMemcpyAsync_v3020"},
        {"start": 200_000, "end": 200_100, "correlationId": 3},
    ]
    copy = {"start": 100_000, "end": 100_700, "bytes": 8, "correlationId": 2}
    copy |= {"copyKind": TO_HOST, "srcKind": DEVICE, "dstKind": PAGEABLE}
    report = write_export(tmp_path / "cpu.sqlite", calls=calls, kernels=kernels, memcpys=[copy])
    analysis = nsysflow.analyze(nsysflow.load(report))
    before, after = analysis.gaps.select("duration_ns", "blocking_copy_ns", "host_ns").rows()
    assert before == (2_000, 2_000, 0)
    # 97 800 before the GPU ran dry, 700 and 200 during and after the copy; the rest is host code
    assert after == (99_420, 97_800 + 700 + 200, 200_000 - 100_900 - 97_800 - 700)
    (wait,) = analysis.syncs.filter(pl.col("kind") == "blocking_copy").to_dicts()
    assert wait["induced_idle_ns"] == wait["blocked_ns"] == 100_700


def test_a_copy_within_the_gpu_is_labelled_device(tmp_path: Path) -> None:
    call = {"start": 0, "end": 100, "nameId": "cudaMemcpyAsync_v3020"}
    copy = {"start": 200, "end": 900, "copyKind": 8, "srcKind": DEVICE, "dstKind": DEVICE}
    report = write_export(tmp_path / "copy.sqlite", calls=[call], memcpys=[copy])
    analysis = nsysflow.analyze(nsysflow.load(report))
    assert analysis.copies.select("direction", "copy_label").rows() == [("DtoD", "device")]


@pytest.mark.parametrize("correlation", [None, 0, 77])
def test_a_gap_before_work_without_a_call_is_unknown(
    tmp_path: Path, correlation: int | None
) -> None:
    call, kernel = launched(ONE, 1, 0, 100)
    migration = {"start": 5_000, "end": 6_000, "correlationId": correlation}
    report = write_export(tmp_path / "u.sqlite", calls=[call], kernels=[kernel, migration])
    (gap,) = nsysflow.analyze(nsysflow.load(report)).gaps.to_dicts()
    assert (gap["cause"], gap["unknown_ns"], gap["culprit"]) == ("unknown", 4_880, "")


def test_a_wait_is_charged_in_every_gap_that_follows_until_it_is_used_up(tmp_path: Path) -> None:
    #  host  L1  wait 30...100000  L2 70 us later, then L3, L4 every 60 us: each finds the GPU idle
    starts = (0, 70_000, 130_000, 190_000)
    rows = [launched(ONE, number, at, 100) for number, at in enumerate(starts, start=1)]
    wait = {"start": 30, "end": 100_000, "correlationId": 9, "nameId": "cudaStreamSynchronize"}
    late = [
        ({**call, "start": call["start"] + 100_000, "end": call["end"] + 100_000},
         {**kernel, "start": kernel["start"] + 100_000, "end": kernel["end"] + 100_000})
        for call, kernel in rows[1:]
    ]  # fmt: skip
    report = write_export(
        tmp_path / "w.sqlite",
        calls=[rows[0][0], *(call for call, _ in late), wait],
        kernels=[{**rows[0][1], "end": 99_000}, *(kernel for _, kernel in late)],
    )
    analysis = nsysflow.analyze(nsysflow.load(report))
    # the whole first gap (99_000 to its launch's end at 170_010), and what is left in the second
    assert analysis.gaps["sync_ns"].to_list() == [71_010, 28_960, 0]
    (wait,) = analysis.syncs.to_dicts()
    assert wait["induced_idle_ns"] == wait["blocked_ns"] == 99_970


def test_an_api_call_between_two_launches_is_never_a_culprit(tmp_path: Path) -> None:
    #  GPU    20--120                       1050
    #  host  L          api 100......1000   L 1030..1040
    rows = [launched(ONE, 1, 0, 100), launched(ONE, 2, 1_030, 100)]
    api = {"start": 100, "end": 1_000, "correlationId": 9, "nameId": "cudaStreamBeginCapture"}
    report = write_export(
        tmp_path / "a.sqlite",
        calls=[*(call for call, _ in rows), api],
        kernels=[kernel for _, kernel in rows],
    )
    (gap,) = nsysflow.analyze(nsysflow.load(report)).gaps.to_dicts()
    assert (gap["cause"], gap["culprit"]) == ("launch", "")


def test_the_work_of_the_profiler_is_charged_before_the_call_it_interrupts(tmp_path: Path) -> None:
    #  GPU    20--120                            2020--2120
    #  host  L                  api 1000...........2000 L at 2000
    #  nsys               flush 900........1500
    rows = [launched(ONE, 1, 0, 100), launched(ONE, 2, 2_000, 100)]
    api = {"start": 1_000, "end": 2_000, "correlationId": 9, "nameId": "cudaEventQuery_v3020"}
    report = write_export(
        tmp_path / "p.sqlite",
        calls=[*(call for call, _ in rows), api],
        kernels=[kernel for _, kernel in rows],
        overhead=[{"start": 900, "end": 1_500}],
    )
    (gap,) = nsysflow.analyze(nsysflow.load(report)).gaps.to_dicts()
    assert {c: gap[f"{c}_ns"] for c in ("profiler", "launch", "queue_delay")} == {
        "profiler": 600,
        "launch": 1_290,  # the short stretch between two launches, api within it
        "queue_delay": 10,
    }


def test_a_process_that_captured_a_window_of_its_steps_skips_none_of_them() -> None:
    trace = loaded("h200-gpu-metrics")
    (process,) = trace.calls["process"].unique()
    rows = [(process, "3:2:5", None)]
    window = pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")
    another = pl.DataFrame([(process + 1, *rows[0][1:])], schema=schema.CAPTURES, orient="row")
    steady = {
        name: nsysflow.analyze(replace(trace, captures=captures)).steps["steady"].to_list()
        for name, captures in (("its", window), ("another's", another))
    }
    assert steady == {"its": [True] * 12, "another's": [False] * 2 + [True] * 10}
    asked = nsysflow.analyze(replace(trace, captures=window), Options(skip=1)).steps["steady"]
    assert asked.to_list() == [False] + [True] * 11


def test_a_pause_in_one_of_five_steps_is_listed_apart() -> None:
    analysis = analysed("h200-gpt2-eager")
    kinds = ["steady"] * 3 + ["one-off"] * 2
    assert analysis.steps["kind"].to_list() == kinds
    pause, slow = analysis.step_groups.filter(pl.col("kind") == "one-off").to_dicts()
    assert (pause["steps"], pause["largest_cause"]) == ("3", "host")
    assert 71_000_000 < pause["largest_ns"] < pause["excess_ns"] + 100_000 < 72_000_000
    assert slow["steps"] == "4"


def test_two_steps_are_enough_if_the_process_captured_a_window_of_them() -> None:
    trace = loaded("sum_many-loop")
    analysis = nsysflow.analyze(trace)
    assert analysis.step_name == "step"
    assert len(analysis.steps) == 2
    unmarked = replace(trace, captures=trace.captures.clear())
    assert nsysflow.analyze(unmarked).steps.is_empty()
