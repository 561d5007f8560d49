"""What is said where no other rule explains the time.

* `largest-kernels`: of a GPU-bound report, when nothing is wrong by name; of a serving engine's
  steps it is `engine-kernels`. Beside other findings it is about a large kernel of one's own.
* `idle-gpu`: of a GPU that idles, where other rules explain little of that.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.frameworks import PYTORCH
from nsysflow.analysis.findings.host_functions import Running, running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, share_of_kernels
from nsysflow.analysis.findings.own_kernels import (
    helps_of_own,
    is_triton,
    own_in_words,
    own_kernels,
)
from nsysflow.analysis.findings.rules.compilation import CHANGE_OF_LOADING
from nsysflow.analysis.findings.rules.host_code import CHANGE_OF_HOST_CODE
from nsysflow.analysis.findings.rules.launch_bound import CHANGE as CHANGE_OF_LAUNCHES
from nsysflow.analysis.findings.rules.launch_bound import dispatches
from nsysflow.analysis.findings.rules.managed_memory import kernels_wait
from nsysflow.analysis.findings.rules.serving import engine_kernels
from nsysflow.analysis.findings.rules.waits import WAIT
from nsysflow.base.names import OUTSIDE, one_line
from nsysflow.base.units import duration, number, percent, whole_percent

GPU_BOUND_PCT: Final = 50.0
"""Where the GPU computes for less of the time, the kernels are not what to look at first."""

_NAMED_KERNELS: Final = 3

OWN_PCT: Final = 20.0
"""A kernel of one's own with a fifth of the kernel time is named. In a program whose slowest kernel
took 31 % of it, three findings were about others."""

TF32: Final = (
    "torch.autocast('cuda', torch.bfloat16): 16-bit tensor cores do twice what TF32 does",
)

HELPS_OF_CLASS: Final[Mapping[str, tuple[str, ...]]] = {
    "matmul": (
        "fewer operations: no padding tokens (packed or nested sequences), no recomputation",
        "fp8 where GPU (Ada, Hopper, newer) and model bear it: torchao.float8, Transformer Engine",
        "larger products, with sizes that are multiples of 128; --flops-per-step shows how far from"
        " the peak they are",
    ),
    "conv": (
        "channels_last with 16 bits, channels in multiples of 8; torch.backends.cudnn.benchmark",
        "torch.compile, which fuses batch norm and activations around them",
    ),
    "attention": (
        "FlashAttention-3 (on Hopper) or cuDNN's: torch.nn.attention.sdpa_kernel chooses",
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
HELPS_ON_ROCM: Final[Mapping[str, tuple[str, ...]]] = {
    **HELPS_OF_CLASS,
    "conv": (
        "channels_last with 16 bits and PYTORCH_MIOPEN_SUGGEST_NHWC=1; torch.backends.cudnn"
        ".benchmark lets MIOpen search too",
        HELPS_OF_CLASS["conv"][1],
    ),
    "attention": (
        "Composable Kernel's or aiter's attention instead of a generic one",
        HELPS_OF_CLASS["attention"][1],
    ),
}
OF_ANY_ON_ROCM: Final = (
    OF_ANY[0],
    "see what a kernel waits for in ROCm Compute Profiler: rocprof-compute profile",
)


def largest_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """The class with most of the kernel time, its largest kernels, and what helps for that class.

    What it would save is not known: 0.
    """
    kernels = subject.kernels.filter(pl.col("class") != "comm")
    if kernels.is_empty() or not _limits(subject):
        return
    own = own_kernels(subject, kernels)
    of_program = 2 * int(own["ns"].sum()) > int(kernels["ns"].sum())
    kernels = own if of_program else kernels
    sums = kernels.group_by("class").agg(pl.col("ns").sum()).sort("ns", "class", descending=True)
    largest = str(sums["class"][0])
    rows = kernels if of_program else kernels.filter(pl.col("class") == largest)
    names = _by_time(rows)
    first = names[:_NAMED_KERNELS]
    if of_engine := [*engine_kernels(subject, rows, largest, first)]:
        yield from of_engine
        return
    tf32 = int(rows.filter(pl.col("unit") == "tf32")["ns"].sum()) * 2 > int(rows["ns"].sum())
    share = percent(share_of_kernels(subject, rows))
    frameworks = subject.frameworks
    on_rocm = HELPS_ON_ROCM, OF_ANY_ON_ROCM
    helps, of_any = on_rocm if frameworks.rocm else (HELPS_OF_CLASS, OF_ANY)
    title, change = largest, (*(TF32 if tf32 else ()), *helps.get(largest, of_any))
    if of_program:
        triton = is_triton(subject, rows, first[0])
        title = own_in_words(triton=triton, several=len(names) > 1)
        title = f"{title}, {', '.join(map(one_line, first))}"
        change = helps_of_own(subject, largest, first[0], triton=triton)
    yield Finding(
        rule="largest-kernels",
        title=f"most kernel time is {title}: {share}",
        change=change,
        fits=of_program or (frameworks.rocm and PYTORCH in frameworks.names),
        evidence=(in_words(subject, rows), f"largest: {', '.join(map(one_line, first))}"),
        table="kernels",
        size_ns=subject.worst_ns(rows, "ns"),
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        culprit=first[0],
    )


def largest_of_own(subject: JudgedReport, named: Collection[str]) -> Iterator[Finding]:
    """The program's own kernel with most time, if that is much and no finding is about it.

    Args:
        subject: the judged part of a report.
        named: the full and short names of the kernels that findings are about.
    """
    if not _limits(subject) or "engine" in subject.frameworks.names:
        return
    own = own_kernels(subject, subject.kernels)
    if own.is_empty():
        return
    name = _by_time(own)[0]
    rows = own.filter(pl.col("short_name").cast(pl.String) == name)
    share = share_of_kernels(subject, rows)
    if share < OWN_PCT or any(each in named for each in (name, *rows["name"].cast(pl.String))):
        return
    triton = is_triton(subject, rows, name)
    yield Finding(
        rule="largest-kernels",
        title=f"{own_in_words(triton=triton, several=False)}, {one_line(name)}, takes"
        f" {percent(share)} of kernel time",
        change=helps_of_own(subject, str(rows["class"][0]), name, triton=triton),
        fits=True,
        evidence=(in_words(subject, rows),),
        table="kernels",
        size_ns=subject.worst_ns(rows, "ns"),
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        culprit=name,
    )


def _limits(subject: JudgedReport) -> bool:
    """Whether the GPU computes most of the time, and what it computes is worth a word."""
    accounting = subject.tables.accounting
    compute_ns, window_ns = accounting.select(pl.col("compute_ns", "window_ns").sum()).row(0)
    bound = 100 * compute_ns >= GPU_BOUND_PCT * window_ns
    return bound and not kernels_wait(subject) and not subject.mostly_captures


def _by_time(kernels: pl.DataFrame) -> list[str]:
    """The short names of kernels, those with most time first."""
    sums = kernels.group_by("short_name").agg(pl.col("ns").sum())
    name = pl.col("short_name").cast(pl.String)
    return sums.sort("ns", name, descending=[True, False])["short_name"].cast(pl.String).to_list()


IDLE_PCT: Final = 20
"""From this share of the time on, idle time is never left without a finding."""

EXPLAINED_PCT: Final = 50
"""Findings that would save so much of it explain it."""

_NAMED: Final = 3

MOST_PCT: Final = 50
"""So much of a cause's idle time has to be at the places that are named by operations."""

