"""The rules, one per file: each looks at a subject and says what could be changed there."""

from collections.abc import Callable, Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.rules import launch_bound, waits
from nsysflow.analysis.findings.rules.gpu import (
    cast_storm,
    fp32_matmul,
    idle_chip,
    largest_kernels,
    layout_transpose,
    low_mfu,
    optimizer_not_fused,
    small_grid,
    tiny_kernels,
    unaligned_matmul,
    unfused_attention,
    unfused_elementwise,
)
from nsysflow.analysis.findings.subject import Subject

Rule = Callable[[Subject], Iterator[Finding]]

GPU_RULES: Final[tuple[Rule, ...]] = (
    fp32_matmul.fp32_matmul,
    unaligned_matmul.unaligned_matmul,
    unfused_attention.unfused_attention,
    unfused_elementwise.unfused_elementwise,
    layout_transpose.layout_transpose,
    cast_storm.cast_storm,
    optimizer_not_fused.optimizer_not_fused,
    small_grid.small_grid,
    tiny_kernels.tiny_kernels,
    idle_chip.idle_chip,
    low_mfu.low_mfu,
)
"""Those about the time that kernels take."""

RULES: Final[tuple[Rule, ...]] = (waits.waits, launch_bound.launch_bound, *GPU_RULES)
"""All rules. Their order only decides between findings that save the same."""

LAST_RESORT: Final[Rule] = largest_kernels.largest_kernels
"""Asked where no rule makes kernels faster."""
