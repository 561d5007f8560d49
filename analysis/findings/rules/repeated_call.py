"""`repeated-call`: a module is called again with the very same input within a step.

No recording tells that: what ran in the program looked at a few of its steps (spec §12.14).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, kernels_by_pass
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.seen_modules import backward_of, called_at, forward_of
from nsysflow.analysis.trace import RepeatedModule
from nsysflow.base.units import duration, number

REPEATED_PCT: Final = 2.0
"""Less of the kernel time is not worth a line."""

CHANGE_OF_REPEATED: Final = (
    "call it once, and hand the result to all that need it: h = encoder(x); actor(h), critic(h)",
    "where methods call it themselves: give them h as an argument, or let one method return both",
)

CHANGE_OF_LEARNING: Final = (
    "several losses of one result: add them up, so that one backward pass serves them all"
)


def repeated_call(subject: JudgedReport) -> Iterator[Finding]:
    """Calls of a module that compute what another call of their step has computed.

    PPO whose actor and critic each ran their encoder took 77 ms an iteration, and 67 with one call
    of it for both (H200, 2026-11-30).
    """
    modules = subject.timeline.trace.modules(RepeatedModule)
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    backward = kernels.filter("backward")
    for module in modules:
        if not 0 < module.repeated <= module.calls:
            continue
        others = sum(module.phase == other.phase for other in modules) > 1
        alone = module.classes == module.within and not others
        own, weight = forward_of(subject, forward, module, alone=alone)
        again = weight * module.repeated / module.calls
        gain = (pl.col("ns") * again).cast(pl.Int64).alias("gain_ns")
        learning = min(module.learning, module.repeated) / module.calls
        behind = backward_of(backward, forward, own, weight, learning)
        rows = pl.concat([own.with_columns(gain).filter(pl.col("gain_ns") > 0), behind])
        if 100 * int(rows["gain_ns"].sum()) >= REPEATED_PCT * int(kernels["ns"].sum()) > 0:
            yield _repeated(subject, module, own, rows, weight)


def _repeated(
    subject: JudgedReport,
    module: RepeatedModule,
    own: pl.DataFrame,
    rows: pl.DataFrame,
    weight: float,
) -> Finding:
    part_of = "by its share of the weights" if weight < 1 else in_words(subject, own)
    behind_ns = subject.worst_ns(rows.filter("backward"), "gain_ns")
    behind = f"; by estimate, {duration(behind_ns)} of the backward pass is of repeated calls"
    title = f"{module.name} is called {_times(module)} with the same input"
    finding = kernel_finding(
        subject,
        rows,
        rule="repeated-call",
        title=title,
        change=(*CHANGE_OF_REPEATED, *([CHANGE_OF_LEARNING] if module.learning else [])),
        evidence=(
            f"{number(module.repeated)} of {number(module.calls)} calls repeat another one of their"
            f" step: the same tensors, unchanged, in the same modes (seen in {module.steps} steps)",
            *([f"the calls come by {' and '.join(module.ways)}"] if module.ways else []),
            f"its forward pass: {part_of}{behind if behind_ns else ''}",
        ),
        at=None if weight < 1 else own,
    )
    source = called_at(subject, module, own)
    if source:
        finding = replace(finding, title=f"{title}: {source}", source=source, via="")
    return counting_launches(subject, finding, rows["op"], shares=rows["gain_ns"] / rows["ns"])


def _times(module: RepeatedModule) -> str:
    """`twice`, where each call is repeated once."""
    first = module.calls - module.repeated
    if first <= 0 or module.calls % first:
        return "again"
    times = module.calls // first
    return "twice" if times == 2 else f"{number(times)} times"
