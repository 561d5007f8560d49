"""The slices of a trace: which event ends what another one began (spec §1.1).

Perfetto's rule is a stack for each track, along the time. It goes wrong where a slice begins at the
nanosecond in which another one ends, and their events are not in order of time in the file. So what
the writer's own order says comes first:

- rocprofv3 and nsysflow write the end of a slice right behind its begin;
- torch.profiler writes the begins of many slices, and then their ends in the same order.
"""

from collections import defaultdict
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import repeated, scatter_table
from nsysflow.analysis.load.pftrace.contents import BEGIN, END
from nsysflow.analysis.schema import is_possible

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
