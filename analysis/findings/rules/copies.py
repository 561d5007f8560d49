"""Copies that the host or the GPU waits for.

* `pageable-copy` and `blocking-pinned-copy`: the host waits until data has been copied. From
  pageable memory the driver copies twice, through a pinned buffer of its own, and the host waits
  for the first copy. From pinned memory the GPU copies by itself, and the host goes on, if the
  program lets it. An index that the host keeps (a NumPy array, a list, a tensor on the CPU) is
  converted and copied at each use.
* `small-copies`: a batch goes to the GPU in many small pieces, each with a launch of its own.
* `exposed-copy`: the GPU copies while nothing computes. A copy on the stream of the kernels that
  need it comes before them. On a stream of its own, started a step ahead, it runs under the kernels
  of the step before.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.gpus import LARGE_BYTES, link_bytes_per_s
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import host_of_launches, without_launches
from nsysflow.analysis.findings.stall_findings import Stalls, stalls_of, together, with_neighbours
from nsysflow.analysis.findings.unchanged_copies import (
    copies_at,
    copies_of_index,
    kept_there,
    may_stay,
    sent_once,
    with_lines,
)
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import number, size

AS_ONE: Final = "put them together on the CPU, and copy them as one"
PAGEABLE: Final = (
    "pin_memory=True in the DataLoader (or tensor.pin_memory()), and .to(device,"
    " non_blocking=True)",
    "copy the next batch on a stream of its own while this one computes",
)
MADE_THERE: Final = (
    "create the values on the GPU: torch.full, torch.eye or torch.randperm with device='cuda'"
    " instead of a list or NumPy array; create constants once, before the loop"
)
TO_THE_HOST: Final = (
    "copy to pinned memory with non_blocking=True, and use it some steps later",
    "compute on the GPU what the host wants to know, and copy only that",
)
LARGE_TO_THE_HOST: Final = (
    "copy fewer bytes: cast on the GPU first, such as int64 classes of argmax to torch.uint8",
    *TO_THE_HOST,
)
"""A server of class maps took 82 ms a batch, and 19 once it cast them before the copy (H200,
2026-11-30)."""
PINNED: Final = (
    "pass non_blocking=True to .to() and .copy_(): the memory is pinned already",
    "for a copy to the host, wait for an event when the data is needed, not at once",
)


KEEP_ON_GPU: Final = (
    "keep it on the GPU from step to step: a tensor, or cudaMalloc's memory, that stays there",
    "where the host needs some of it in each step, copy that part, or only every so many steps",
)
OF_MODEL: Final = (
    "keep on the GPU what does not change: register_buffer in the module, or .to(device) once"
    " before the loop",
    *PAGEABLE,
)
OF_DATA_REGIONS: Final = ("openacc", "openmp")
"""Programs that keep data on the GPU by a region, as their own advice says."""

OF_INDEX: Final = (
    "send the index once, before it indexes several tensors: index = torch.as_tensor(index,"
    " device='cuda')",
    "or create it on the GPU: torch.randperm(count, device='cuda'); its slices are views",
    "or stack the tensors of which the same rows are taken, and index them once",
)

ROUND_TRIPS: Final = 3
"""Where no steps are judged, so many of them are a loop's."""

SLOW_BYTES_PER_S: Final = 10e9
"""A pageable copy below this waits for the driver's own copy on the host: 5 GB/s for 256 MB (H200,
2026-11-22). Small ones go through a pinned buffer at full speed."""

BATCH_BYTES: Final = 256 << 10
"""Smaller copies are no batches: the driver takes up to 64 kB at once, and the host goes on."""


SMALL_BYTES: Final = 16 << 10
"""Copies that are all smaller are no batches: 4 bytes of a distance (NeRF), an identity matrix of
1,152 (PointNet), 1,024 of indices (PPO). The labels of a batch come with its inputs, at their line.
"""

MANY_COPIES: Final = 32
"""So many copies a step are a loop over a dict or a list, and no batch of inputs and labels."""

SMALL_COPY_BYTES: Final = 256 << 10
"""A pinned copy of so much takes 5 us at 50 GB/s. Its launch and the code around it take longer."""

COPIES_LEFT: Final = 2
"""So many copies are left: of whole and of floating-point numbers."""

