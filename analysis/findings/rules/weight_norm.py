"""`weight-norm`: weights are computed again in each step, though nothing trains.

Weight norm keeps a direction and a length of each weight for the optimizer, and computes the weight
from them in each forward pass.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, trains
from nsysflow.analysis.findings.launches import host_of_launches, without_launches
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.replay.changes import Changes

FORWARD: Final = r"\bweight_norm_fwd_(?:first|last)_dim_kernel\b"
"""PyTorch's kernels, of a norm over all but the first or the last dimension. Over another one, and
for spectral norm, it takes kernels that much else has, too."""

CHANGE: Final = (
    "after loading, call torch.nn.utils.parametrize.remove_parametrizations(module, 'weight') for"
    " each such module",
    "if the older torch.nn.utils.weight_norm made it: remove_weight_norm(module)",
    "if the model still trains, evaluate it within torch.nn.utils.parametrize.cached()",
)


def weight_norm(subject: JudgedReport) -> Iterator[Finding]:
    """The kernels of weight norm, their launches and the host code before these, in steps without a
    backward pass and an optimizer.

    A vocoder with 78 such weights took 10.1 ms a request, and 6.15 ms without (H200, 2026-11-28).
    """
    kernels = subject.kernels
    normed = matching(kernels["name"], FORWARD)
    if not subject.of_steps or not normed.any() or trains(subject):
        return
    rows = kernels.filter(normed).with_columns(pl.col("ns").alias("gain_ns"))
    host = host_of_launches(subject, rows["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    found = kernel_finding(
        subject,
        rows,
        rule="weight-norm",
        title=f"weight norm computes {subject.per_step(len(rows)):,} weights again in each step",
        change=CHANGE,
        evidence=(
            f"no backward pass and no optimizer in these steps: {in_words(subject, rows)}",
            f"their launches and the code before each take the host {subject.spent(own_ns)}",
        ),
        table="launches",
    )
    changes = without_launches(subject, host)
    yield replace(
        found,
        size_ns=found.size_ns + own_ns,
        changes=Changes.together([changes, *([found.changes] if found.changes else [])]),
    )