JAX: Final = (
    "one jax.jit around the whole step: Python dispatches each operation outside of it by itself",
    "jax.lax.scan or fori_loop instead of a loop in Python",
)
LOADED_AT_FIRST: Final = (
    "a kernel is loaded when it is first launched: launch each once before the part that counts",
    "CUDA_MODULE_LOADING=EAGER loads all of them at the start",
)
"""Where no steps are judged, start-up is part of the time."""
MANY_PAUSES: Final = 20
"""So many pauses of a step are no single piece of Python."""

RECORD: Final = "record what the host runs meanwhile, with ranges: {}"
RECORD_NATIVE: Final = (
    "put an NVTX range around each part of the host's work (nvtxRangePushA, nvtxRangePop), and"
    " record again: {}"
)

HELPS_OF_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    "host": CHANGE_OF_HOST_CODE,
    "launch": ("launch less: fuse small operations, or launch them as one CUDA graph",),
    "api": ("call it once before the loop, or less often",),
    "sync": WAIT,
    "blocking_copy": ("copy from and to pinned memory, asynchronously, ahead of the work",),
    "alloc": ("allocate once before the loop, and use that memory again",),
    "module_load": CHANGE_OF_LOADING,
    "profiler": ("record less: --sample-python 0 --backtrace none",),
    "queue_delay": ("fewer, larger operations: each waits a little in the GPU's queue",),
    "dependency": ("start earlier what is waited for, on another stream: --table waited",),
    "unknown": (
        "record the program from its start, with cuda in --trace",
        "where operations of CUDA graphs are missing: --graph-trace graph",
    ),
}


