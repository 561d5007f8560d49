"""Copies to the GPU that may bring again what it had: an index that is used several times, and what
a model keeps on the host.

A module's plain attributes stay where they are when it goes to the GPU, and each forward copies
them. Buffers go with it.
"""

from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import code_before, with_less_code
from nsysflow.analysis.findings.stall_findings import Stalls
from nsysflow.analysis.phases.names import LOADS_DATA
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import size

INDEXES: Final = "index_elementwise_kernel"
GATHERS: Final = "vectorized_gather_kernel"
"""PyTorch's kernels of tensor[index]; the second is that of embeddings, too."""

FEWEST_USES: Final = 4
"""So many copies a step at one place are of an index that is used for several tensors."""

OF_ONE_SIZE: Final = 0.9
"""So many of the copies are of one size, as copies of the same index are."""

FORWARD: Final = r"(?:^|/)forward(?:/|$)"
"""Phases of a model that are no loss and no copy of a batch."""

IN_FORWARD: Final = r" in forward$"
"""Lines of a module's own forward."""

ALIKE: Final = 0.9
"""In so many of the steps the copies have the same sizes: an epoch's last batch may be smaller."""


def copies_at(subject: JudgedReport, stalls: Stalls) -> pl.DataFrame:
    """The copies to the GPU at a place: of its line, or of a phase without lines."""
    up = subject.view.copies.filter(pl.col("direction") == "HtoD", pl.col("call").is_not_null())
    at = (pl.col("source") == stalls.source) & (pl.col("via") == stalls.via)
    of_phase = pl.col("phase").cast(pl.String).fill_null("") == stalls.phase
    return with_lines(subject, up).filter(at if stalls.line else at & of_phase)


def with_lines(subject: JudgedReport, copies: pl.DataFrame) -> pl.DataFrame:
    """Copies with `source` and `via` of their calls, empty where none is known."""
    lines = subject.view.events.calls[["source", "via"]][copies["call"]]
    return copies.hstack(lines.select(pl.col("source", "via").cast(pl.String).fill_null("")))


def may_stay(subject: JudgedReport, copies: pl.DataFrame) -> bool:
    """Whether a model copies the same sizes to the GPU in each step. Most of these bytes are then
    copied in a forward, and not where data is loaded.

    Args:
        subject: the judged part.
        copies: with their lines.
    """
    if copies.is_empty() or not subject.of_steps:
        return False
    phase = pl.col("phase").cast(pl.String).fill_null("")
    forward = phase.str.contains(FORWARD) | pl.col("source").str.contains(IN_FORWARD)
    inside = copies.filter(forward & ~phase.str.contains(LOADS_DATA))
    if 2 * int(inside["bytes"].sum()) <= int(copies["bytes"].sum()):
        return False
    begun = subject.judged_steps["start_ns"].unique().sort()
    step = begun.search_sorted(copies["start_ns"], side="right").alias("step")
    sizes = pl.col("bytes").sort().cast(pl.String).str.join(" ")
    steps = copies.group_by(step).agg(sizes)["bytes"].value_counts()
    return int(steps["count"].max()) >= ALIKE * subject.steps  # type: ignore[arg-type]


def kept_there(subject: JudgedReport, finding: Finding, copies: pl.DataFrame) -> Finding:
    """The finding on such copies. Their waits, the copies and the code before them may all go."""
    assert finding.changes is not None
    every = subject.view.copies.filter(pl.col("direction") == "HtoD")
    copied_ns, all_ns = (
        int(rows.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item())
        for rows in (copies, every)
    )
    host = code_before(subject, copies["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    gone = Changes(scaled=(("memcpy HtoD", 1 - copied_ns / all_ns if all_ns else 0.0),))
    return replace(
        finding,
        evidence=(
            *finding.evidence,
            f"{size(subject.per_step(int(copies['bytes'].sum())))} take the GPU"
            f" {subject.spent(subject.per_step(copied_ns))}",
            f"the code before them takes the host {subject.spent(own_ns)}",
        ),
        size_ns=finding.size_ns + subject.per_step(copied_ns) + own_ns,
        changes=Changes.together([finding.changes, gone, with_less_code(subject, host)]),
        exact=False,
        takes="line",
    )


def copies_of_index(subject: JudgedReport, stalls: Stalls) -> pl.DataFrame:
    """The copies to the GPU at a place where most are of one size, and a kernel that indexes comes
    right behind them; no rows elsewhere.

    Args:
        subject: the judged part.
        stalls: a line's; where no line is known, nothing is said.
    """
    view = subject.view
    copies = copies_at(subject, stalls) if stalls.source else view.copies.clear()
    if subject.per_step(len(copies)) < FEWEST_USES:
        return copies.clear()
    stream = ["device_no", "process", "stream"]
    behind = pl.col("short_name").cast(pl.String).shift(-1).over(stream, order_by="start_ns")
    kernels = view.ops.select("op", behind.alias("behind")).join(copies, on="op", how="semi")
    indexed = int(kernels["behind"].is_in([INDEXES, GATHERS]).sum())
    of_one_size = len(copies.filter(pl.col("bytes") == pl.col("bytes").mode().first()))
    alike = of_one_size >= OF_ONE_SIZE * len(copies) and 2 * indexed >= len(copies)
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