STACKED: Final = (
    "stack them on the CPU, best in the DataLoader's collate_fn, copy that once, and split it on"
    " the GPU: unbind, or slices",
    "of tensors with different types: one buffer of bytes, and views of it",
)


def blocking_copies(subject: JudgedReport) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits for copies, and each
    phase whose copies are slow because their memory is pageable."""
    copies = _exposed_copies(subject)
    slow = (pl.col("bytes_per_s") < SLOW_BYTES_PER_S) & _at_least(LARGE_BYTES)
    found = [
        _copied_ahead(subject, row)
        for row in copies.filter(slow).iter_rows(named=True)
        if row["direction"] != "HtoD" or not may_stay(subject, _copies_of(subject, row))
    ]
    yield from found
    phases = {finding.phase for finding in found}
    waited = set()
    copied = []
    for stalls in stalls_of(subject, "pageable"):
        indices = copies_of_index(subject, stalls)
        if indices.is_empty():
            copied.append(stalls)
        elif stalls.phase not in phases:
            what = f"an index is copied from the host at each use{stalls.many(subject)}"
            of_index = stalls.finding(subject, rule="pageable-copy", what=what, change=OF_INDEX)
            yield sent_once(subject, of_index, indices)
            waited.add(stalls.phase)
    for places in with_neighbours(copied):
        stalls = together(places)
        if stalls.phase not in phases:
            yield _of_pageable(subject, stalls, places)
            waited.add(stalls.phase)
    for stalls in stalls_of(subject, "fetch"):
        what = f"copy to pageable memory{stalls.many(subject)}"
        if stalls.phase not in phases:
            yield stalls.finding(subject, rule="pageable-copy", what=what, change=TO_THE_HOST)
    # where no lines are known, the waits of a phase may mostly be for something else
    batches = copies.filter(_at_least(BATCH_BYTES), pl.col("direction") == "HtoD")
    for row in batches.iter_rows(named=True):
        if (row["phase"] or "") not in phases | waited:
            yield _copied_ahead(subject, row)
    for stalls in stalls_of(subject, "pinned"):
        what = "copy of pinned memory that the host waits for"
        yield stalls.finding(subject, rule="blocking-pinned-copy", what=what, change=PINNED)


def _of_pageable(subject: JudgedReport, stalls: Stalls, places: list[Stalls]) -> Finding:
    """What to do about the copies from pageable memory at a place, or at neighbouring ones."""
    many = stalls.many(subject)
    copies = pl.concat(copies_at(subject, one) for one in places)
    if stalls.largest_bytes >= SMALL_BYTES and may_stay(subject, copies):
        what = f"the same sizes are copied to the GPU in each step{many}"
        finding = stalls.finding(subject, rule="pageable-copy", what=what, change=OF_MODEL)
        return kept_there(subject, finding, copies)
    change: tuple[str, ...] = PAGEABLE
    if many and _are_small(subject, stalls.phase):
        change = (AS_ONE, *PAGEABLE)
    elif stalls.largest_bytes < SMALL_BYTES:
        change = (MADE_THERE, *PAGEABLE)
    what = f"copy of pageable memory{many}"
    finding = stalls.finding(subject, rule="pageable-copy", what=what, change=change)
    return _or_copied_ahead(subject, finding, stalls.idle_ns)


def _or_copied_ahead(subject: JudgedReport, finding: Finding, idle_ns: int) -> Finding:
    """The finding. If the GPU waits longer for its copies than for the host after them, it becomes
    a bound: the next batch is copied while this one computes."""
    here = _pageable_to_gpu(subject, finding.phase)
    exposed_ns = subject.per_step(int(here["exposed_ns"].sum()))
    if exposed_ns <= idle_ns or finding.changes is None:
        return finding
    return replace(
        finding,
        evidence=(*finding.evidence, *_copying(subject, here, exposed_ns)),
        size_ns=finding.size_ns + exposed_ns,
        changes=replace(finding.changes, scaled=(("memcpy HtoD", _share_left(subject, here)),)),
        exact=False,
    )


def _are_small(subject: JudgedReport, phase: str) -> bool:
    """Whether the pageable copies to the GPU in a phase are no batches, in the mean."""
    here = _pageable_to_gpu(subject, phase)
    return int(here["bytes"].sum()) < BATCH_BYTES * int(here["count"].sum())


def _pageable_to_gpu(subject: JudgedReport, phase: str) -> pl.DataFrame:
    """The rows of COPIES in a phase that are from pageable memory to the GPU."""
    label, up = pl.col("copy_label").cast(pl.String), pl.col("direction") == "HtoD"
    here = pl.col("phase").fill_null("").cast(pl.String) == phase
    return subject.copies.filter(label.str.starts_with("pageable"), up, here)


def _copying(subject: JudgedReport, rows: pl.DataFrame, exposed_ns: int) -> Iterator[str]:
    """For how long nothing computes while these rows of COPIES copy, and what the link allows."""
    yield f"nothing computes for {subject.spent(exposed_ns)} while they copy"
    rate = size(round(link_bytes_per_s(subject, rows["device"][0])))
    least = subject.spent(_link_ns(subject, rows))
    yield f"from pinned memory they take {least}, at {rate}/s"
    if rows["direction"][0] == "HtoD" and not _left_ns(subject, rows):
        yield "kernels of other steps can hide that, if they copy ahead on a stream of their own"


def _link_ns(subject: JudgedReport, rows: pl.DataFrame) -> int:
    """What these rows of COPIES take per step at the link's best."""
    rate = link_bytes_per_s(subject, rows["device"][0])
    return subject.per_step(round(1e9 * int(rows["bytes"].sum()) / rate))


