"""The tracks of a trace: the slices on each, and the thread that it belongs to (spec §1.1).

An event begins a slice, and another one ends it. Which one does is, by Perfetto's rule, a matter of
a stack for each track, along the time. It goes wrong where a slice begins at the nanosecond in
which another one ends, and their events are not in order of time in the file. So what the writer's
own order says comes first:

- rocprofv3 and nsysflow write the end of a slice right behind its begin;
- torch.profiler writes the begins of many slices, and then their ends in the same order.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.columns import repeated, scatter_table
from nsysflow.analysis.load.pftrace.contents import BEGIN, END
from nsysflow.analysis.load.pftrace.names import Track
from nsysflow.analysis.schema import ID_BITS, ID_MASK, is_possible

SLICES: Final = pl.Schema(
    {
        "row": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "track": pl.UInt64(),
        "name": pl.Categorical(),
        "category": pl.Categorical(),
    }
)
"""One row per slice, in the order of their begins in the file: the `row` of the event that begins
it. `end_ns` is null for a slice that never ended."""

_PAIRS: Final = pl.Schema({"begin": pl.UInt32(), "end": pl.UInt32()})
"""One row per slice: which event begins it, and which one ends it."""


def slices_of(events: pl.DataFrame) -> pl.DataFrame:
    """`SLICES` of `EVENTS`."""
    edges = events.filter(pl.col("type").is_in([BEGIN, END]))
    edges = edges.with_columns((pl.col("type") == BEGIN).alias("begins")).with_row_index("edge")
    pairs = _in_order(edges)
    paired = repeated(value=False, length=len(edges))
    for column in pairs.iter_columns():
        paired = paired.scatter(column, True)
    pairs = pl.concat([pairs, _on_stacks(edges.filter(~paired))])
    end_ns = scatter_table(len(edges), pairs["begin"], edges["time_ns"][pairs["end"]])
    slices = edges.with_columns(end_ns.alias("end_ns")).filter("begins")
    return slices.rename({"time_ns": "start_ns"}).select(SLICES.names())


def at_possible_times(slices: pl.DataFrame) -> pl.DataFrame:
    """Those of `slices` (`start_ns`, `end_ns`) whose times a trace can have; an end may be null."""
    ended = is_possible(pl.col("end_ns")).fill_null(value=True)
    return slices.filter(is_possible(pl.col("start_ns")), ended)


def _in_order(edges: pl.DataFrame) -> pl.DataFrame:
    """`_PAIRS` where a run of begins is followed by as many ends on the same tracks: by a single
    one, or by several that are not in order of time."""
    run = pl.col("begins").rle_id().alias("run")
    first = (pl.col("run") != pl.col("run").shift(1)).fill_null(value=True)
    back = (pl.col("time_ns") < pl.col("time_ns").shift(1)).fill_null(value=False)
    edges = edges.with_columns(run).with_columns(
        back.alias("back"), (back & ~first).alias("within")
    )
    runs = edges.group_by("run", maintain_order=True).agg(
        pl.len().alias("length"), pl.col("begins").first(), pl.col("back", "within").any()
    )
    unsorted = pl.col("within") | pl.col("back").shift(-1)
    as_many = pl.col("begins") & (pl.col("length") == pl.col("length").shift(-1))
    runs = runs.with_columns(fits=as_many & ((pl.col("length") == 1) | unsorted))
    begins = edges.filter(runs["fits"].fill_null(value=False)[edges["run"]])
    end = begins["edge"] + runs["length"][begins["run"]]
    same = (edges["track"][end] == begins["track"]) & (edges["time_ns"][end] >= begins["time_ns"])
    pairs = begins.select(
        "run", pl.col("edge").alias("begin"), end.alias("end"), same.alias("same")
    )
    return pairs.filter(pl.col("same").all().over("run")).select(_PAIRS.names())


def _on_stacks(edges: pl.DataFrame) -> pl.DataFrame:
    """`_PAIRS` of the other events: an end is that of the slice that began last on its track."""
    open_: dict[int, list[int]] = defaultdict(list)
    pairs = []
    in_time = edges.sort("time_ns", maintain_order=True).select("edge", "track", "begins")
    for edge, track, begins in in_time.iter_rows():
        if begins:
            open_[track].append(edge)
        elif open_[track]:
            pairs.append((open_[track].pop(), edge))
    return pl.DataFrame(pairs, _PAIRS, orient="row")


_OWNERS: Final = pl.Schema({"track": pl.UInt64(), "process": pl.Int64(), "of_track": pl.Int64()})


@dataclass(frozen=True)
class Threads:
    """The owners of tracks.

    Attributes:
        owners: `track`, and the keys of its `process` and of its thread (`of_track`); null where it
            has none.
        named: `schema.THREADS`.
    """

    owners: pl.DataFrame
    named: pl.DataFrame

    def placed(self, track: pl.Series, tid: pl.Series | None = None) -> pl.DataFrame:
        """The `process` and the `thread` of events on these tracks; the thread with this `tid`
        where that is known."""
        rows = track.alias("track").to_frame()
        rows = rows.join(self.owners, on="track", how="left", maintain_order="left")
        own = pl.col("of_track")
        if tid is not None:
            own = pl.coalesce(pl.col("process") + pl.lit(tid & ID_MASK), own)
        return rows.select("process", own.alias("thread"))


def threads_of(tracks: Mapping[int, Track]) -> Threads:
    """The owners of these tracks."""
    pids = inherited(tracks, {number: track.pid for number, track in tracks.items()})
    tids = inherited(tracks, {number: track.tid for number, track in tracks.items()})
    rows, named = [], {}
    for number, track in tracks.items():
        pid, tid = pids[number], tids[number]
        process = None if pid is None else (pid & ID_MASK) << ID_BITS
        thread = None if process is None or tid is None else process | tid & ID_MASK
        rows.append((number, process, thread))
        if thread is not None and track.tid is not None and track.title:
            named[thread] = (process, thread, track.title)
    return Threads(
        owners=pl.DataFrame(rows, _OWNERS, orient="row"),
        named=pl.DataFrame(
            [named[thread] for thread in sorted(named)], schema.THREADS, orient="row"
        ),
    )


def inherited(tracks: Mapping[int, Track], own: Mapping[int, int | None]) -> dict[int, int | None]:
    """What each track has itself, or the nearest of those around it. A track that is around itself
    has nothing."""
    found: dict[int, int | None] = {}
    for number in tracks:
        path: dict[int, None] = {}
        while number in tracks and number not in found and number not in path:
            path[number] = None
            number = number if own[number] is not None else tracks[number].parent
        value = own.get(number) if number in path else found.get(number)
        found.update(dict.fromkeys(path, value))
    return found
