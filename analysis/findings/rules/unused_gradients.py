"""`unused-gradients`: weights get gradients that no optimizer uses.

No recording tells that: what ran in the program looked at a few of its steps (spec §12.13).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.host_functions import frames_of_code, stacks_at
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, kernels_by_pass
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.trace import UnusedModule
from nsysflow.base.units import duration, number

UNUSED_PCT: Final = 1.0
"""Less of the kernel time is not worth a line."""

OF_WEIGHTS: Final = 0.5
"""A product has two gradients, that of its weights and that of its input."""

TWICE: Final = 2
"""Both of them together take as long as two such products of the forward pass, or longer."""

SHARED_PHASES: Final = ("forward", "eval")
"""Ranges of models; others are of one class."""

CHANGE_OF_UNUSED: Final = (
    "call .requires_grad_(False) on it after it is made: backward then computes no gradients of its"
    " weights, and none at all where its input needs none",
    "where only its output is wanted, as that of a teacher or of a target: with torch.no_grad():",
)

CHANGE_OF_THROWN: Final = (
    "for p in module.parameters(): p.requires_grad_(False) around the pass of the other optimizer,"
    " and True behind it",
    "or loss.backward(inputs=[*other.parameters()]): gradients of no others",
    "where its output is only an input of the other network in that pass: output.detach()",
)


def unused_gradients(subject: JudgedReport) -> Iterator[Finding]:
    """The part of the backward pass that computes gradients which no optimizer uses.

    Super-resolution with a VGG as its loss took 32.4 ms a step, and 22.9 once the VGG's weights
    required no gradients (H200, 2026-11-30).
    """
    notes = subject.timeline.trace.notes
    modules = [note.module for note in notes if note.module is not None]
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    backward = kernels.filter("backward")
    for module in modules:
        alone = sum(module.phase == other.phase for other in modules) == 1
        own, weight = _forward_of(subject, forward, module, alone=alone)
        rows = _for_nothing(backward, forward, own, weight, module)
        gain_ns = int(rows["gain_ns"].sum())
        if 100 * gain_ns >= UNUSED_PCT * int(kernels["ns"].sum()) > 0:
            yield _unused(subject, module, own, rows, weight)


def _unused(
    subject: JudgedReport,
    module: UnusedModule,
    own: pl.DataFrame,
    rows: pl.DataFrame,
    weight: float,
) -> Finding:
    part_of = "by its share of the weights" if weight < 1 else in_words(subject, own)
    gain = duration(subject.worst_ns(rows, "gain_ns"))
    unread = "are cleared unread" if module.thrown else "no optimizer uses"
    does = f"gets gradients that {unread}"
    finding = kernel_finding(
        subject,
        rows,
        rule="unused-gradients",
        title=f"{module.name} {does}",
        change=CHANGE_OF_THROWN if module.thrown else CHANGE_OF_UNUSED,
        evidence=(
            f"it has {module.weights:,} weights"
            + (
                "; their optimizer clears what the pass for another one computes"
                if module.thrown
                else " in no optimizer, and each backward pass adds to their gradients"
            )
            + f" (seen in {module.steps} steps)",
            *_calls(module),
            f"its forward pass: {part_of}; its part of the backward pass is estimated from that",
            f"by estimate, {gain} of the backward pass is for nothing",
        ),
        at=None if weight < 1 else own,
    )
    source = _called_at(subject, module, own)
    if not source:
        return finding
    title = f"{module.name}, called at {source}, {does}"
    return replace(finding, title=title, source=source, via="")


def _called_at(subject: JudgedReport, module: UnusedModule, own: pl.DataFrame) -> str:
    """The program's line that calls the module for most of its kernels, of those whose gradients
    are for nothing if one of these is known; empty where none is known."""
    inside = _frames_of(subject, module).group_by("stack").agg(pl.col("depth").max().alias("of"))
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN).join(inside, on="stack")
    callers = frames.filter(pl.col("depth") > pl.col("of")).sort("stack", "depth")
    callers = callers.unique("stack", keep="first", maintain_order=True)
    if callers.is_empty():
        return ""
    known = _stacks_of(subject, own).to_frame("stack").with_columns(own["ns"])
    lines = known.join(callers, on="stack").group_by(pl.col("line").cast(pl.String)).agg("ns")
    place = pl.col("line").str.extract(r"([^/\\]+:\d+) in ")
    noted = place.is_in(module.lines).fill_null(value=False).alias("noted")
    lines = lines.with_columns(pl.col("ns").list.sum(), noted)
    return next(iter(lines.sort("noted", "ns", "line", descending=True)["line"]), "")


def _calls(module: UnusedModule) -> Iterator[str]:
    """How many calls a step has, and what of their backward passes is for nothing."""
    if not module.whole + module.part or not module.steps:
        return  # torch.compile ran it as a part of something else
    calls, whole, part = (
        number(count // module.steps) if count >= module.steps else f"{count / module.steps:.1f}"
        for count in (module.calls, module.whole, module.part)
    )
    parts = [f"in {whole} no input needs a gradient: the whole backward pass is for nothing"] * (
        module.whole > 0
    ) + [
        f"in {part} an input does: only the weights' gradients are, about half of the products"
    ] * (module.part > 0)
    yield f"calls a step: {calls}; {'; '.join(parts)}"


def _forward_of(
    subject: JudgedReport, forward: pl.DataFrame, module: UnusedModule, *, alone: bool
) -> tuple[pl.DataFrame, float]:
    """The kernels of the module's forward pass, and which part of their time is its: by a range of
    its own, by the functions that launched them, else by its share of the weights."""
    attribution = subject.view.attribution
    range_of = rf"(?:^|/){re.escape(module.phase)}(?:/|$)"
    in_range = attribution.paths["joined"].str.contains(range_of)
    paths = attribution.path_of(forward["node"])
    in_phase = forward.filter(pl.lit(in_range[paths]).fill_null(value=False))
    if alone and module.phase not in SHARED_PHASES and len(in_phase):
        return in_phase, 1.0
    if module.places and subject.timeline.launch_stacks is not None:
        stacks = _frames_of(subject, module)["stack"].unique()
        within = _stacks_of(subject, forward).is_in(stacks.implode()).fill_null(value=False)
        if within.any():
            return forward.filter(within), 1.0
    return in_phase, module.weights / module.of if module.of else 0.0


def _stacks_of(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """The stack in which each kernel was launched; null where it is not known."""
    return stacks_at(subject, subject.view.events.ops["call"][kernels["op"]])


def _frames_of(subject: JudgedReport, module: UnusedModule) -> pl.DataFrame:
    """The frames in the `forward` of the module's classes."""
    file = pl.col("file").cast(pl.String).str.extract(r"([^/\\]+)$")
    found = [
        (file == read["file"]) & pl.col("line").is_between(int(read["first"]), int(read["last"]))
        for place in module.places
        if (read := re.fullmatch(r"(?P<file>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", place))
    ]
    return subject.timeline.trace.frames.filter(pl.any_horizontal(pl.lit(value=False), *found))


