"""What the rules say of real reports: which finding comes first, and where a rule is quiet."""

from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import LAST_RESORT, RULES
from nsysflow.analysis.findings.stall_findings import TAKEN_OVER
from nsysflow.analysis.options import Options
from nsysflow.runs.analyze import PAGE, analyze_reports
from tests.analyses import loaded
from tests.analysis.findings.subjects import MS, changes_of, found, options_of, real, valued
from tests.reports import SAMPLES

BY_NAME: Final = {rule.__name__: rule for rule in (*RULES, LAST_RESORT)}

LAUNCH_BOUND: Final = {
    "launch_bound-eager": ("step/forward", "launch_bound.py:41 in forward", 48),
    "launch_bound-eager-plain": ("step/forward", "", 63),
    "sum_many-loop": ("step/metrics", "sum_many.py:65 in loop", 9),
    "rolloutcopy-torch": ("step/compute_advantage", "advantage.py:297 in advantage_ref", 75),
    "rolloutcopy-fused": ("step/train_select_and_copy", "", 97),
    "trainforward-fused": ("step/backward", "", 78),
    "trainstep-fused": ("step/backward", "", 57),
}
"""Of reports whose launches are the first finding: where most of them are, and what a graph of the
step saves."""


FIRST: Final = {
    "nan_check-sync": "sync-in-loop; step/metrics; nan_check.py:125 in check;"
    " cudaStreamSynchronize; --remove sync@nan_check.py:125; 14; replay",
    "dataload-sync": "sync-in-loop; step/metrics; dataload.py:44 in step; cudaDeviceSynchronize;"
    " --remove sync@dataload.py:44; 35; replay",
    "metrics-each_step": "scalar-readback; step/metrics; metrics.py:46 in step; cudaMemcpyAsync;"
    " --remove copy@metrics.py:46 --remove sync@metrics.py:46; 15; replay",
    "graph_break-breaks": "scalar-readback; step/forward; graph_break.py:63 in limited_if_large;"
    " cudaStreamSynchronize; --remove sync@graph_break.py:63; 5; replay",
    "h2d-pageable": "pageable-copy; step/h2d; ; cudaMemcpyAsync;"
    " --remove copy@step/h2d --remove sync@step/h2d; 34; replay",
    "h2d-pageable_non_blocking": "pageable-copy; step/h2d; ; cudaMemcpyAsync;"
    " --remove copy@step/h2d; 12; replay",
    "h2d-pinned_blocking": "blocking-pinned-copy; step/h2d; ; cudaStreamSynchronize;"
    " --remove sync@step/h2d; 6; replay",
    "overlap-in_turn": "exposed-copy; step/h2d; ; memcpy HtoD; --scale memcpy HtoD=0; 22; replay",
    "ddp-no_overlap-rank0": "exposed-communication; step/backward; ; ncclAllReduce;"
    " --scale ncclDevKernel_AllReduce_Sum_bf16_RING_LL=0; 18; bound",
    "alloc_churn-empty_cache": "allocator-churn; step/metrics; alloc_churn.py:41 in step;"
    " cudaFree; --remove alloc; 17; replay",
    "trainstep-torch": "loop-of-launches; step/forward/rnn; ; ; --graph step/forward/rnn; 77;"
    " bound",
    # 4.24 to 1.59 ms in docs/case-studies.md: 62 %
    "fusion-eager": "unfused-elementwise; step/forward; ; vectorized_layer_norm_kernel; --scale;"
    " 58; bound",
    # 15.5 to 5.4 ms with fused attention: 65 %
    "h200-unfused-attention": "unfused-attention; ; ; unrolled_elementwise_kernel; --scale; 69;"
    " bound",
    **{
        name: f"launch-bound; {phase}; {line}; ; --graph step; {pct}; replay"
        for name, (phase, line, pct) in LAUNCH_BOUND.items()
    },
}
"""Of the first finding of a report: its rule, phase, source, culprit, the begin of what is
replayed, what it saves in per cent of a step without the profiler, by estimate, and how that is
known."""


@pytest.mark.parametrize(
    ("report", "rule"),
    [
        *(("launch_bound-eager", "launch_bound"), ("fusion-eager", "unfused_elementwise")),
        *(("sum_many-loop", "tiny_kernels"), ("overlap-side_stream", "largest_kernels")),
    ],
)
def test_nothing_advises_graphs_or_fusing_where_graphs_are_being_captured(
    report: str, rule: str
) -> None:
    """Seen in a capture by vLLM: "4 launches a step", and CUDA graphs as advice."""
    trace = loaded(report)
    times = trace.ops["start_ns"].min(), trace.calls["end_ns"].max()
    names = "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"
    borders = [
        trace.calls.head(1).with_columns(
            start_ns=pl.lit(at), end_ns=pl.lit(at), name=pl.lit(name), correlation=None
        )
        for at, name in zip(times, names, strict=True)
    ]
    calls = pl.concat([trace.calls, *(border.cast(trace.calls.schema) for border in borders)])
    capturing = replace(trace, calls=calls)
    assert found(BY_NAME[rule], real(report))
    assert not found(BY_NAME[rule], JudgedReport(nsysflow.analyze(capturing)))


