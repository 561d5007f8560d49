"""`optimizer-not-fused`: an optimizer that updates one tensor after the other."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport, in_words, kernel_finding
from nsysflow.analysis.findings.rules.tiny_kernels import gain_as_few
from nsysflow.analysis.replay.changes import Changes

MANY: Final = 50
"""So many kernels a step: AdamW with foreach=True takes 19 for 120 tensors, with fused=True 6."""

CHANGE: Final = (
    "fused=True: torch.optim.AdamW(..., fused=True) updates hundreds of tensors in one kernel",
    "foreach=True where an optimizer has no fused version",
    "an optimizer of your own: torch._foreach_mul_, torch._foreach_addcdiv_, ...; or"
    " torch.compile(optimizer.step)",
)


def optimizer_not_fused(subject: JudgedReport) -> Iterator[Finding]:
    """Elementwise kernels in an optimizer's range, or runs with AdamW's arithmetic tensor by tensor
    (`addcdiv`, `lerp`). `multi_tensor_apply` is foreach already."""
    rows = subject.kernels.filter(pl.col("job") == "optimizer").with_columns(gain_as_few())
    count = subject.per_step(len(rows))
    if count < MANY:
        return
    finding = kernel_finding(
        subject,
        rows,
        rule="optimizer-not-fused",
        title=f"the optimizer updates tensor by tensor: {count:,} kernels"
        f"{' a step' if subject.of_steps else ''}",
        change=CHANGE,
        evidence=(in_words(subject, rows),),
    )
    yield _with_launches(subject, finding)


def _with_launches(subject: JudgedReport, finding: Finding) -> Finding:
    """With the launches as one where the optimizer has a range of its own; its idle time counts."""
    if "optim" not in finding.phase.lower() or finding.changes is None:
        return finding
    phases = subject.tables.phases.filter(pl.col("path") == finding.phase)
    idle_ns = subject.per_step(int(phases["idle_ns"].sum()))
    changes = Changes(graphs=(finding.phase,), scaled=finding.changes.scaled)
    return replace(finding, changes=changes, size_ns=finding.size_ns + idle_ns)