def _for_nothing(
    backward: pl.DataFrame,
    forward: pl.DataFrame,
    own: pl.DataFrame,
    weight: float,
    module: UnusedModule,
) -> pl.DataFrame:
    """The kernels of the backward pass, with the module's useless part of each as `gain_ns`: of
    products, and of all others, it has the share that it has in the forward pass. Of products it
    has at least twice the time that they take there, as some of that may have no backward pass."""
    calls = module.calls or 1
    whole = min(1.0, module.whole / calls)
    part = min(1.0 - whole, module.part / calls) if module.whole + module.part else 1.0
    product = pl.col("class").is_in([*MATRIX_CLASSES])
    own_ns, forward_ns, backward_ns = (
        [int(kernels.filter(kind)["ns"].sum()) for kind in (product, ~product)]
        for kernels in (own, forward, backward)
    )
    shares = [weight * one / max(1, all_ns) for one, all_ns in zip(own_ns, forward_ns, strict=True)]
    of_backward = TWICE * weight * own_ns[0] / max(1, backward_ns[0])
    shares[0] = min(1.0, max(shares[0], of_backward))
    sums_up = pl.col("class") == "reduction"  # gradients of biases
    gain = (
        pl.when(product)
        .then(shares[0] * (whole + OF_WEIGHTS * part))
        .when(sums_up)
        .then(shares[1] * (whole + part))
        .otherwise(shares[1] * whole)
    )
    rows = backward.with_columns((pl.col("ns") * gain).cast(pl.Int64).alias("gain_ns"))
    return rows.filter(pl.col("gain_ns") > 0)
