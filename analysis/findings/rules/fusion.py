"""Many kernels where one would do.

* `unfused-elementwise`: chains of kernels that only read and write memory.
* `never-compiled`: the same, where torch.compile was to fuse them and never ran.
* `tiny-kernels`: many kernels back to back that are mostly their own start and end.
* `optimizer-not-fused`: an optimizer that updates one tensor after the other.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import (
    CHAIN_CLASSES,
    TINY_NS,
)
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.rules.loss import strided_softmaxes
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.units import duration, number, percent

CHAINS_PCT: Final = 15.0
"""Chains with less of the kernel time are the usual glue of a model (verdict §4)."""

FUSED_MOST: Final = 8
"""Of a longer chain, so many kernels at most are taken as one: its tensors change."""

WHOLE_ROWS: Final = ("norm", "softmax")
"""These need a row before they give its first number: a fused kernel holds one of them."""

CHANGE_OF_CHAINS: Final = (
    "torch.compile the module: it fuses neighbours into one kernel",
    "fused operations: F.layer_norm or rms_norm, GELU and dropout in one call; in-place where the"
    " input is not needed any more",
    "a fused kernel of your own in Triton",
)

CHANGE_OF_GIVEN_UP: Final = (
    "hold a number that changes each time in a tensor; where shapes change: dynamic=True",
    "TORCH_LOGS=recompiles says what changed each time; after 8 times the function runs uncompiled",
)


def unfused_elementwise(subject: JudgedReport) -> Iterator[Finding]:
    """Elementwise, norm, softmax and copy kernels that follow one another.

    Each reads what the one before wrote. Fused, what lies between is neither written nor read: a
    chain then takes as long as its longest kernel. (`fusion-eager`: 103 of 260 us by that; the
    fused kernel takes 97 us, torch.compile's 117 us.) Those of `strided-softmax` are not counted.
    """
    chained = subject.kernels.filter(pl.col("job") == "chain")
    strided = strided_softmaxes(subject)[["op"]]
    chains = _chain_pieces(chained.join(strided, on="op", how="anti", maintain_order="left"))
    if subject.mostly_captures or share_of_kernels(subject, chains) < CHAINS_PCT:
        return
    if _noted(subject, NoteKind.NEVER_COMPILED):
        return  # `never_compiled` says why
    pieces = chains["piece"].n_unique()
    share = percent(share_of_kernels(subject, chains))
    per_step, a_step = subject.per_step, " a step" if subject.of_steps else ""
    given_up = _noted(subject, NoteKind.GAVE_UP_COMPILING)
    finding = kernel_finding(
        subject,
        chains,
        rule="unfused-elementwise",
        title=f"{per_step(len(chains)):,} memory-bound kernels not fused: {share} of kernel time",
        change=CHANGE_OF_CHAINS,
        evidence=(
            in_words(subject, chains),
            f"they are {per_step(pieces):,} chains{a_step}; fused, each takes as long as its"
            " longest kernel",
            LAUNCHES_TOO,
            *(note.text for note in given_up),
        ),
    )
    if given_up:
        title = f"{finding.title}; {given_up[0].public or given_up[0].text}"
        finding = replace(finding, title=title, change=CHANGE_OF_GIVEN_UP, fits=True)
    yield finding


def _noted(subject: JudgedReport, kind: NoteKind) -> list[Note]:
    return [note for note in subject.timeline.trace.notes if note.kind is kind]


CHANGE_OF_NEVER_COMPILED: Final = (
    "call what torch.compile returns: model = torch.compile(model), then model(x)",
    "after model.compile(): model(x), and not model.forward(x) or another method",
    "TORCH_LOGS=dynamo says what is compiled",
)
"""A flow whose blocks were called by `.forward` took 27.1 ms a step, and 11.8 compiled (H200,
2026-11-30)."""


def never_compiled(subject: JudgedReport) -> Iterator[Finding]:
    """All kernels between products, where torch.compile was called and nothing ran compiled. It
    fuses sums, too, and chains of any length."""
    notes = _noted(subject, NoteKind.NEVER_COMPILED)
    if not notes or subject.mostly_captures:
        return
    fused = pl.col("class").is_in([*CHAIN_CLASSES, "reduction"]) & ~pl.col("complex")
    runs = subject.kernels.with_columns(
        pl.struct("lane", fused.alias("fused")).rle_id().alias("run")
    )
    rows = runs.filter(fused, pl.col("job").fill_null("chain") == "chain")
    most_ns = pl.col("ns").max().over("run")
    left = (most_ns / pl.col("ns").sum().over("run")).fill_nan(1.0)
    gain = (pl.col("ns") * (1 - left)).round(0).cast(pl.Int64).alias("gain_ns")
    rows = rows.with_columns(gain).filter(pl.len().over("run") > 1)
    share = share_of_kernels(subject, rows)
    if share < CHAINS_PCT:
        return
    finding = kernel_finding(
        subject,
        rows,
        rule="never-compiled",
        title=f"{notes[0].text}: {percent(share)} of kernel time could be fused",
        change=CHANGE_OF_NEVER_COMPILED,
        evidence=(
            in_words(subject, rows),
            *(note.text for note in notes[1:]),
            "fused, the kernels between two products take as long as the longest of them",
        ),
    )
    yield counting_launches(subject, finding, rows["op"], inside_calls=True)


def _chain_pieces(kernels: pl.DataFrame) -> pl.DataFrame:
    """Rows of chains of two or more, with `piece` and `gain_ns`: each takes the same share of what
    its chain needs beyond its longest kernel."""
    row = pl.int_range(pl.len(), dtype=pl.UInt32)
    whole_row = pl.col("class").is_in(WHOLE_ROWS)
    part = pl.struct("run", whole_row.cum_sum()).rle_id().alias("part")
    cut = kernels.with_columns(part)
    begins = (pl.col("part") != pl.col("part").shift(1)).fill_null(value=True)
    at = (row - pl.when(begins).then(row).forward_fill()) // FUSED_MOST
    cut = cut.with_columns(pl.struct("part", at).rle_id().alias("piece"))
    pieces = cut.group_by("piece", maintain_order=True).agg(
        pl.len().alias("count"), pl.col("ns").sum().alias("sum"), pl.col("ns").max().alias("most")
    )
    piece = cut["piece"]
    left = (pieces["most"] / pieces["sum"]).fill_nan(1.0)[piece]
    gain = (cut["ns"] * (1 - left)).round(0).cast(pl.Int64)
    return cut.with_columns(gain.alias("gain_ns")).filter(pieces["count"][piece] > 1)


TINY_PCT: Final = 5.0
"""Less of the kernel time is not worth a change of the program."""

LEFT_AS_ONE: Final = 0.2
"""What is left of them as few kernels over many tensors: AdamW for 120 tensors took 1.37 ms in
1,140 kernels and 0.22 ms in 6 (H200, torch 2.11, 2026-11-22)."""

CHANGE_OF_TINY: Final = (
    "one call over many tensors: torch._foreach_add_(tensors, ...), or the tensors as views of one",
    "torch.compile the loop: it fuses what it can",
    "a CUDA graph (torch.compile(mode='reduce-overhead')): its kernels start 1 us sooner",
)


def gain_as_few() -> pl.Expr:
    """`gain_ns` of kernels that few over many tensors replace."""
    return (pl.col("ns") * (1 - LEFT_AS_ONE)).round().cast(pl.Int64).alias("gain_ns")


def tiny_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """Runs of kernels under 5 us, outside of an optimizer, also where the GPU never idles."""
    rows = subject.kernels.filter(pl.col("job") == "tiny").with_columns(gain_as_few())
    if subject.mostly_captures or share_of_kernels(subject, rows) < TINY_PCT:
        return
    count = subject.per_step(len(rows))
    yield kernel_finding(
        subject,
        rows,
        rule="tiny-kernels",
        title=f"{count:,} kernels under {duration(TINY_NS)} back to back:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_TINY,
        evidence=(in_words(subject, rows), LAUNCHES_TOO),
    )


MANY_OF_OPTIMIZER: Final = 50
"""So many kernels a step: AdamW with foreach=True takes 19 for 120 tensors, with fused=True 6."""

CHANGE_OF_OPTIMIZER: Final = (
    "fused=True: torch.optim.AdamW(..., fused=True) updates hundreds of tensors in one kernel",
    "foreach=True where an optimizer has no fused version",
    "an optimizer of your own: torch._foreach_mul_, torch._foreach_addcdiv_, ...; or"
    " torch.compile(optimizer.step)",
)


WITH_FUSED: Final = r"#(Adam|AdamW|SGD|Adagrad)\.step"
"""What torch.profiler calls the steps of optimizers that have a fused version."""

MANY_IN_GROUPS: Final = 200
"""So many short kernels of foreach a step: 152 groups of one tensor each have 707 (a ViT, H200,
2026-11-29), one group of 120 tensors has 19 in all."""

CHANGE_OF_GROUPS: Final = (
    CHANGE_OF_OPTIMIZER[0],
    "one parameter group for all tensors with the same settings: each group has its own kernels",
    "torch.compile(optimizer.step)",
)


CHANGE_OF_OTHER_OPTIMIZER: Final = (
    "torch.compile(optimizer.step): this optimizer is none of PyTorch's own",
    "its step written with torch._foreach_mul_, torch._foreach_addcdiv_, ...: they take lists of"
    " tensors",
    "torch.optim.AdamW(..., fused=True) where it trains as well",
)

OPTIMIZERS: Final = r"[/\\]torch[/\\]optim[/\\]\w+\.py$"
"""Files of PyTorch's own optimizers …"""

AROUND_OPTIMIZERS: Final = r"[/\\](?:optimizer|lr_scheduler)\.py$"
"""… and those of them that run around the steps of all optimizers, of other libraries too."""

MANY_MATMULS: Final = 10
"""So many a step in an optimizer's range: it computes with matrices, as Muon and Shampoo do."""

CHANGE_OF_MATRICES: Final = (
    "stack the matrices of one shape, and compute with all of them at once: torch.stack, torch.bmm",
    CHANGE_OF_OPTIMIZER[-1],
)


def optimizer_not_fused(subject: JudgedReport) -> Iterator[Finding]:
    """Elementwise kernels in an optimizer's range, or runs with AdamW's arithmetic tensor by tensor
    (`addcdiv`, `lerp`); or those of foreach (`multi_tensor_apply`) with few tensors each."""
    rows = subject.kernels.filter(pl.col("job") == "optimizer").with_columns(gain_as_few())
    count = subject.per_step(len(rows))
    if count < MANY_OF_OPTIMIZER:
        yield from _in_groups(subject)
        return
    change = CHANGE_OF_OPTIMIZER if _is_of_pytorch(subject, rows) else CHANGE_OF_OTHER_OPTIMIZER
    finding = _of_optimizer(subject, rows, f"tensor by tensor: {count:,} kernels", change)
    matmuls = _matmuls_in(subject, finding.phase)
    if matmuls >= MANY_MATMULS:
        beside = f"it also multiplies matrices there, {number(matmuls)} times a step"
        evidence = (*finding.evidence, beside)
        finding = replace(finding, change=CHANGE_OF_MATRICES, evidence=evidence)
    yield finding


def _is_of_pytorch(subject: JudgedReport, rows: pl.DataFrame) -> bool:
    """Whether PyTorch's own optimizer launched most of these kernels, or nobody knows who did."""
    stacks = subject.timeline.launch_stacks
    if stacks is None:
        return True
    launched = stacks[subject.view.events.ops["call"][rows["op"]]]["stack"].drop_nulls()
    file = pl.col("file").cast(pl.String)
    own = file.str.contains(OPTIMIZERS) & ~file.str.contains(AROUND_OPTIMIZERS)
    of_pytorch = subject.view.trace.frames.filter(own)["stack"].unique()
    return 2 * int(launched.is_in(of_pytorch.implode()).sum()) >= len(launched)


def _in_groups(subject: JudgedReport) -> Iterator[Finding]:
    """Short kernels of foreach: an optimizer with many groups of few parameters."""
    foreach = matching(subject.kernels["name"], "multi_tensor_apply_kernel")
    short = subject.kernels.filter(foreach, pl.col("ns") < TINY_NS).with_columns(gain_as_few())
    count = subject.per_step(len(short))
    if count < MANY_IN_GROUPS:
        return
    kernels = f"{count:,} kernels under {duration(TINY_NS)}"
    yield _of_optimizer(subject, short, f"group by group: {kernels}", CHANGE_OF_GROUPS)


def _of_optimizer(
    subject: JudgedReport, rows: pl.DataFrame, updates: str, change: tuple[str, ...]
) -> Finding:
    """The finding on these kernels of an optimizer, with their launches as one where the optimizer
    has a range of its own; its idle time counts.

    Args:
        subject: the judged part.
        rows: rows of `subject.kernels`, with `gain_ns`.
        updates: how the optimizer updates, and with how many kernels.
        change: what to do.
    """
    finding = kernel_finding(
        subject,
        rows,
        rule="optimizer-not-fused",
        title=f"the optimizer updates {updates}{' a step' if subject.of_steps else ''}",
        change=change,
        evidence=(in_words(subject, rows),),
    )
    if named := re.search(WITH_FUSED, finding.phase):
        mine = tuple(text.replace("AdamW", named[1]) for text in finding.change)
        finding = replace(finding, change=mine)
    if "optim" not in finding.phase.lower() or finding.changes is None:
        return finding
    phases = subject.tables.phases.filter(pl.col("path") == finding.phase)
    idle_ns = subject.per_step(int(phases["idle_ns"].sum()))
    changes = Changes(graphs=(finding.phase,), scaled=finding.changes.scaled)
    return replace(finding, changes=changes, size_ns=finding.size_ns + idle_ns)


def _matmuls_in(subject: JudgedReport, phase: str) -> int:
    """How many matmuls a step a phase has."""
    phases = subject.view.attribution.name_of(subject.kernels["node"])
    classes = subject.kernels["class"].cast(pl.String)
    return subject.per_step(int(((phases == phase) & (classes == "matmul")).sum()))
