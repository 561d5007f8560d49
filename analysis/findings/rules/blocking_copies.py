"""`pageable-copy` and `blocking-pinned-copy`: the host waits until data has been copied.

From pageable memory the driver copies twice, through a pinned buffer of its own, and the host waits
for the first copy. From pinned memory the GPU copies by itself, and the host goes on, if the
program lets it.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.stall_findings import stalls_of
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.base.units import size

PAGEABLE: Final = (
    "pin_memory=True in the DataLoader (or tensor.pin_memory()), and .to(device,"
    " non_blocking=True)",
    "copy many small tensors as one",
    "copy the next batch on a stream of its own while this one computes",
)
PINNED: Final = (
    "pass non_blocking=True to .to() and .copy_(): the memory is pinned already",
    "for a copy to the host, wait for an event when the data is needed, not at once",
)


PINNED_BYTES_PER_S: Final = 25e9
"""What pinned copies reach at least on PCIe 4 and later; an H200 copies 50 GB/s (h2d-pinned)."""

SLOW_BYTES_PER_S: Final = 10e9
"""A pageable copy below this waits for the driver's own copy on the host: 5 GB/s for 256 MB (H200,
2026-11-22). Small ones go through a pinned buffer at full speed."""

LARGE_BYTES: Final = 4 << 20
"""Smaller copies say nothing of a rate: 8 bytes take 1.4 us, 5 MB/s (metrics-each_step)."""


def blocking_copies(subject: JudgedReport) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits for copies, and each
    phase whose copies are slow because their memory is pageable."""
    slow = list(_slow_copies(subject))
    yield from slow
    phases = {finding.phase for finding in slow}
    for stalls in stalls_of(subject, "pageable"):
        what = "copy of pageable memory"
        finding = stalls.finding(subject, rule="pageable-copy", what=what, change=PAGEABLE)
        if finding.phase not in phases:
            yield finding
    for stalls in stalls_of(subject, "pinned"):
        what = "copy of pinned memory that the host waits for"
        yield stalls.finding(subject, rule="blocking-pinned-copy", what=what, change=PINNED)


def _slow_copies(subject: JudgedReport) -> Iterator[Finding]:
    """The phases in which pageable copies take long on the GPU while nothing computes."""
    label = pl.col("copy_label").cast(pl.String)
    copies = subject.tables.copies.filter(label.str.starts_with("pageable"), pl.col("gpu_ns") > 0)
    rate = 1e9 * pl.col("bytes") / pl.col("gpu_ns")
    slow = copies.with_columns(rate.alias("bytes_per_s")).filter(
        pl.col("bytes_per_s") < SLOW_BYTES_PER_S,
        pl.col("bytes") >= LARGE_BYTES * pl.col("count"),
        pl.col("exposed_ns") > 0,
    )
    for row in slow.iter_rows(named=True):
        yield _slow_copy(subject, row)


def _slow_copy(subject: JudgedReport, row: dict[str, Any]) -> Finding:
    factor = row["bytes_per_s"] / PINNED_BYTES_PER_S
    exposed_ns, idle_ns = (
        subject.per_step(row[column]) for column in ("exposed_ns", "induced_idle_ns")
    )
    rate = f"{size(round(row['bytes_per_s']))}/s"
    at = row["phase"] or OUTSIDE
    return Finding(
        rule="pageable-copy",
        title=f"{row['direction']} copy of pageable memory, {rate}{place(row['phase'])}",
        change=PAGEABLE,
        evidence=(
            f"{size(subject.per_step(row['bytes']))}{subject.a_step} at {rate}; pinned memory"
            f" reaches at least {size(round(PINNED_BYTES_PER_S))}/s",
            f"nothing computes meanwhile for {subject.spent(exposed_ns)}",
        ),
        table="copies",
        size_ns=exposed_ns + idle_ns,
        steps=subject.steps,
        changes=Changes(
            removed=(Removal(kind="copy", at=at), Removal(kind="sync", at=at)),
            scaled=((f"memcpy {row['direction']}", round(factor, 3)),),
        ),
        exact=False,
        at_most_ns=idle_ns + round(exposed_ns * (1 - factor)),
        process=row["process"],
        device=row["device"],
        phase=row["phase"] or "",
        culprit=f"memcpy {row['direction']}",
    )
