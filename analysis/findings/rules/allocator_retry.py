"""Memory of the GPU that was full, and an allocator that gave some back and tried again.

* `allocator-retry`: cudaMalloc finds no memory. PyTorch's allocator then waits for the GPU, gives
  back all that it keeps for later, with a cudaFree for each piece, and asks once more. Later
  allocations ask CUDA again, as nothing is kept.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.retries import idle_in_retries, in_retries, memory_calls
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.frameworks import PYTORCH
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.stall_findings import HIDDEN
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.selection.view import View
from nsysflow.base.units import duration, number

CHANGE: Final = (
    "need less memory at a time: a smaller batch with gradient accumulation, or"
    " torch.utils.checkpoint",
    "let segments grow, so that less is lost between blocks:"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "keep to few shapes: pad or bucket lengths, so that blocks are used again",
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
    counted, again = in_words(subject, subject.view, rows)
    yield Finding(
        rule="allocator-retry",
        title=f"GPU memory was full: {rows['api'][0]} failed and was tried again"
        f"{place(most['phase'], line(most['source'], most['via']))}",
        change=CHANGE,
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


def in_words(subject: JudgedReport, view: View, rows: pl.DataFrame) -> Sequence[str]:
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
