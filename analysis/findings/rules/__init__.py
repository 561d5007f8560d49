"""The rules, one per file: each looks at a subject and says what could be changed there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import (
    cast_storm,
    concatenation,
    fp32_matmul,
    fp64_kernels,
    idle_chip,
    idle_gpu,
    largest_kernels,
    layout_transpose,
    low_mfu,
    optimizer_not_fused,
    recomputation,
    small_grid,
    tiny_kernels,
    unaligned_matmul,
    unfused_attention,
    unfused_elementwise,
)
from nsysflow.analysis.findings.rules.allocator_churn import allocator_churn
from nsysflow.analysis.findings.rules.blocking_copies import blocking_copies
from nsysflow.analysis.findings.rules.code_loading import code_loading
from nsysflow.analysis.findings.rules.data_loading import data_loading
from nsysflow.analysis.findings.rules.dependency_wait import dependency_wait
from nsysflow.analysis.findings.rules.exposed_communication import exposed_communication
from nsysflow.analysis.findings.rules.exposed_copy import exposed_copy
from nsysflow.analysis.findings.rules.host_code import host_code
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from nsysflow.analysis.findings.rules.load_imbalance import load_imbalance
from nsysflow.analysis.findings.rules.loop_of_launches import loop_of_launches
from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from nsysflow.analysis.findings.rules.profiler_overhead import profiler_overhead
from nsysflow.analysis.findings.rules.recompile import recompile
from nsysflow.analysis.findings.rules.straggler import straggler
from nsysflow.analysis.findings.rules.waits import waits
from nsysflow.analysis.ranks.ranks import Ranks

Rule = Callable[[JudgedReport], Iterator[Finding]]
RuleOfRun = Callable[[Sequence[JudgedReport], Ranks], Iterator[tuple[JudgedReport, Finding]]]
"""A rule for the reports of a run together: findings, each with the report that values it."""

GPU_RULES: Final[tuple[Rule, ...]] = (
    fp32_matmul.fp32_matmul,
    fp64_kernels.fp64_kernels,
    unaligned_matmul.unaligned_matmul,
    unfused_attention.unfused_attention,
    unfused_elementwise.unfused_elementwise,
    layout_transpose.layout_transpose,
    cast_storm.cast_storm,
    concatenation.concatenation,
    optimizer_not_fused.optimizer_not_fused,
    recomputation.recomputation,
    small_grid.small_grid,
    tiny_kernels.tiny_kernels,
    idle_chip.idle_chip,
    low_mfu.low_mfu,
)
"""Those about the time that kernels take."""

RULES: Final[tuple[Rule, ...]] = (
    waits,
    blocking_copies,
    allocator_churn,
    launch_bound,
    loop_of_launches,
    data_loading,
    host_code,
    code_loading,
    periodic_pause,
    recompile,
    exposed_communication,
    exposed_copy,
    dependency_wait,
    profiler_overhead,
    *GPU_RULES,
)
"""All rules. Their order only decides between findings that save the same."""

RULES_OF_RUN: Final[tuple[RuleOfRun, ...]] = (load_imbalance, straggler)
"""The rules that compare the reports of a run."""

LAST_RESORT: Final[Rule] = largest_kernels.largest_kernels
"""Asked where no rule makes kernels faster."""

LAST_RESORT_OF_IDLE: Final = idle_gpu.idle_gpu
"""Asked with the idle time that all other findings explain."""
