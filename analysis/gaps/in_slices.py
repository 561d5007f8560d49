"""Gaps explained slice by slice, where all of them at once take too much memory."""

from collections.abc import Iterator

import polars as pl

from nsysflow.analysis.frames.intervals import Cover
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.gaps.call_time import CallTime
from nsysflow.analysis.gaps.charged_stalls import AT_THE_START
from nsysflow.analysis.gaps.run_ahead import Explained, explain
from nsysflow.analysis.timeline.events import Events


def explain_in_slices(
    events: Events, gaps: pl.DataFrame, scratch: Scratch, *, framework_gap_ns: int
) -> Explained:
    """What `explain` says of all gaps, without the host's side.

    Args:
        events: the trace.
        gaps: as `find_gaps` returns them.
        scratch: where each slice is kept.
        framework_gap_ns: as for `explain`.
    """
    slices = [*_explained(events, gaps, scratch, framework_gap_ns)]
    return Explained(
        gaps=scratch.joined(each.gaps for each in slices),
        charges=scratch.joined(each.charges for each in slices),
        in_calls={
            cause: _end_to_end([each.in_calls[cause] for each in slices], scratch)
            for cause in slices[0].in_calls
        },
        host_side=None,
        standing=slices[-1].standing,
    )


def _explained(
    events: Events, gaps: pl.DataFrame, scratch: Scratch, framework_gap_ns: int
) -> Iterator[Explained]:
    standing = AT_THE_START
    for rows in scratch.slices(gaps):
        found = explain(
            events, rows, framework_gap_ns=framework_gap_ns, standing=standing, divided=True
        )
        standing = found.standing
        yield scratch.kept(found)


def _end_to_end(times: list[CallTime], scratch: Scratch) -> CallTime:
    """The time in calls of all slices. The covered time of each slice begins where that of the one
    before ends."""
    shifts, shift = [], 0
    for time in times:
        shifts.append(shift)
        shift += time.cover.intervals.select((pl.col("end") - pl.col("start")).sum()).item()
    return CallTime(
        cover=Cover(scratch.joined(time.cover.intervals for time in times)),
        spans=scratch.joined(
            time.spans.with_columns(pl.col("begin", "stop") + by)
            for time, by in zip(times, shifts, strict=True)
        ),
    )
