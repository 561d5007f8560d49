"""Indices that the host keeps: each use copies them to the GPU, a part of `pageable-copy`.

A NumPy array, a list or a tensor on the CPU may index a tensor on the GPU. PyTorch converts and
copies it each time, and waits for that.
"""

from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import code_before, with_less_code
from nsysflow.analysis.findings.stall_findings import Stalls
from nsysflow.analysis.replay.changes import Changes

INDEXES: Final = "index_elementwise_kernel"
GATHERS: Final = "vectorized_gather_kernel"
"""PyTorch's kernels of tensor[index]; the second is that of embeddings, too."""

FEWEST: Final = 4
"""So many copies a step at one place are of an index that is used for several tensors."""

ALIKE: Final = 0.9
"""So many of the copies are of one size, as copies of the same index are."""

CHANGE: Final = (
    "send the index once: index = torch.as_tensor(index, device='cuda'), before it indexes several"
    " tensors: an array, a list or a tensor on the CPU is copied at each use",
    "make it there: torch.randperm(count, device='cuda'); slices of it are views",
    "tensors of which the same rows are taken: index them as one",
)


def copies_of_index(subject: JudgedReport, stalls: Stalls) -> pl.DataFrame:
    """The copies to the GPU at a place where most are of one size, and a kernel that indexes comes
    right behind them; no rows elsewhere.

    Args:
        subject: the judged part.
        stalls: a line's; where no line is known, nothing is said.
    """
    view = subject.view
    up = view.copies.filter(pl.col("direction") == "HtoD", pl.col("call").is_not_null())
    here = view.events.calls.select(pl.col("source", "via").cast(pl.String).fill_null(""))[
        up["call"]
    ]
    at = (here["source"] == stalls.source) & (here["via"] == stalls.via)
    copies = up.filter(at) if stalls.source else up.clear()
    if subject.per_step(len(copies)) < FEWEST:
        return copies.clear()
    stream = ["device_no", "process", "stream"]
    behind = pl.col("short_name").cast(pl.String).shift(-1).over(stream, order_by="start_ns")
    kernels = view.ops.select("op", behind.alias("behind")).join(copies, on="op", how="semi")
    indexed = int(kernels["behind"].is_in([INDEXES, GATHERS]).sum())
    of_one_size = len(copies.filter(pl.col("bytes") == pl.col("bytes").mode().first()))
    alike = of_one_size >= ALIKE * len(copies) and 2 * indexed >= len(copies)
    return copies if alike and INDEXES in kernels["behind"] else copies.clear()


def sent_once(subject: JudgedReport, finding: Finding, copies: pl.DataFrame) -> Finding:
    """The finding on these copies; besides their waits, what the host does before all but one of
    them may go.

    PPO with 11 tensors took 48.7 ms for 8 minibatches, and 45.6 with the index on the GPU (H200,
    2026-11-30).
    """
    if finding.changes is None or finding.sure is not None:
        return finding
    count = subject.per_step(len(copies))
    host = code_before(subject, copies["op"])
    host = host.with_columns((pl.col("own_ns") * (count - 1) // count).alias("own_ns"))
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    spent = f"the code before them takes the host {subject.spent(own_ns)}"
    return replace(
        finding,
        evidence=(*finding.evidence, spent),
        size_ns=finding.size_ns + own_ns,
        changes=Changes.together([finding.changes, with_less_code(subject, host)]),
        sure=finding.changes,
        ends=("only the waits go", "the code before them goes, too"),
    )
