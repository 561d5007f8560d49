"""GPU memory that ran out.

* `out-of-memory`: an allocation failed. What is reserved and not allocated lies in pieces. Where it
  is more than what was asked for, larger segments would have served; else there is too much at a
  time.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.base.units import number, percent, size

CHANGE_OF_PIECES: Final = (
    "let segments grow, so that there are fewer pieces:"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "pad or bucket lengths: pieces come from allocations of ever new sizes",
)

CHANGE: Final = (
    "have less at a time: a smaller batch with gradient accumulation, shorter sequences",
    "recompute instead of keeping what the places with most of it keep: torch.utils.checkpoint",
    "without gradients, torch.inference_mode() keeps nothing for a backward pass",
)

_NAMED: Final = 2


def out_of_memory(subject: JudgedReport) -> Iterator[Finding]:
    """Each process and GPU on which an allocation failed, with the first one that did.

    What it would save is 0: it is no matter of time.
    """
    failed = subject.tables.out_of_memory
    for key, rows in failed.group_by("device", "process", maintain_order=True):
        held = subject.tables.peak_memory.filter(device=key[0], process=key[1])
        yield _finding(subject, rows.row(0, named=True), len(rows), held)


def _finding(
    subject: JudgedReport, first: dict[str, Any], count: int, held: pl.DataFrame
) -> Finding:
    source, via = first["source"] or "", first["via"] or ""
    asked, allocated, reserved = (
        first[name] for name in ("asked_bytes", "allocated_bytes", "reserved_bytes")
    )
    in_pieces = None not in (allocated, reserved) and reserved - allocated >= asked
    gpus = subject.tables.memory["device"].n_unique()
    gpu = f" on GPU {first['device']}" if gpus > 1 else ""
    return Finding(
        rule="out-of-memory",
        title=f"GPU memory ran out{gpu}: {size(asked)} more were asked for{_at(first)}",
        change=CHANGE_OF_PIECES if in_pieces else CHANGE,
        evidence=(*_levels(first, count), *_held(held)),
        table="out_of_memory",
        size_ns=0,
        steps=subject.steps,
        process=first["process"] or None,
        device=first["device"],
        phase=first["phase"],
        source=source,
        via=via,
        culprit=first["operator"] or "",
    )


def _levels(first: dict[str, Any], count: int) -> Iterator[str]:
    """`84.1 GB of 84.2 GB reserved were allocated, 95.7 MB of the GPU were free`."""
    reserved, allocated, free = (
        None if first[name] is None else size(first[name])
        for name in ("reserved_bytes", "allocated_bytes", "free_bytes")
    )
    had = f"{allocated} of {reserved} reserved were allocated" if allocated else None
    had = had or (reserved and f"{reserved} were reserved")
    known = [*filter(None, [had, free and f"{free} of the GPU were free"])]
    if known:
        yield ", ".join(known)
    if count > 1:
        yield f"{number(count)} allocations failed; this is the first one"


def _held(held: pl.DataFrame) -> Iterator[str]:
    """`38 % of the peak were allocated in models.py:174 in update_nodes`."""
    known = held.filter(pl.coalesce("source", "via").is_not_null())
    for row in known.head(_NAMED).iter_rows(named=True):
        yield f"{percent(row['share_pct'])} of the peak, {size(row['bytes'])}, allocated{_at(row)}"


def _at(row: dict[str, Any]) -> str:
    """` in forward, model.py:88 in attend`; without a phase ` at model.py:88 in attend`."""
    code = line(row["source"] or "", row["via"] or "")
    return place(row["phase"], code) if row["phase"] else f" at {code}" * bool(code)
