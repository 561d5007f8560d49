"""`unused-gradients`: weights get gradients that no optimizer uses.

No recording tells that: what ran in the program looked at a few of its steps (spec §12.13).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, kernels_by_pass
from nsysflow.analysis.findings.seen_modules import backward_of, called_at, forward_of
from nsysflow.analysis.trace import UnusedModule
from nsysflow.base.units import duration, number

UNUSED_PCT: Final = 1.0
"""Less of the kernel time is not worth a line."""

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
    modules = subject.timeline.trace.modules(UnusedModule)
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    backward = kernels.filter("backward")
    for module in modules:
        alone = sum(module.phase == other.phase for other in modules) == 1
        own, weight = forward_of(subject, forward, module, alone=alone)
        rows = backward_of(backward, forward, own, weight, *_for_nothing(module))
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
    source = called_at(subject, module, own)
    if not source:
        return finding
    title = f"{module.name}, called at {source}, {does}"
    return replace(finding, title=title, source=source, via="")


def _for_nothing(module: UnusedModule) -> tuple[float, float]:
    """Of which share of its calls all of the backward pass is for nothing, and of which only the
    gradients of weights are."""
    calls = module.calls or 1
    whole = min(1.0, module.whole / calls)
    part = min(1.0 - whole, module.part / calls) if module.whole + module.part else 1.0
    return whole, part


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
