"""`sync-in-loop` and `scalar-readback`: the host waits for the GPU in every step."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.places import place
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.replay.changes.declared import Changes, Removal

SCALAR_BYTES: Final = 1 << 16
"""A copy to the host of at most this size reads a value; a larger one moves data."""

READ_BACK: Final = (
    "keep the value on the GPU: torch.where, clamp or a mask instead of `if tensor`",
    "read it some steps later: append the tensor, call .item() once every 100 steps",
    "copy it to pinned memory with non_blocking=True, and look when its event is done",
)
WAIT: Final = (
    "remove the wait: .item(), .cpu(), `if tensor`, print(tensor) and synchronize() all wait",
    "keep the value on the GPU, or read it some steps later",
    "time with CUDA events instead of synchronize()",
)


def waits(subject: Subject) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits with idle time behind.

    A read-back of a value is a small copy to the host, with the wait for it; `.item()` is one.
    """
    stalls = subject.tables.induced.filter(
        pl.col("kind").is_in(["sync", "blocking_copy"]), pl.col("induced_idle_ns") > 0
    ).with_columns(
        pl.col("source").fill_null(""),
        ((pl.col("direction") == "DtoH") & (pl.col("bytes") <= SCALAR_BYTES))
        .fill_null(value=False)
        .alias("reads"),
    )
    # a blocking copy that is no read-back is the copies' rule's
    stalls = stalls.filter((pl.col("kind") == "sync") | pl.col("reads"))
    at = pl.when(pl.col("source") == "").then("phase").otherwise(pl.lit("")).alias("at")
    for (source, _), rows in sorted(stalls.group_by("source", at)):
        yield _finding(subject, str(source), rows)


def _finding(subject: Subject, source: str, rows: pl.DataFrame) -> Finding:
    most = rows.group_by("phase", "api").agg(pl.col("induced_idle_ns").sum())
    first: dict[str, Any] = most.sort("induced_idle_ns", "phase", "api").row(-1, named=True)
    reads = bool(rows["reads"].any())
    calls = rows.unique("call")
    steps = subject.steps_with(calls["start_ns"])
    idle_ns = subject.worst_ns(rows, "induced_idle_ns")
    blocked_ns = subject.per_step(int(calls["blocked_ns"].sum()))
    what = "value read back in the loop" if reads else "sync in the loop"
    return Finding(
        rule="scalar-readback" if reads else "sync-in-loop",
        title=f"{what}: {first['api']}{place(first['phase'], source)}",
        change=READ_BACK if reads else WAIT,
        evidence=(
            f"{len(calls):,} calls block the host for {blocked_ns:,} ns a step",
            f"{idle_ns:,} ns of idle GPU time a step are behind them",
        ),
        table="syncs",
        size_ns=idle_ns,
        steps=steps,
        changes=Changes(removed=_removals(source, first["phase"], rows)),
        phase=first["phase"],
        source=source,
        via=first["api"],
    )


def _removals(source: str, phase: str, rows: pl.DataFrame) -> tuple[Removal, ...]:
    at = source.rpartition(" in ")[0] or source or phase or None
    kinds = {"sync": "sync", "blocking_copy": "copy"}
    return tuple(Removal(kind=kinds[kind], at=at) for kind in sorted(rows["kind"].unique()))
