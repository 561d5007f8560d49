"""`recomputation`: kernels of the forward pass that run again in the backward pass.

Gradient checkpointing drops activations and computes them a second time, to save memory. Where the
memory is there, that buys nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import code_frames
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    LAUNCHES_TOO,
    JudgedReport,
    in_words,
    kernel_finding,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, covered, run_of
from nsysflow.analysis.frames.lookup import repeated
from nsysflow.base.units import percent

RECOMPUTED_PCT: Final = 3.0
"""A change that saves less of the kernel time is not worth the memory."""

ALIKE: Final = 4
"""So many neighbours run again in the same order: in attention's backward pass two or three are as
in its forward pass, by chance."""

BACKWARD: Final = r"(?i)(?:^|/)[^/]*backward"
"""Ranges of the backward pass."""

CHECKPOINT: Final = r"(?:^|/)torch/utils/checkpoint\.py$"

CHANGE: Final = (
    "checkpoint fewer layers, or none if the memory allows: every second one costs half",
    "keep what is dear and recompute what is cheap: create_selective_checkpoint_contexts of"
    " torch.utils.checkpoint",
    "make room first: fused attention, 16 bits, a loss that is computed in chunks",
)


def recomputation(subject: JudgedReport) -> Iterator[Finding]:
    """Runs of kernels of the forward pass, with a matrix product among them, that run again in the
    backward pass. (On an H100 2.82 of 20.7 ms; without it a step takes 17.5 ms, 2026-11-25.)"""
    kernels = subject.kernels.with_columns(
        is_backward(subject), _keys(subject).alias("key"), pl.col("ns").alias("gain_ns")
    )
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
        change=CHANGE,
        evidence=(
            f"run a second time, with the same sizes in the same order: {in_words(subject, rows)}",
            LAUNCHES_TOO,
        ),
    )
    yield replace(finding, source=at)


def recomputed(kernels: pl.DataFrame) -> pl.Series:
    """Whether each kernel is of the backward pass and repeats one of the forward pass.

    Args:
        kernels: stream by stream in order: `lane`, `backward`, `class` and `key`, the same for
            kernels of one name and shape.
    """
    ahead = [pl.col("key").shift(-at) for at in range(ALIKE)]
    same = pl.struct("lane", "backward")
    whole = pl.all_horizontal(
        (same.shift(-at) == same).fill_null(value=False) for at in range(1, ALIKE)
    )
    starts = kernels.select(
        "backward", pl.when(whole).then(pl.concat_list(ahead)).alias("gram")
    ).with_row_index("row")
    forward = starts.filter(~pl.col("backward"))[["gram"]].drop_nulls().unique()
    again = starts.filter("backward").drop_nulls("gram").join(forward, on="gram", how="semi")
    row = pl.Series("row", again["row"], dtype=pl.Int64)
    marks = repeated(value=False, length=len(kernels)).fill_null(value=False)
    for at in range(ALIKE):
        marks = marks.scatter(row + at, True)
    runs = run_of(kernels, pl.lit(marks))
    matrix = kernels["class"].is_in([*MATRIX_CLASSES]).arg_true()
    holds = matrix.search_sorted(runs["last"], side="right") > matrix.search_sorted(runs["first"])
    return covered(kernels, runs.filter(holds))


def is_backward(subject: JudgedReport) -> pl.Series:
    """Whether each kernel was launched in a range of the backward pass, or by autograd's thread."""
    attribution, threads = subject.view.attribution, subject.timeline.events.threads
    path = attribution.path_of(subject.kernels["node"])
    in_range = attribution.paths["joined"].str.contains(BACKWARD)[path]
    by_thread = threads["autograd"][subject.kernels["thread_no"]]
    either = pl.lit(in_range).fill_null(value=False) | pl.lit(by_thread).fill_null(value=False)
    return pl.select(either.alias("backward")).to_series()


def _keys(subject: JudgedReport) -> pl.Series:
    """A number for each name and grid."""
    grids = subject.grids.select(pl.all().gather(subject.kernels["detail"]))
    return (
        grids.with_columns(subject.kernels["name"].to_physical())
        .select(pl.struct(pl.all()).rank("dense"))
        .to_series()
    )


def _called_at(subject: JudgedReport) -> str:
    """The line that calls PyTorch's checkpoint most often in stacks; empty where none shows it."""
    frames = subject.timeline.trace.frames
    inside = frames.filter(pl.col("file").cast(pl.String).str.contains(CHECKPOINT))
    if inside.is_empty():
        return ""
    outermost = inside.group_by("stack").agg(until=pl.col("depth").max())
    lines = code_frames(frames, subject.timeline.options.own).join(outermost, on="stack")
    callers = lines.filter(pl.col("depth") > pl.col("until")).unique(
        "stack", keep="first", maintain_order=True
    )
    counts = callers.group_by("line").len().sort(-pl.col("len").cast(pl.Int64), "line")
    return str(counts["line"][0]) if len(counts) else ""
