"""Kernels that a program could do without.

* `cast-storm`: conversions of tensors from one dtype to another.
* `concatenation`: kernels that only put tensors behind one another. torch.cat reads and writes all
  of its tensors. A cache that grows by it is copied whole for each new entry: of a thousand tokens,
  the first one is copied a thousand times.
* `full-sort`: kernels that sort, where a few of the largest may be all that is needed.
* `recomputation`: kernels of the forward pass that run again in the backward pass. Gradient
  checkpointing drops activations and computes them a second time, to save memory. Where the memory
  is there, that buys nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import code_frames
from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    kernels_by_pass,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import (
    CONCATENATES,
    MATRIX_CLASSES,
    covered,
    lacks_bfloat16,
    run_of,
)
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.rules.growing_work import CHANGE_OF_COPIES, growing_ops
from nsysflow.analysis.frames.columns import matching, repeated
from nsysflow.base.units import between, percent


def kernels_to_drop(
    subject: JudgedReport, which: pl.Series | pl.Expr, least_pct: float
) -> pl.DataFrame:
    """These kernels, with all of their time as `gain_ns`; no rows where they take less of all
    kernel time.

    Args:
        subject: the judged part.
        which: of each of its kernels, whether it is one of them.
        least_pct: what is worth a finding.
    """
    rows = subject.kernels.filter(which).with_columns(pl.col("ns").alias("gain_ns"))
    return rows if share_of_kernels(subject, rows) >= least_pct else rows.clear()


CASTS_PCT: Final = 10.0
"""Autocast casts each weight once a step and each gradient back. Where matmuls are large that is
below this: 9 % of attn_sdpa's kernel time, 38 % with a batch of 256 rows (H200, 2026-11-22)."""

CHANGE_OF_CASTS: Final = (  # float16 needs float32 parameters beside it: the first is of bfloat16
    "keep parameters in bfloat16 (model.to(torch.bfloat16)) instead of casting them in each step",
    "one autocast region around the whole forward: casts of weights are then kept for its length",
    "torch.compile: it fuses casts into their neighbours",
)

CHANGE_OF_INFERENCE: Final = (
    "cast or dequantize weights once, before the loop, if they fit: nothing here changes them",
    "of weights in 8 or 4 bits: a matmul that reads them as they are (torchao, torch._scaled_mm)",
    "torch.compile: it fuses casts into their neighbours",
)

TRAINS: Final = r"(?i)backward|[^a-z]grad|dgrad|wgrad|adam|sgd|multi_tensor"
"""Kernels of a backward pass or an optimizer."""

SCALED: Final = "what was cast from integers is scaled, and a matmul reads it"