def idle_gpu(
    subject: JudgedReport, explained_ns: int, of_causes: Mapping[str, int]
) -> Iterator[Finding]:
    """The largest cause of idle time that no finding explains, and its place.

    Nothing if the GPU idles little, if findings explain half of its idle time (unless much host
    code is left), or if the causes that they explain have half of it. Nothing either of steps that
    are not typical: what else they idled for has ended.

    Args:
        subject: the judged part of a report.
        explained_ns: the idle time that other findings would save, of a step.
        of_causes: how much of it is of findings about one cause alone, by cause.
    """
    accounting = subject.tables.accounting.sort("idle_ns", "device")
    if accounting.is_empty() or subject.is_unlike_later:
        return
    device, idle_ns, window_ns = accounting[["device", "idle_ns", "window_ns"]].row(-1)
    left_ns = max(0, subject.per_step(idle_ns) - explained_ns)
    if not idle_ns or 100 * idle_ns < IDLE_PCT * window_ns:
        return
    gaps = subject.tables.gap_summary.filter(pl.col("device") == device)
    causes = gaps.group_by("cause").agg(pl.col("total_ns").sum()).sort("total_ns", "cause")
    left = [
        (name, ns)
        for name, ns in causes.select(pl.col("cause").cast(pl.String), "total_ns").iter_rows()
        if 100 * of_causes.get(name, 0) < EXPLAINED_PCT * subject.per_step(ns)
    ]
    if 100 * sum(ns for _, ns in left) < EXPLAINED_PCT * idle_ns:
        return
    cause, cause_ns = left[-1]
    if 100 * explained_ns >= EXPLAINED_PCT * subject.per_step(idle_ns):
        much = 100 * left_ns >= IDLE_PCT * subject.per_step(window_ns)
        # what a rank has left may be a wait for another one
        if cause != "host" or not much or len(subject.timeline.communication):
            return
    places = (
        gaps.filter(pl.col("cause").cast(pl.String) == cause)
        .with_columns(pl.col("phase", "source", "via", "culprit").fill_null(""))
        .group_by("device", "phase", "source", "via", "culprit")
        .agg(pl.col("gaps", "total_ns").sum(), pl.col("max_ns").max())
        .sort("total_ns", "phase", "source", "culprit")
        .reverse()
    )
    size_ns = min(left_ns, subject.per_step(cause_ns))
    yield _finding(subject, cause, causes.reverse(), places, idle_ns, window_ns, size_ns)


def _finding(
    subject: JudgedReport,
    cause: str,
    causes: pl.DataFrame,
    places: pl.DataFrame,
    idle_ns: int,
    window_ns: int,
    size_ns: int,
) -> Finding:
    first = places.row(0, named=True)
    of_host = cause in ("host", "launch", "api")
    ran = running(subject, first["phase"] or OUTSIDE) if of_host else Running()
    known = ran.evidence or first["source"] or not of_host
    label = CAUSES[cause].label
    beside = Beside() if known else _beside(subject, int(first["device"]), cause)
    outside = first["phase"] in ("", OUTSIDE) and not first["culprit"]
    sampled = subject.view.host_stacks is not None  # once more would show no more
    record = () if known or sampled else (_record(subject),)
    pauses = subject.per_step(int(places["gaps"].sum()))
    many = cause == "host" and pauses >= MANY_PAUSES
    jax = many and "jax" in subject.frameworks.names
    operators = many and not jax and not subject.mostly_captures and dispatches(subject)
    loads_once = cause == "module_load" and not subject.of_steps
    helps = JAX if jax else LOADED_AT_FIRST if loads_once else HELPS_OF_CAUSE[cause]
    helps = CHANGE_OF_LAUNCHES if operators else helps
    change = (*helps, *record) if beside.place or jax else (*record, *helps)
    return Finding(
        rule="idle-gpu",
        title=f"the GPU idles {whole_percent(idle_ns, window_ns)} of the time,"
        f" {'mostly' if cause == causes['cause'][0] else 'also'} {label}"
        f"{beside.place if outside and beside.place else _where(first) + beside.place}",
        change=ran.change or change,
        evidence=(
            f"{subject.spent(subject.per_step(idle_ns))} idle: {_by_cause(causes, idle_ns)}",
            f"{label} is{'; '.join(_by_place(places, idle_ns))} of it",
            *beside.evidence,
            *ran.evidence,
        ),
        table="gap_summary",
        size_ns=size_ns,
        steps=subject.steps,
        at_most_ns=size_ns,
        phase=first["phase"] if first["phase"] != OUTSIDE else "",
        source=first["source"],
        via=first["via"],
        culprit=first["culprit"],
        fits=jax or operators,
    )


