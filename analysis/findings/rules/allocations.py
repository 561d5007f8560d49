"""Calls that take memory and give it back, and that hold the host up; one of these is named.

* `allocator-churn`: memory is taken from the driver, and given back, in every step. cudaFree waits
  for all that the GPU has to do, and cudaMalloc takes 0.1 ms and more. PyTorch's caching allocator
  needs neither, once it has seen the largest step.
* `pinned-allocation`: the same of the host's memory, whose pages are pinned one by one.
* `first-allocation`: where no steps are judged, a call that starts CUDA or a library up.

Beside it `allocator-retry`: cudaMalloc finds no memory. PyTorch's allocator then waits for the GPU,
gives back all that it keeps for later, with a cudaFree for each piece, and asks once more. Later
allocations ask CUDA again, as nothing is kept.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.retries import idle_in_retries, in_retries, memory_calls
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.frameworks import PYTORCH
from nsysflow.analysis.findings.host_functions import stacks_with
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.memory import (
    GIVES_BACK,
    costs_calls,
    removal_of_calls,
)
from nsysflow.analysis.findings.stall_findings import HIDDEN, stalls_of
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.selection.view import View
from nsysflow.base.units import duration, number, whole_percent

CHANGE: Final = (
    "no torch.cuda.empty_cache() in the loop; let PyTorch keep what it has",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where shapes change from step to step",
    "allocate buffers once, before the loop, and write into them (out=, copy_)",
)
GROWING: Final = (
    "let segments grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and no max_split_size_mb"
)
FEW_SIZES: Final = "keep to few shapes: pad or bucket lengths, so that blocks are used again"
OF_ALLOCATOR: Final = (
    GROWING,
    FEW_SIZES,
    "leave the allocator more room: a higher torch.cuda.set_per_process_memory_fraction, or a"
    " smaller batch",
)
EMPTIES: Final = r"torch/cuda/memory\.py empty_cache$"
"""Who gives back all that PyTorch keeps."""

PINNED: Final = "pin once, before the loop, and copy into that buffer again"
PINNED_BY_PYTORCH: Final = (
    "a DataLoader with pin_memory=True and tensor.pin_memory() keep what they have pinned:"
    " keep its sizes the same",
)
ONCE: Final = (
    "it comes once, at start-up: run the work once before the part that counts",
    "to judge what repeats, record later: nsysflow.steps around the loop, or --capture",
)

HOST_MEMORY: Final = (
    r"HostAlloc|MallocHost|FreeHost|AllocHost|Host(?:Unr|R)egister|HostMalloc|HostFree"
)
"""What names of calls contain that pin the host's memory or let it go."""

MOST_PCT: Final = 50
"""The calls that have so much of the idle time behind allocations are what the finding is about."""


def allocations(subject: JudgedReport) -> Iterator[Finding]:
    """All calls that allocate or free memory. Retries have a finding of their own
    (`allocator-retry`), and so has memory that grows (`memory-growth`)."""
    rows = subject.stalls.filter(pl.col("what") == "alloc")
    if rows.is_empty() or costs_calls(subject):
        return
    idle_ns = int(rows["idle_ns"].sum())
    first = _first_calls(subject, rows)
    pinned = rows.filter(pl.col("api").str.contains(HOST_MEMORY))
    if not subject.of_steps and _is_most(first, idle_ns):
        yield _first_allocation(subject, first, idle_ns)
    else:
        yield _churn(subject, rows, pinned=_is_most(pinned, idle_ns))


def _is_most(rows: pl.DataFrame, idle_ns: int) -> bool:
    return idle_ns > 0 and 100 * int(rows["idle_ns"].sum()) >= MOST_PCT * idle_ns