def _left_ns(subject: JudgedReport, rows: pl.DataFrame) -> int:
    """The part of it that no kernels of other steps can hide."""
    hidden_ns = _compute_ns(subject) if subject.of_steps else 0
    return max(0, _link_ns(subject, rows) - hidden_ns)


def _share_left(subject: JudgedReport, rows: pl.DataFrame) -> float:
    """The same as a share of their time."""
    copying_ns = subject.per_step(int(rows["gpu_ns"].sum()))
    return min(1.0, _left_ns(subject, rows) / copying_ns) if copying_ns else 0.0


def _return_each_step(subject: JudgedReport, row: dict[str, Any]) -> bool:
    """Whether large copies go to a GPU and from it by turns, and as many of each size: a step then
    takes up what the one before it took down."""
    copies = subject.view.copies.filter(
        pl.col("device") == row["device"],
        pl.col("direction").is_in(["HtoD", "DtoH"]),
        pl.col("bytes") >= LARGE_BYTES,
    ).sort("start_ns")
    up, down = (
        copies.filter(pl.col("direction") == way)["bytes"].sort() for way in ("HtoD", "DtoH")
    )
    turns = int((copies["direction"] != copies["direction"].shift()).sum()) + 1
    steps = subject.steps if subject.of_steps else ROUND_TRIPS
    return up.equals(down) and turns >= 2 * steps


def _exposed_copies(subject: JudgedReport) -> pl.DataFrame:
    """The pageable copies of each phase during which nothing computes, with their rate."""
    label = pl.col("copy_label").cast(pl.String)
    copies = subject.copies.filter(label.str.starts_with("pageable"), pl.col("gpu_ns") > 0)
    rate = 1e9 * pl.col("bytes") / pl.col("gpu_ns")
    return copies.with_columns(rate.alias("bytes_per_s")).filter(pl.col("exposed_ns") > 0)


def _at_least(size_bytes: int) -> pl.Expr:
    """Whether a copy has as many bytes, in the mean."""
    return pl.col("bytes") >= size_bytes * pl.col("count")


