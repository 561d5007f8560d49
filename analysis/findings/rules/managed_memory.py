"""Managed memory that moves page by page.

* `managed-memory`: memory of cudaMallocManaged is moved by the driver when a kernel or the host
  touches it. A kernel then runs on, but waits: one that adds two arrays on 262,144 blocks took 109
  to 114 ms while 537 MB came to it in 17,000 to 20,000 pieces, and 0.6 ms where they lay on the GPU
  already (A100, public reports of a CUDA course). On one thread it took 6.25 s, with the pages
  26 ms of that: a kernel's time is not all theirs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.intervals import Cover, merge, on_axis
from nsysflow.base.units import duration, number, size

TO_KERNELS: Final = ("UVM HtoD", "UVM DtoD")
"""The directions for which kernels wait. The host waits for what goes back to it."""

PREFETCHED_BYTES: Final = 2 << 20
"""cudaMemPrefetchAsync moved pieces of 2 MiB, faults less than 1 MiB each (1,440 and 84,835 of
them; H100, nsys 2025.3, 2026-11-27)."""

FAULT_NS: Final = 100_000
"""A piece costs at most so much besides its copy. A kernel of one block of 256 threads took 51 and
95 us a piece with all that it computes, one of 262,144 blocks 3 (A100s); a host 15 to 25 us, as
pieces of different sizes tell, on another machine 90 (the same public reports)."""

WORTH_PCT: Final = 5
"""Less of the judged time is not worth a change of who allocates what."""

TO_THE_GPU: Final = (
    "cudaMemPrefetchAsync(pointer, bytes, device, stream) before the kernels that use it: it then"
    " comes in large pieces, and no kernel waits for a page",
    "cudaMalloc, and cudaMemcpyAsync from pinned memory, where it is clear who needs what",
    "cudaMemAdvise(…, cudaMemAdviseSetReadMostly, …) for what neither side writes",
)
TO_THE_HOST: Final = (
    "cudaMemPrefetchAsync(pointer, bytes, cudaCpuDeviceId, stream) before the host touches it: it"
    " then comes in large pieces",
    "copy only the result to pinned memory, and leave the rest on the GPU",
)
MOVES: Final = {
    "UVM HtoD": ("come to the GPU", TO_THE_GPU),
    "UVM DtoH": ("go back to the host", TO_THE_HOST),
    "UVM DtoD": ("go to another GPU", TO_THE_GPU),
}
"""Per direction of such copies what the memory does, and what to change."""

_A_PIECE: Final = f"{duration(FAULT_NS)} a piece"


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """The pages that move in one direction, of one GPU.

    Attributes:
        rows: their copies, rows of `view.copies`.
        kernels: the kernels that run meanwhile: `short_name`, `ns`, `meanwhile_ns`, and
            `waiting_ns`, for how long they wait at most.
        idle_ns: for how long the GPU idles before such copies.
        exposed_ns: for how long they run while nothing computes.
    """

    rows: pl.DataFrame
    kernels: pl.DataFrame
    idle_ns: int
    exposed_ns: int

    @property
    def lost_ns(self) -> int:
        """What is lost to them at most."""
        return int(self.kernels["waiting_ns"].sum()) + self.waited_ns + self.exposed_ns

    @property
    def waited_ns(self) -> int:
        """How much of the idle time is theirs at most: in the rest the host computes."""
        return min(self.idle_ns, FAULT_NS * len(self.rows))


def managed_memory(subject: JudgedReport) -> Iterator[Finding]:
    """Each direction in which managed memory moves page by page, on the GPU that loses most."""
    faults = _faults(subject)
    for direction in MOVES:
        moved = faults.filter(pl.col("direction") == direction)
        devices = moved.partition_by("device", maintain_order=True)
        pages = (_pages(subject, rows, direction) for rows in devices)
        most = max(pages, key=lambda one: one.lost_ns, default=None)
        if most is not None and 100 * _bound_ns(subject, most) >= WORTH_PCT * subject.step_ns:
            yield _finding(subject, most, direction)


def _faults(subject: JudgedReport) -> pl.DataFrame:
    """The copies that no prefetch made: a kernel or the host touched a page, and waits for it."""
    of_pages = pl.col("direction").is_in([*MOVES]), pl.col("bytes") < PREFETCHED_BYTES
    return subject.view.copies.filter(*of_pages)


def pages_move(subject: JudgedReport) -> bool:
    """Whether kernels or the host touch pages that have to come to them."""
    return not _faults(subject).is_empty()


def kernels_wait(subject: JudgedReport) -> bool:
    """Whether pages come to kernels for half of their time or more. Their time then says nothing of
    what they compute."""
    copies = _faults(subject).filter(pl.col("direction").is_in([*TO_KERNELS]))
    waiting = [
        _waiting(subject.kernels.filter(pl.col("device") == rows["device"][0]), rows)
        for rows in copies.partition_by("device", maintain_order=True)
    ]
    waiting_ns = sum(int(kernels["waiting_ns"].sum()) for kernels in waiting)
    return bool(waiting) and 2 * waiting_ns >= int(subject.kernels["ns"].sum())


def _bound_ns(subject: JudgedReport, pages: _Pages) -> int:
    return min(subject.per_step(pages.lost_ns), subject.step_ns)


def _pages(subject: JudgedReport, rows: pl.DataFrame, direction: str) -> _Pages:
    """These copies of one device, with what waits for them."""
    device, view = rows["device"][0], subject.view
    before = view.gaps.filter(pl.col("next_op").is_in(rows["op"].implode()))
    at = on_axis(rows, view.events.axis)
    hidden_ns = view.busy.compute.between(at["start"], at["end"])
    kernels = _waiting(subject.kernels.filter(pl.col("device") == device), rows)
    return _Pages(
        rows=rows,
        kernels=kernels if direction in TO_KERNELS else kernels.clear(),
        idle_ns=int((before["end_ns"] - before["start_ns"]).sum()),
        exposed_ns=int((at["end"] - at["start"] - hidden_ns).sum()),
    )


def _waiting(kernels: pl.DataFrame, pages: pl.DataFrame) -> pl.DataFrame:
    """The kernels during which pages move, with `meanwhile_ns`, from the first of these to the
    last, and `waiting_ns`, the most of it that is theirs.

    How much of that time a kernel computes is not recorded.
    """
    moving = merge(pages.select(start="start_ns", end="end_ns"))
    spans = kernels.with_columns((pl.col("start_ns") + pl.col("ns")).alias("end_ns"))
    first = moving["end"].search_sorted(spans["start_ns"], side="right")
    past = moving["start"].search_sorted(spans["end_ns"], side="left")
    met = past > first
    spans, first, last = spans.filter(met), first.filter(met), past.filter(met) - 1
    from_ns = pl.max_horizontal("start_ns", pl.lit(moving["start"][first]))
    to_ns = pl.min_horizontal("end_ns", pl.lit(moving["end"][last]))
    begun, ended = pages["start_ns"].sort(), pages["end_ns"].sort()
    count = begun.search_sorted(spans["end_ns"], side="left") - ended.search_sorted(
        spans["start_ns"], side="right"
    )
    copied_ns = Cover(moving).between(spans["start_ns"], spans["end_ns"])
    most_ns = FAULT_NS * count.cast(pl.Int64) + copied_ns
    return spans.select(
        "short_name",
        "ns",
        (to_ns - from_ns).alias("meanwhile_ns"),
        pl.min_horizontal(to_ns - from_ns, pl.lit(most_ns)).alias("waiting_ns"),
    )


def _finding(subject: JudgedReport, pages: _Pages, direction: str) -> Finding:
    move, change = MOVES[direction]
    rows, bound_ns = pages.rows, _bound_ns(subject, pages)
    kernels = pages.kernels.group_by("short_name").agg(
        pl.col("waiting_ns", "meanwhile_ns", "ns").sum()
    )
    name = pl.col("short_name").cast(pl.String)
    kernels = kernels.sort(-pl.col("waiting_ns"), name)
    in_kernels = 2 * int(kernels["waiting_ns"].sum()) > pages.lost_ns
    culprit = str(kernels["short_name"][0]) if in_kernels else f"memcpy {direction}"
    moved, count = int(rows["bytes"].sum()), len(rows)
    return Finding(
        rule="managed-memory",
        title=f"{size(subject.per_step(moved))} of managed memory {move} page by page"
        + (f" while {culprit} runs" if in_kernels else ""),
        change=change,
        evidence=(
            f"{number(subject.per_step(count))} pieces{subject.a_step} of"
            f" {size(round(moved / count))} in the mean",
            *_losses(subject, pages, kernels),
        ),
        table="copies",
        size_ns=bound_ns,
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        at_most_ns=bound_ns,
        process=subject.process_of(rows),
        device=rows["device"][0],
        culprit=culprit,
    )


def _losses(subject: JudgedReport, pages: _Pages, kernels: pl.DataFrame) -> Iterator[str]:
    """What waits for them, and how long."""
    for name, waiting_ns, meanwhile_ns, ns in kernels.head(1).iter_rows():
        waiting, meanwhile, runs = (
            duration(subject.per_step(time_ns)) for time_ns in (waiting_ns, meanwhile_ns, ns)
        )
        yield f"they come during {meanwhile} of the {runs} for which {name} runs"
        if waiting_ns < meanwhile_ns:
            yield f"of that at most {waiting} is theirs, {_A_PIECE}; in the rest it computes"
    if pages.idle_ns:
        yield f"{subject.idle(subject.per_step(pages.idle_ns))} before them"
    if pages.waited_ns < pages.idle_ns:
        theirs = duration(subject.per_step(pages.waited_ns))
        yield f"of that at most {theirs} is theirs, {_A_PIECE}; in the rest the host computes"
    if pages.exposed_ns:
        exposed = subject.spent(subject.per_step(pages.exposed_ns))
        yield f"nothing computes for {exposed} while they are copied"