def _first_calls(subject: JudgedReport, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of the rows that are the first call of that name in their process, in the report."""
    every = subject.timeline.stalls
    first = every.sort("start_ns", "call").unique(["process", "name"], keep="first")
    return rows.filter(pl.col("call").is_in(first["call"].implode()))


def _first_allocation(subject: JudgedReport, first: pl.DataFrame, idle_ns: int) -> Finding:
    longest: dict[str, Any] = first.sort("idle_ns", "call").row(-1, named=True)
    api, source, via = longest["api"], longest["source"], longest["via"]
    first_ns = int(first["idle_ns"].sum())
    pinned = pl.Series([api]).str.contains(HOST_MEMORY).any()
    each = first.sort("idle_ns", descending=True).head(3)[["api", "blocked_ns"]].iter_rows()
    named = ", ".join(f"{name} {duration(ns)}" for name, ns in each)
    return Finding(
        rule="first-allocation",
        title=f"start-up: the first {api} takes {duration(longest['blocked_ns'])}"
        f"{place(longest['phase'], line(source, via))}",
        change=(*ONCE, *(_change_of_pinned(subject) if pinned else ())),
        fits=True,
        evidence=(
            f"the first calls of their kind: {named}",
            f"{whole_percent(first_ns, idle_ns)} of the idle time behind all calls for memory",
        ),
        table="syncs",
        size_ns=first_ns,
        steps=1,
        at_most_ns=first_ns,
        phase=longest["phase"],
        source=source,
        via=via,
        culprit=api,
    )


def _change_of_pinned(subject: JudgedReport) -> tuple[str, ...]:
    return (PINNED, *(PINNED_BY_PYTORCH if PYTORCH in subject.frameworks.names else ()))


def _churn(subject: JudgedReport, rows: pl.DataFrame, *, pinned: bool) -> Finding:
    """All of them; the place is where they lose most."""
    every = sorted(stalls_of(subject, "alloc"), key=lambda stalls: stalls.idle_ns)
    most = every[-1]
    counted = rows["api"].value_counts(sort=True).head(3).iter_rows()
    calls = ", ".join(f"{number(count)} {api}" for api, count in counted)
    idle_ns = sum(stalls.idle_ns for stalls in every)
    blocked_ns = sum(stalls.blocked_ns for stalls in every)
    own = not pinned and gives_back_itself(subject)
    what = "pinned memory" if pinned else "memory"
    what = f"{what} allocated and freed{' in the loop' if subject.of_steps else ''}"
    what = "PyTorch's allocator gives blocks back to make room" if own else what
    return Finding(
        rule="pinned-allocation" if pinned else "allocator-churn",
        title=f"{what}{most.many(subject)}: {most.api}{place(most.phase, most.line)}",
        change=_change_of_pinned(subject) if pinned else OF_ALLOCATOR if own else CHANGE,
        fits=pinned,
        evidence=(
            f"{calls} in {subject.steps} steps" if subject.of_steps else calls,
            f"they block the host for {subject.spent(blocked_ns)} and cost {subject.idle(idle_ns)}",
            "what Python does around these calls is not in the saving",
        ),
        table="syncs",
        size_ns=idle_ns,
        steps=max(stalls.steps for stalls in every),
        changes=Changes(removed=(removal_of_calls(subject),)),
        waits=True,
        phase=most.phase,
        source=most.source,
        via=most.via,
        culprit=most.api,
    )


def gives_back_itself(subject: JudgedReport) -> bool:
    """Whether PyTorch's allocator gives segments back while it allocates, and nobody empties its
    cache. Its history then has one stack for a segment that goes back and for the next one that it
    asks for."""
    trace = subject.timeline.trace
    segments = trace.memory.filter(pl.col("source") == "allocator", pl.col("address").is_null())
    change, stack = pl.col("reserved_bytes").diff(), pl.col("stack").cast(pl.Int64).fill_null(-1)
    asked = pl.when(change > 0).then(stack).backward_fill()
    of_gpu = segments.sort("time_ns", "row").select(
        pl.col("stack").over("process", "device"),
        (change < 0).over("process", "device").alias("back"),
        (asked == pl.col("stack")).over("process", "device").alias("asked"),
    )
    back = of_gpu.filter("back").drop_nulls("stack")
    frees = subject.stalls.filter(pl.col("api").str.contains(GIVES_BACK))
    called = trace.backtraces["stack"].filter(
        trace.backtraces["start_ns"].is_in(frees["start_ns"].implode())
    )
    if called.is_empty() or 2 * int(back["asked"].sum()) <= len(back):
        return False
    emptied = called.is_in(stacks_with(subject, EMPTIES).implode())
    return 2 * int(emptied.sum()) < len(called)


CHANGE_OF_RETRIES: Final = (
    "need less memory at a time: a smaller batch with gradient accumulation, or"
    " torch.utils.checkpoint",
    "let segments grow, so that less is lost between blocks:"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    FEW_SIZES,
    "leave the GPU to this process: another one takes memory from it",
)


def allocator_retry(subject: JudgedReport) -> Iterator[Finding]:
    """All retries of the judged part; the place is where they take longest."""
    rows = retries_in(subject.view)
    if rows.is_empty():
        return
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    places = rows.group_by("phase", "source", "via").agg(length.sum())
    most: dict[str, Any] = places.sort("ns", "phase", "source", "via").row(-1, named=True)
    idle_ns = subject.per_step(int(rows["idle_ns"].sum()))
    stall_ns = subject.per_step(int(rows.select(length.sum()).item()))
    counted, again = retries_in_words(subject, subject.view, rows)
    yield Finding(
        rule="allocator-retry",
        title=f"GPU memory was full: {rows['api'][0]} failed and was tried again"
        f"{place(most['phase'], line(most['source'], most['via']))}",
        change=CHANGE_OF_RETRIES,
        evidence=(
            counted,
            f"{again}: {subject.spent(stall_ns)}, {duration(idle_ns)} of it with an idle GPU",
        ),
        table="syncs",
        size_ns=max(idle_ns, round(HIDDEN * stall_ns)),
        steps=subject.steps_with(rows["start_ns"]),
        changes=Changes(removed=(Removal(kind="retry"),)),
        waits=True,
        process=subject.process_of(rows),
        phase=most["phase"],
        source=most["source"],
        via=most["via"],
        culprit=rows["api"][0],
    )


def retries_in(view: View) -> pl.DataFrame:
    """The retries that begin in a view, or in which a GPU idles there: `RETRIES`, and `idle_ns` (on
    the GPU where that is most), `api` (what its first call is), `phase`, `source`, `via` of that,
    `process`."""
    events = view.events
    idle = idle_in_retries(events.retries, view.gaps, events.threads, events.users, events.axis)
    longest = idle.group_by("retry").agg(pl.col("ns").max().alias("idle_ns"))
    text = pl.col("phase", "source", "via").cast(pl.String).fill_null("")
    calls = view.timeline.stalls.select("call", "process", text, pl.col("name").alias("api"))
    rows = events.retries.with_row_index("retry").join(longest, on="retry", how="left")
    rows = rows.with_columns(pl.col("idle_ns").fill_null(0), pl.lit(_begun_in(view, rows)))
    rows = rows.filter(pl.col("begun") | (pl.col("idle_ns") > 0)).drop("retry", "begun")
    return rows.join(calls.cast({"api": pl.String}), on="call").sort("start_ns", "call")


def _begun_in(view: View, rows: pl.DataFrame) -> pl.Series:
    """`begun`: whether each row begins in the view's windows, on any GPU."""
    spans = view.windows[["start_ns", "end_ns"]]
    begun = spans["start_ns"].sort().search_sorted(rows["start_ns"], side="right")
    past = spans["end_ns"].sort().search_sorted(rows["start_ns"], side="right")
    return (begun > past).alias("begun")


def retries_in_words(subject: JudgedReport, view: View, rows: pl.DataFrame) -> Sequence[str]:
    """What was seen of a view's retries: how many calls failed, and what was given back.

    Args:
        subject: the report.
        view: the view.
        rows: its retries, at least one.
    """
    events = view.events
    asked = memory_calls(events.calls, events.axis).filter("takes")
    here = _begun_in(view, asked) | in_retries(asked, rows, events.axis)
    api, failed, frees = rows["api"][0], int(rows["failed"].sum()), int(rows["frees"].sum())
    steps = f" in {number(len(view.steps))} steps" if view.of_steps else ""
    who = "PyTorch" if PYTORCH in subject.frameworks.names else "the allocator"
    return (
        f"{number(failed)} of {number(int(here.sum()))} {api} calls{steps}"
        " failed for want of memory",
        f"{who} gave its cached blocks back before it tried again, in {number(frees)} calls",
    )