def _copied_ahead(subject: JudgedReport, row: dict[str, Any]) -> Finding:
    exposed_ns, idle_ns = (
        subject.per_step(row[column]) for column in ("exposed_ns", "induced_idle_ns")
    )
    rate = f"{size(round(row['bytes_per_s']))}/s"
    at = row["phase"] or OUTSIDE
    source, via = _line_of(subject, row)
    where = place(row["phase"], line(source, via))
    rows = pl.DataFrame([row])
    title, moved = f"pageable {row['direction']} copy{where}", row["bytes"]
    large = moved >= LARGE_BYTES * row["count"]
    to_host = LARGE_TO_THE_HOST if large else TO_THE_HOST
    change = to_host if row["direction"] == "DtoH" else PAGEABLE
    returns = _return_each_step(subject, row)
    left_ns = 0 if returns else _left_ns(subject, rows)
    if returns:
        again = "each step" if subject.of_steps else "again and again"
        title, change = f"the same sizes go to the GPU and back {again}: {title}", KEEP_ON_GPU
    return Finding(
        rule="pageable-copy",
        title=title,
        change=change,
        fits=returns and not {*OF_DATA_REGIONS} & {*subject.frameworks.names},
        evidence=(
            f"{size(subject.per_step(moved))}{subject.a_step} at {rate}",
            *_copying(subject, rows, exposed_ns),
        ),
        table="copies",
        size_ns=exposed_ns + idle_ns,
        steps=subject.steps,
        changes=Changes(
            removed=(Removal(kind="copy", at=at), Removal(kind="sync", at=at)),
            scaled=(
                (f"memcpy {row['direction']}", 0.0 if returns else _share_left(subject, rows)),
            ),
        ),
        exact=False,
        at_most_ns=idle_ns + max(0, exposed_ns - left_ns),
        process=row["process"],
        device=row["device"],
        phase=row["phase"] or "",
        source=source,
        via=via,
        culprit=f"memcpy {row['direction']}",
    )


def _line_of(subject: JudgedReport, row: dict[str, Any]) -> tuple[str, str]:
    """The program's line and the framework's that have most of these copies' time; both empty where
    no line has half of it."""
    copies = _copies_of(subject, row)
    ns = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    sums = copies.group_by("source", "via").agg(ns)
    most = sums.sort("ns", "source", "via").row(-1, named=True)
    return (most["source"], most["via"]) if 2 * most["ns"] >= sums["ns"].sum() else ("", "")


def _copies_of(subject: JudgedReport, row: dict[str, Any]) -> pl.DataFrame:
    """The pageable copies of a row of COPIES, with their lines."""
    copies = subject.view.copies.filter(
        pl.col("device") == row["device"],
        pl.col("direction") == row["direction"],
        pl.col("phase").cast(pl.String).eq_missing(pl.lit(row["phase"], pl.String)),
        pl.col("copy_label").cast(pl.String).str.starts_with("pageable"),
    )
    return with_lines(subject, copies)


EXPOSED_PCT: Final = 12.5
"""Copying ahead takes a stream, an event and a second set of buffers: not worth it for less than an
eighth of a step. Pinned copies right before their kernels leave 10 % (h2d-pinned); 23 % is what
overlap-in_turn lost."""

HIDDEN: Final = 2
"""Of copies to the GPU that take so many times what kernels take, overlap hides half at most."""

EXPOSED_PCT_OF_OWN: Final = 5.0
"""Copies that have a stream of their own need only a change of order."""

LESS: Final = "copy less: smaller types, one copy instead of many, work done on the GPU"
COPY_AHEAD: Final = (
    "copy the next batch on a stream of its own (torch.cuda.Stream, non_blocking=True) while this"
    " one computes",
    LESS,
)
OF_OWN_STREAM: Final = (
    "two buffers in turn: copy the next batch into one while the step computes with the other",
    "let the copies' stream wait for the step before the last one, not for this one",
    LESS,
)
"""The copies have a stream of their own already, but wait there for the kernels."""
KEEP_THERE: Final = (
    "keep on the GPU what does not change from step to step (weights, tables); else smaller types",
    "start the copies early, on a stream of their own, so that they follow each other without gaps",
)
"""The copies take far longer than the kernels that could run beside them."""
COPY_BACK_MEANWHILE: Final = (
    "copy on a stream of its own (torch.cuda.Stream, non_blocking=True, into pinned memory) while"
    " the next step computes",
    LESS,
)


def exposed_copy(subject: JudgedReport) -> Iterator[Finding]:
    """Each direction of asynchronous copies that run while nothing computes."""
    copies = subject.copies.filter(
        pl.col("copy_label").cast(pl.String).str.ends_with("_async"), pl.col("exposed_ns") > 0
    )
    for (direction,), rows in sorted(copies.group_by("direction"), key=lambda group: str(group[0])):
        exposed_ns = subject.worst_ns(rows, "exposed_ns")
        own = _have_own_stream(subject, str(direction))
        if 100 * exposed_ns >= (EXPOSED_PCT_OF_OWN if own else EXPOSED_PCT) * subject.step_ns:
            yield _exposed_finding(subject, str(direction), rows, exposed_ns, own)


