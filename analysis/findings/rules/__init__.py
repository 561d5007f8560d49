"""The rules, a file for each topic: each looks at a subject and says what could be changed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.allocations import allocations, allocator_retry
from nsysflow.analysis.findings.rules.attention import (
    cache_reordered,
    causal_mask,
    fp32_attention,
    unfused_attention,
)
from nsysflow.analysis.findings.rules.backward_passes import backward_per_loss
from nsysflow.analysis.findings.rules.clock import clock_drop
from nsysflow.analysis.findings.rules.communication import (
    exposed_communication,
    load_imbalance,
    straggler,
)
from nsysflow.analysis.findings.rules.compilation import code_loading, recompile
from nsysflow.analysis.findings.rules.copies import blocking_copies, exposed_copy, small_copies
from nsysflow.analysis.findings.rules.costly_line import costly_line
from nsysflow.analysis.findings.rules.embeddings import dense_embedding
from nsysflow.analysis.findings.rules.extra_kernels import (
    cast_storm,
    concatenation,
    full_sort,
    recomputation,
)
from nsysflow.analysis.findings.rules.fft import fft_length, real_fft
from nsysflow.analysis.findings.rules.fusion import (
    never_compiled,
    optimizer_not_fused,
    tiny_kernels,
    unfused_elementwise,
)
from nsysflow.analysis.findings.rules.growing_work import growing_work
from nsysflow.analysis.findings.rules.host_code import checkpoint_in_loop, data_loading, host_code
from nsysflow.analysis.findings.rules.index_backward import index_backward
from nsysflow.analysis.findings.rules.last_resort import idle_gpu, largest_kernels, largest_of_own
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from nsysflow.analysis.findings.rules.layout import layout_transpose
from nsysflow.analysis.findings.rules.loops import (
    attention_in_turn,
    expert_loop,
    loop_of_launches,
)
from nsysflow.analysis.findings.rules.loss import strided_softmax, unfused_loss
from nsysflow.analysis.findings.rules.managed_memory import managed_memory
from nsysflow.analysis.findings.rules.matrices import lu_factorization, small_matrices
from nsysflow.analysis.findings.rules.memory import (
    larger_batch,
    memory_growth,
    memory_growth_with_calls,
    out_of_memory,
)
from nsysflow.analysis.findings.rules.micro_batches import small_micro_batches
from nsysflow.analysis.findings.rules.norms import unfused_norm
from nsysflow.analysis.findings.rules.occupancy import idle_chip, small_grid
from nsysflow.analysis.findings.rules.offloading import offloaded_activations
from nsysflow.analysis.findings.rules.pairs import all_pairs
from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from nsysflow.analysis.findings.rules.products import (
    product_order,
    summed_product,
    unread_product,
)
from nsysflow.analysis.findings.rules.seen_modules import (
    masked_rows,
    padding,
    repeated_call,
    unchanged_call,
    unused_gradients,
)
from nsysflow.analysis.findings.rules.seen_products import merged_adapter, zeros_in_products
from nsysflow.analysis.findings.rules.serving import serial_scheduling
from nsysflow.analysis.findings.rules.streams import streams_in_turn
from nsysflow.analysis.findings.rules.tensor_cores import (
    fp32_matmul,
    fp64_kernels,
    low_mfu,
    slow_convolution,
    unaligned_matmul,
)
from nsysflow.analysis.findings.rules.threads import cpu_wait, gil_contention, profiler_overhead
from nsysflow.analysis.findings.rules.waits import dependency_wait, waits
from nsysflow.analysis.findings.rules.weight_norm import weight_norm
from nsysflow.analysis.ranks.ranks import Ranks

Rule = Callable[[JudgedReport], Iterator[Finding]]
RuleOfRun = Callable[[Sequence[JudgedReport], Ranks, int], Iterator[tuple[JudgedReport, Finding]]]
"""A rule for the reports of a run together, and how many ns recording adds to a step: findings,
each with the report that values it."""

GPU_RULES: Final[tuple[Rule, ...]] = (
    fp32_matmul,
    slow_convolution,
    fp64_kernels,
    unaligned_matmul,
    unfused_attention,
    fp32_attention,
    causal_mask,
    strided_softmax,
    unfused_loss,
    unfused_norm,
    fft_length,
    real_fft,
    small_matrices,
    lu_factorization,
    full_sort,
    summed_product,
    product_order,
    unread_product,
    zeros_in_products,
    merged_adapter,
    all_pairs,
    never_compiled,
    unfused_elementwise,
    layout_transpose,
    cast_storm,
    concatenation,
    cache_reordered,
    index_backward,
    dense_embedding,
    optimizer_not_fused,
    recomputation,
    backward_per_loss,
    unused_gradients,
    repeated_call,
    masked_rows,
    padding,
    unchanged_call,
    streams_in_turn,
    growing_work,
    costly_line,
    tiny_kernels,
    idle_chip,
    low_mfu,
)
"""Those about the time that kernels take to compute."""

RULES: Final[tuple[Rule, ...]] = (
    serial_scheduling,
    waits,
    blocking_copies,
    offloaded_activations,
    checkpoint_in_loop,
    allocator_retry,
    allocations,
    memory_growth_with_calls,
    small_micro_batches,
    launch_bound,
    loop_of_launches,
    attention_in_turn,
    expert_loop,
    weight_norm,
    small_copies,
    data_loading,
    host_code,
    gil_contention,
    code_loading,
    periodic_pause,
    recompile,
    exposed_communication,
    exposed_copy,
    managed_memory,
    dependency_wait,
    profiler_overhead,
    clock_drop,
    cpu_wait,
    small_grid,
    *GPU_RULES,
)
"""All rules. Their order only decides between findings that save the same."""

RULES_OF_RUN: Final[tuple[RuleOfRun, ...]] = (load_imbalance, straggler)
"""The rules that compare the reports of a run."""

WITHOUT_TIME: Final[tuple[Rule, ...]] = (out_of_memory, memory_growth, larger_batch)
"""Asked always, and named behind those that save time: what they are about takes no time yet."""

LAST_RESORT: Final[Rule] = largest_kernels
"""Asked where no rule makes kernels faster."""

LAST_RESORT_OF_OWN: Final = largest_of_own
"""Asked with the kernels that all other findings are about."""

LAST_RESORT_OF_IDLE: Final = idle_gpu
"""Asked with the idle time that all other findings explain."""