def cast_storm(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that convert tensors, as autocast inserts them, outside of attention. Where nothing
    trains and weights are dequantized, the kernels that scale them are counted, too."""
    kernels = subject.kernels.with_columns(pl.col("ns").alias("gain_ns"))
    casts = pl.col("cast") & (pl.col("job").is_null() | (pl.col("job") != "attention"))
    scaled = _dequantizing(kernels)
    if share_of_kernels(subject, kernels.filter(casts | scaled)) < CASTS_PCT:
        return
    names = kernels["name"].unique().cast(pl.String)
    trains = names.str.contains(TRAINS).any() or is_backward(subject.view, subject.kernels).any()
    dequantizes = not trains and share_of_kernels(subject, kernels.filter(scaled)) >= CASTS_PCT
    rows = kernels.filter(casts | scaled if dequantizes else casts)
    share = share_of_kernels(subject, rows)
    if share < CASTS_PCT:
        return
    what = "weights dequantized in each step" if dequantizes else "casts between dtypes"
    change = CHANGE_OF_CASTS if trains else CHANGE_OF_INFERENCE
    in_float16 = trains and lacks_bfloat16(subject.tables.accounting["name"])
    finding = kernel_finding(
        subject,
        rows,
        rule="cast-storm",
        title=f"{what}: {percent(share)} of kernel time",
        change=change[1:] if in_float16 else change,
        evidence=(in_words(subject, rows), *([SCALED] if dequantizes else [])),
    )
    yield replace(finding, fits=in_float16)


def _dequantizing(kernels: pl.DataFrame) -> pl.Series:
    """Whether each kernel is a cast from integers or one of the elementwise kernels right behind
    it, where a matmul follows these on the stream."""
    if not kernels["from_integers"].any():
        return repeated(value=False, length=len(kernels))
    scaling = (pl.col("class") == "elementwise") & ~pl.col("from_integers")
    runs = run_of(kernels, scaling)
    matmul = pl.col("class") == "matmul"
    beside = kernels.select(
        pl.col("from_integers").shift(1).over("lane").alias("before"),
        matmul.shift(-1).over("lane").alias("after"),
    )
    reads = beside["before"][runs["first"]] & beside["after"][runs["last"]]
    return covered(kernels, runs.filter(reads).with_columns(pl.col("first") - 1))


CONCATENATION_PCT: Final = 10.0
"""Models that join tensors here and there spend 8 % of their kernel time on it at most (43
recordings), a decoder that appended to its cache 60 % (H100, 2026-11-26)."""

MOSTLY_RISING: Final = 0.7
"""A tensor grows if so many steps take longer than the one before …"""

LEAST_PAIRS: Final = 10
"""… of at least so many."""

CHANGE_OF_CONCATENATION: Final = (
    "write the parts into one tensor that is allocated once, each into its slice",
    "torch.compile the module: it writes many parts to where they belong",
)


def concatenation(subject: JudgedReport) -> Iterator[Finding]:
    """The kernels of torch.cat and torch.stack, where they take much of the kernel time; but for
    those of `growing-work`."""
    grown = subject.kernels["op"].is_in(growing_ops(subject).implode())
    named = matching(subject.kernels["name"], CONCATENATES) & ~grown
    rows = kernels_to_drop(subject, named, CONCATENATION_PCT)
    if rows.is_empty():
        return
    growth = _growth(subject, rows)
    yield kernel_finding(
        subject,
        rows,
        rule="concatenation",
        title=f"torch.cat {'copies a growing tensor' if growth else 'copies tensors'}:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_COPIES if growth else CHANGE_OF_CONCATENATION,
        evidence=growth,
    )


def _growth(subject: JudgedReport, rows: pl.DataFrame) -> tuple[str, ...]:
    """In how many steps these kernels take longer than in the one before, as a sentence; none where
    that is no rule."""
    if not subject.of_steps:
        return ()
    step = subject.judged_steps["start_ns"].unique().sort()
    of_step = step.search_sorted(rows["start_ns"], side="right").alias("of")
    each = rows.group_by(of_step).agg(pl.col("ns").sum()).sort("of")["ns"]
    pairs, rises = len(each) - 1, int((each.diff() > 0).sum())
    if pairs < LEAST_PAIRS or rises < MOSTLY_RISING * pairs:
        return ()
    shortest, *_, longest = each.sort()
    spread = between(shortest, longest)
    return (f"in {rises} of {pairs} steps it takes longer than in the one before: {spread}",)


SORTS: Final = r"(?i)(?:radix|merge|bitonic)_?sort"
"""Kernels of CUB and of PyTorch's own sorts, which JAX and CuPy use likewise."""

SORT_PCT: Final = 10.0
"""Of 50 recordings whose programs do not sort for themselves, none spends more than 5.5 % of its
kernel time on it outside of backward (docs/facts.md)."""

LEFT_OF_SORTS: Final = 0.2
LEFT_OF_SHORT: Final = 0.5
SHORT: Final = r"(?i)SortKVInPlace"
"""What is left at least where topk selects the largest few, and the kernels that sort a short row
in one block. Of 1, 20 and 200 numbers topk took 0.19 to 0.45 of the sort's time in rows of 8,192 to
16,000,000 numbers, and 0.52 or more in rows of 512 to 4,096 (H200, docs/facts.md)."""

CHANGE_OF_SORTS: Final = (
    "if only the largest or smallest k are needed: torch.topk(x, k), not torch.sort(x)[:k]",
    "for top-p sampling: torch.topk of some hundred tokens first, or a sampler that does not sort"
    " (flashinfer.sampling)",
    "for a median or quantile: torch.kthvalue",
    "sort once, before the loop, if the order is the same each time",
)


def full_sort(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that sort, outside of a backward pass: there indices are sorted, so that equal ones
    are added in order."""
    sorting = matching(subject.kernels["name"], SORTS) & ~is_backward(subject.view, subject.kernels)
    rows = kernels_to_drop(subject, sorting, SORT_PCT)
    if rows.is_empty():
        return
    short = pl.lit(matching(rows["name"], SHORT))
    left = pl.when(short).then(LEFT_OF_SHORT).otherwise(LEFT_OF_SORTS)
    yield kernel_finding(
        subject,
        rows.with_columns((pl.col("ns") * (1 - left)).cast(pl.Int64).alias("gain_ns")),
        rule="full-sort",
        title="whole tensors are sorted:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_SORTS,
        evidence=(
            in_words(subject, rows),
            "topk takes a fifth of a sort's time or more; half or more in rows of up to 4,096",
        ),
    )


RECOMPUTED_PCT: Final = 3.0
"""A change that saves less of the kernel time is not worth the memory."""

ALIKE: Final = 4
"""So many neighbours run again in the same order: in attention's backward pass two or three are as
in its forward pass, by chance."""

DIFFERENT: Final = 3
"""So many of them differ: the launches of one product of many matrices are alike."""

CHECKPOINT: Final = r"(?:^|/)torch/utils/checkpoint\.py$"

CHANGE_OF_RECOMPUTATION: Final = (
    "checkpoint fewer layers, or none if the memory allows: every second one costs half",
    "keep what is dear and recompute what is cheap: create_selective_checkpoint_contexts of"
    " torch.utils.checkpoint",
    "make room first: fused attention, 16 bits, a loss that is computed in chunks",
)


def recomputation(subject: JudgedReport) -> Iterator[Finding]:
    """Runs of kernels of the forward pass, with a matrix product among them, that run again in the
    backward pass, and the host's time to launch them again.

    On an H100 2.82 of 20.7 ms were such kernels; without it a step took 17.5 ms (2026-11-25). Where
    the GPU waits for launches, their time counts: 57.2 ms, and 30.6 without (H200, 2026-11-29).
    """
    kernels = kernels_by_pass(subject)
    rows = kernels.filter(recomputed(kernels))
    again_ns, whole_ns = int(rows["ns"].sum()), int(kernels["ns"].sum())
    if 100 * again_ns < RECOMPUTED_PCT * whole_ns or again_ns == 0:
        return
    share = percent(100 * again_ns / whole_ns)
    at = _called_at(subject)
    finding = kernel_finding(
        subject,
        rows,
        rule="recomputation",
        title="the forward pass is computed again in backward"
        f"{f', {at}' if at else ''}: {share} of kernel time",
        change=CHANGE_OF_RECOMPUTATION,
        evidence=(
            f"run a second time, with the same sizes in the same order: {in_words(subject, rows)}",
        ),
    )
    left_out = "; what checkpointing itself runs in Python is not counted"
    yield replace(counting_launches(subject, finding, rows["op"], left_out), source=at)


def recomputed(kernels: pl.DataFrame) -> pl.Series:
    """Whether each kernel is of the backward pass and repeats one of the forward pass that ran
    before it on its stream in its step; of equal ones no more than the forward pass has.

    Args:
        kernels: stream by stream in order: `lane`, `step`, `backward` (null where no launch tells),
            `class` and `key`, the same for kernels of one name and shape.
    """
    ahead = {f"key_{at}": pl.col("key").shift(-at) for at in range(ALIKE)}
    run, backward = pl.struct("lane", "step", "backward").rle_id(), pl.col("backward")
    whole = run.shift(1 - ALIKE).eq_missing(run)
    keys = [*ahead.values()]
    new = (pl.all_horizontal(keys[at] != before for before in keys[:at]) for at in range(1, ALIKE))
    different = 1 + pl.sum_horizontal(new) >= DIFFERENT
    tells = (whole & different).alias("tells")
    starts = kernels.select("lane", "step", backward, tells, **ahead)
    starts = starts.with_row_index("row").filter("tells", backward.is_not_null())
    alike = ["lane", "step", *ahead]
    enough = (~backward).cum_sum().over(alike) >= backward.cum_sum().over(alike)
    again = starts.filter(backward & enough)
    row = pl.Series("row", again["row"], dtype=pl.Int64)
    marks = repeated(value=False, length=len(kernels)).fill_null(value=False)
    for at in range(ALIKE):
        marks = marks.scatter(row + at, True)
    runs = run_of(kernels, pl.lit(marks))
    matrix = kernels["class"].is_in([*MATRIX_CLASSES]).arg_true()
    holds = matrix.search_sorted(runs["last"], side="right") > matrix.search_sorted(runs["first"])
    return covered(kernels, runs.filter(holds))


def _called_at(subject: JudgedReport) -> str:
    """The line that calls PyTorch's checkpoint most often in stacks; empty where none shows it."""
    frames = subject.timeline.trace.frames
    inside = frames.filter(
        pl.col("file").cast(pl.String).str.contains(CHECKPOINT),
        pl.col("function").cast(pl.String) != "<module>",  # it is being imported
    )
    if inside.is_empty():
        return ""
    outermost = inside.group_by("stack").agg(until=pl.col("depth").max())
    lines = code_frames(frames, subject.timeline.options.own).join(outermost, on="stack")
    callers = lines.filter(pl.col("depth") > pl.col("until")).unique(
        "stack", keep="first", maintain_order=True
    )
    counts = callers.group_by("line").len().sort(-pl.col("len").cast(pl.Int64), "line")
    return str(counts["line"][0]) if len(counts) else ""