def _record(subject: JudgedReport) -> str:
    """How to record what the host runs: Python is sampled, other programs name their parts."""
    options = subject.timeline.options
    if subject.frameworks.native:
        return RECORD_NATIVE.format(options.recording(program="./program"))
    return RECORD.format(options.recording("--sample-python 1000"))


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Where idle time lies, by the operations before and after it.

    Attributes:
        place: as it ends a title; empty where no few places have most of it.
        evidence: these places, with their shares.
    """

    place: str = ""
    evidence: tuple[str, ...] = ()


def _beside(subject: JudgedReport, device: int, cause: str) -> Beside:
    """The operations between which most of a cause's time lies. A pair of one name says nothing: a
    program has many such places."""
    gaps, ops = subject.view.gaps, subject.timeline.events.ops
    name = ops["short_name"].cast(pl.String)
    rows = gaps.select(
        "device_no",
        pl.col("end_ns").alias("start_ns"),
        pl.col(f"{cause}_ns").alias("ns"),
        ops["device"][gaps["next_op"]].alias("device"),
        name[gaps["prev_op"]].alias("before"),
        name[gaps["next_op"]].alias("after"),
    ).filter(pl.col("device") == device, pl.col("ns") > 0)
    pairs = (
        rows.filter(pl.col("before") != pl.col("after"))
        .group_by("before", "after")
        .agg(pl.col("ns").sum(), pl.len().alias("gaps"))
        .sort("ns", "before", "after")
        .reverse()
        .head(_NAMED)
    )
    whole_ns = int(rows["ns"].sum())
    if 100 * int(pairs["ns"].sum()) < MOST_PCT * whole_ns:
        return Beside()
    begun = subject.timeline.steps.select("device_no", "start_ns").unique()
    at_steps = int(rows.join(begun, on=["device_no", "start_ns"], how="semi")["ns"].sum())
    first = pairs.row(0, named=True)
    most = "most" if 100 * first["ns"] >= MOST_PCT * whole_ns else "the largest part"
    between = f", {most} between {first['before']} and {first['after']}"
    places = (
        f"between {row['before']} and {row['after']} ({number(row['gaps'])} gaps)"
        f" {whole_percent(row['ns'], whole_ns)}"
        for row in pairs.iter_rows(named=True)
    )
    return Beside(
        place=" between the steps" if 100 * at_steps >= MOST_PCT * whole_ns else between,
        evidence=(f"of this, {'; '.join(places)}",),
    )


def _where(row: dict[str, Any]) -> str:
    where = place(row["phase"], line(row["source"], row["via"]))
    return f" ({row['culprit']}){where}" if row["culprit"] else where


def _by_cause(causes: pl.DataFrame, idle_ns: int) -> str:
    named = causes.head(_NAMED)[["cause", "total_ns"]].iter_rows()
    return ", ".join(f"{CAUSES[name].label} {whole_percent(ns, idle_ns)}" for name, ns in named)


def _by_place(places: pl.DataFrame, idle_ns: int) -> Iterator[str]:
    """Its largest places; a single long gap is none of a loop."""
    for row in places.head(_NAMED).iter_rows(named=True):
        longest = f", the longest {duration(row['max_ns'])}" if row["gaps"] > 1 else ""
        gaps = "one gap" if row["gaps"] == 1 else f"{number(row['gaps'])} gaps"
        yield f"{_where(row)} ({gaps}{longest}) {whole_percent(row['total_ns'], idle_ns)}"