@pytest.mark.parametrize("name", FIRST)
def test_the_bottleneck_of_a_report_is_its_first_finding(name: str) -> None:
    rule, phase, source, culprit, replayed, pct, method = FIRST[name].split("; ")
    first = valued(name)[0]
    found = first.finding
    assert (found.rule, found.phase, found.source) == (rule, phase, source)
    assert (found.culprit, found.method) == (culprit, method)
    assert options_of(found).startswith(replayed)
    assert source in found.title
    assert first.pct == pytest.approx(float(pct), abs=1)
    assert (first.low_ns == 0) == (method == "bound")
    # what it removes is known not to hide another wait
    assert TAKEN_OVER not in found.evidence


QUIET: Final = {
    "blocking_copies": "h2d-pinned overlap-side_stream metrics-each_step",
    "exposed_copy": "overlap-side_stream h2d-pinned h2d-pageable nan_check-async",
    "exposed_communication": "ddp-bucketed-rank0 h200-ddp-rank1",
    "allocations": "alloc_churn-cached",
    "code_loading": "fusion-compile",
    "data_loading": "dataload-async launch_bound-eager fusion-eager",
    "host_code": "launch_bound-eager sum_many-loop",
    "dependency_wait": "launch_bound-eager",
    "launch_bound": "launch_bound-graph sum_many-fused trainforward-graph trainstep-graph"
    " rolloutcopy-graph alloc_churn-empty_cache h2d-pinned_blocking metrics-at_end fusion-eager"
    " deep_queue-queued",
    "fp32_matmul": "nan_check-sync",
    "unfused_attention": "h200-gpt2-eager h200-ddp-rank0",
    "unfused_elementwise": "fusion-compile fusion-fused nan_check-sync h2d-pinned",
    "layout_transpose": "nan_check-sync",
    "cast_storm": "nan_check-sync",
    "optimizer_not_fused": "nan_check-sync",
    "idle_chip": "nan_check-sync-metrics h200-gpu-metrics nan_check-sync",
    # near the peak, without products, and without flops
    "low_mfu": "ddp-bucketed-rank0 trainstep-torch nan_check-sync",
}
"""By rule, the reports with the remedy, or where nobody is hurt."""


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, names in QUIET.items() for name in names.split()]
)
def test_a_rule_is_quiet_where_nothing_is_lost(rule: str, name: str) -> None:
    assert not found(BY_NAME[rule], real(name))


@pytest.mark.parametrize(
    "name",
    [
        *("nan_check-async", "dataload-async", "metrics-at_end", "graph_break-fullgraph"),
        *("benign_sync-sync", "deep_queue-queued", "overlap-side_stream", "h2d-pinned"),
    ],
)
def test_waits_that_are_gone_or_that_hurt_nobody_are_no_finding(name: str) -> None:
    assert not [one for one in valued(name) if one.finding.waits]


@pytest.mark.parametrize(
    ("name", "rule", "says"),
    [
        ("alloc_churn-empty_cache", "allocator-churn", "cudaMalloc"),
        ("h200-unfused-attention", "unfused-attention", "matmul, softmax, matmul: 8 times a step"),
        ("h200-ddp-rank0", "fp32-matmul", "93 % of kernel time"),
        ("h200-gpt2-eager", "unaligned-matmul", "25 % of kernel time"),
        ("h200-gpt2-eager", "cast-storm", ""),
        ("h200-gpt2-eager", "launch-bound", "train_step/forward"),
        ("h200-nchw", "layout-transpose", "18 % of kernel time"),
        ("h200-nchw", "layout-transpose", "channels_last"),
        ("trainforward-graph", "low-mfu", "of the bf16 peak"),
        ("h200-train", "optimizer-not-fused", "optimizer"),
    ],
)
def test_a_finding_says_its_evidence_and_what_to_change(name: str, rule: str, says: str) -> None:
    findings = [one for each in RULES for one in each(real(name)) if one.rule == rule]
    said = [" ".join((of.title, of.phase, *of.evidence, *of.change)) for of in findings]
    assert any(says in each for each in said)


def test_memory_that_is_pinned_is_not_told_to_be() -> None:
    change = " ".join(valued("h2d-pinned_blocking")[0].finding.change)
    assert "non_blocking=True" in change
    assert "pin_memory" not in change


@pytest.mark.parametrize(
    ("name", "rule"),
    [("fusion-eager", "largest-kernels"), ("alloc_churn-empty_cache", "profiler-overhead")],
)
def test_a_rule_is_silent_where_kernels_can_be_faster_or_it_is_a_hundredth(
    name: str, rule: str
) -> None:
    assert rule not in {one.finding.rule for one in valued(name)}


def test_where_data_is_loaded_only_the_other_phases_become_graphs() -> None:
    (loads,) = found(BY_NAME["data_loading"], real("h200-gpu-metrics"))
    assert (loads.phase, loads.method) == ("step/data", "replay")
    assert loads.size_ns > 1 * MS
    (launches,) = found(BY_NAME["launch_bound"], real("h200-gpu-metrics"))
    assert set(changes_of(launches).graphs) == {"step/forward", "step/backward", "step/optimizer"}
    assert launches.exact


def test_pauses_that_take_much_of_a_step_count_before_however_few_launches() -> None:
    report = real("h200-ddp-messages")
    (one,) = found(BY_NAME["launch_bound"], report)
    assert one.phase == "step/backward"
    assert 100 * one.size_ns > 12 * report.step_ns


@pytest.mark.parametrize("tables", [PAGE, ("findings",), ("kernels",)])
def test_the_page_and_the_table_of_findings_name_small_grids_alike(tables: tuple[str, ...]) -> None:
    results = analyze_reports([SAMPLES / "trainstep-graph.sqlite.xz"], Options(), tables=tables)
    assert "small-grid" in [one.finding.rule for one in results.found.valued]