def _exposed_finding(
    subject: JudgedReport,
    direction: str,
    rows: pl.DataFrame,
    exposed_ns: int,
    own: bool,
) -> Finding:
    most: dict[str, Any] = rows.sort("exposed_ns", "phase").row(-1, named=True)
    copying_ns, compute_ns = subject.worst_ns(rows, "gpu_ns"), _compute_ns(subject)
    change: tuple[str, ...]
    if direction == "HtoD" and HIDDEN * compute_ns < copying_ns:
        change = KEEP_THERE
        as_if = f"kernels can hide no more than {subject.spent(compute_ns)} of them"
    else:
        change = (
            OF_OWN_STREAM if own else COPY_BACK_MEANWHILE if direction == "DtoH" else COPY_AHEAD
        )
        as_if = "the saving is that of copies that take no time, as if all ran under kernels"
    moved = subject.per_step(int(rows["bytes"].sum()))
    count = subject.per_step(int(rows["count"].sum()))
    return Finding(
        rule="exposed-copy",
        title=f"{direction} copies not overlapped by compute{place(most['phase'])}",
        change=change,
        evidence=(
            f"{number(count)} copies{subject.a_step} of {size(moved)} in all",
            f"nothing computes meanwhile for {subject.spent(exposed_ns)}",
            f"they take {subject.spent(copying_ns)}, and kernels {subject.spent(compute_ns)}",
            as_if,
        ),
        table="copies",
        size_ns=exposed_ns,
        steps=subject.steps,
        changes=Changes(scaled=((f"memcpy {direction}", 0.0),)),
        exact=copying_ns <= compute_ns,
        at_most_ns=0 if copying_ns <= compute_ns else exposed_ns,
        process=most["process"],
        device=most["device"],
        phase=most["phase"],
        culprit=f"memcpy {direction}",
    )


def _compute_ns(subject: JudgedReport) -> int:
    """How long the GPU computes, per step: copies of that length can run beside it."""
    return subject.worst_ns(subject.tables.accounting, "compute_ns")


def _have_own_stream(subject: JudgedReport, direction: str) -> bool:
    """Whether most of the time of these copies is on streams without kernels."""
    copies = subject.view.copies.filter(pl.col("direction") == direction)
    kernels = subject.timeline.events.ops.filter(pl.col("kind") == "kernel")
    alone = copies.join(kernels, on=["process", "device", "stream"], how="anti")
    length_ns = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return 2 * int(alone.select(length_ns).item()) > int(copies.select(length_ns).item())


def small_copies(subject: JudgedReport) -> Iterator[Finding]:
    """Copies to the GPU that do not block the host, where a step has many of them and they are
    small in the mean; without most of their launches and the code between these.

    A dict of 93 pinned tensors took 4.84 ms a step, two tensors 3.31 (H200, 2026-11-29).
    """
    view = subject.view
    launched = view.events.calls["class"][view.copies["call"]] == "launch"
    copies = view.copies.filter(launched, pl.col("direction") == "HtoD")
    copies = copies.join(subject.offloaded, on="op", how="anti")
    count = subject.per_step(len(copies))
    whole = int(copies["bytes"].sum() or 0)
    if not subject.of_steps or count < MANY_COPIES or whole >= SMALL_COPY_BYTES * len(copies):
        return
    host = host_of_launches(subject, copies["op"]).with_columns(
        (pl.col("own_ns") * (count - COPIES_LEFT) // count).alias("own_ns")
    )
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    most = host.sort("own_ns", "phase")["phase"]
    phase = "" if most.is_empty() or most[-1] == OUTSIDE else most[-1]
    yield Finding(
        rule="small-copies",
        title=f"{number(count)} small copies to the GPU a step{place(phase)}",
        change=STACKED,
        evidence=(
            f"{size(subject.per_step(whole))} a step in all, {size(whole // len(copies))} each",
            f"their launches and the code before each take the host {subject.spent(own_ns)}",
        ),
        table="copies",
        size_ns=own_ns,
        steps=min(subject.steps, subject.steps_with(copies["start_ns"])),
        changes=without_launches(subject, host),
        exact=False,
        at_most_ns=own_ns,
        phase=phase,
        culprit="memcpy HtoD",
    )
