"""`largest-kernels`: the last resort of a GPU-bound report, when nothing is wrong by name."""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport, in_words, share_of_kernels
from nsysflow.base.units import percent

GPU_BOUND_PCT: Final = 50.0
"""Where the GPU computes for less of the time, the kernels are not what to look at first."""

_NAMED: Final = 3

TF32: Final = (
    "torch.autocast('cuda', torch.bfloat16): 16-bit tensor cores do twice what TF32 does",
)

HELPS: Final[Mapping[str, tuple[str, ...]]] = {
    "matmul": (
        "fewer operations: no padding tokens (packed or nested sequences), no recomputation",
        "fp8 where the model bears it (torchao.float8, Transformer Engine): twice bf16's peak",
        "larger products, with sizes that are multiples of 128; --flops-per-step shows how far from"
        " the peak they are",
    ),
    "conv": (
        "channels_last with 16 bits, channels in multiples of 8; torch.backends.cudnn.benchmark",
        "torch.compile, which fuses batch norm and activations around them",
    ),
    "attention": (
        "FlashAttention-3 or cuDNN's: torch.nn.attention.sdpa_kernel chooses",
        "less attention: packed sequences, a sliding window, grouped-query heads",
    ),
    "norm": (
        "torch.compile, which fuses a norm with its neighbours",
        "channels_last for batch norm",
    ),
    "elementwise": (
        "torch.compile, which fuses neighbours; 16 bits instead of float32 halve the bytes",
    ),
    "copy/cast": ("keep one dtype and one memory order through the model; fewer torch.cat",),
    "reduction": (
        "torch.compile, which fuses a reduction with what feeds it",
        "reduce along the last dimension, in one call over all rows",
    ),
    "softmax": ("a fused cross-entropy (torch.compile, Liger): the logits are not written twice",),
    "embedding": ("sparse gradients, or fewer and larger look-ups",),
    "optimizer": (
        "step less often (gradient accumulation), or shard its state over GPUs (FSDP)",
        "its state in 16 or 8 bits: half of the bytes or less",
    ),
    "triton": (
        "bytes moved over time, beside the GPU's bandwidth, say how far a kernel is from the best",
        "torch.compile(mode='max-autotune') tries other tiles",
    ),
}
OF_ANY: Final = (
    "bytes moved and operations over time, beside the GPU's peaks, say how far it is from the best",
    "see what a kernel waits for in Nsight Compute: ncu --set full",
)


def largest_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """The class with most of the kernel time, its largest kernels, and what helps for that class.

    What it would save is not known: 0.
    """
    accounting = subject.tables.accounting
    compute_ns, window_ns = accounting.select(pl.col("compute_ns", "window_ns").sum()).row(0)
    kernels = subject.kernels.filter(pl.col("class") != "comm")
    if kernels.is_empty() or 100 * compute_ns < GPU_BOUND_PCT * window_ns:
        return
    sums = kernels.group_by("class").agg(pl.col("ns").sum()).sort("ns", "class", descending=True)
    largest = str(sums["class"][0])
    rows = kernels.filter(pl.col("class") == largest)
    by_name = rows.group_by("short_name").agg(pl.col("ns").sum())
    names = by_name.sort("ns", pl.col("short_name").cast(pl.String), descending=[True, False])
    first = [str(name) for name in names["short_name"].cast(pl.String).head(_NAMED)]
    tf32 = int(rows.filter(pl.col("unit") == "tf32")["ns"].sum()) * 2 > int(rows["ns"].sum())
    share = percent(share_of_kernels(subject, rows))
    yield Finding(
        rule="largest-kernels",
        title=f"most kernel time is {largest}: {share}",
        change=(*(TF32 if tf32 else ()), *HELPS.get(largest, OF_ANY)),
        evidence=(in_words(subject, rows), f"largest: {', '.join(first)}"),
        table="kernels",
        size_ns=subject.worst_ns(rows, "ns"),
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        culprit=first[0],
    )
