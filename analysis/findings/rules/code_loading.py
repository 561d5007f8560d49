"""`code-loading`: the program still builds or loads GPU code when its steps should be steady.

A kernel is loaded when it is first launched. Where shapes change from step to step, libraries and
torch.compile build new kernels again and again: cuDNN's attention took 41 ms for each token of a
growing KV cache (h200-decode-samples).
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration

CHANGE: Final = (
    "keep shapes the same from step to step: pad to a few lengths, a static KV cache",
    "run every shape once before the loop; torch.compile(dynamic=True) where they must vary",
    "where cuDNN builds attention for each length: torch.backends.cuda.enable_cudnn_sdp(False)",
)


def code_loading(subject: JudgedReport) -> Iterator[Finding]:
    """Steady steps in which the GPU waits while code is built and loaded, and goes on to."""
    pauses = subject.pauses.filter("loads_code")
    if pauses.is_empty() or not subject.of_steps or subject.is_unlike_later:
        return
    size_ns = subject.worst_ns(pauses, "ns")
    steps = subject.steps_with(pauses["start_ns"])
    most = pauses.group_by("phase").agg(pl.col("ns").sum()).sort("ns", "phase")["phase"][-1]
    calls = subject.tables.gap_summary.filter(pl.col("cause") == "module_load")
    calls = (
        calls.group_by("culprit").agg(pl.col("gaps", "total_ns").sum()).sort("total_ns", "culprit")
    )
    culprit, _, loading_ns = calls.row(-1)
    yield Finding(
        rule="code-loading",
        title=f"GPU code is built and loaded in the loop: {culprit}{place(most)}",
        change=CHANGE,
        evidence=(
            f"{steps} of {subject.steps} steps load code; the GPU waits {duration(size_ns)} a step",
            f"loading itself takes {duration(subject.per_step(loading_ns))} a step in {culprit};"
            " the rest is the host code around it, which builds what is loaded",
            *running(subject, most).evidence,
        ),
        table="gap_summary",
        size_ns=size_ns,
        steps=steps,
        at_most_ns=size_ns,
        phase="" if most == OUTSIDE else most,
        culprit=culprit,
    )
