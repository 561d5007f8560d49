"""Where the host was for each idle nanosecond (spec §3.17 to §3.21)."""

from collections.abc import Mapping
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, STALLS
from nsysflow.analysis.frames.columns import greatest, repeated, scatter_table
from nsysflow.analysis.idle.host_time import CallTime
from nsysflow.analysis.idle.run_ahead import CausedGaps, GapCauses

IDLE_PARTS: Final = pl.Schema(
    {
        "gap": pl.UInt32(),
        "path": pl.UInt32(),
        "ns": pl.Int64(),
        "split": pl.Boolean(),
        "call": pl.UInt32(),
    }
)
"""The idle time of one cause, a row per gap and place. `path` is null outside all ranges, and where
the launch was not recorded; `split` marks gaps in which the cause has several places, and only
there `call` is the culprit."""
IdleParts = Annotated[pl.DataFrame, IDLE_PARTS]


def idle_parts(
    causes: GapCauses,
    in_calls: Mapping[str, CallTime],
    host_path: pl.Series,
    queue_path: pl.Series,
    path_of_call: pl.Series,
    begun_ns: pl.Series,
) -> dict[str, IdleParts]:
    """All idle time by cause.

    Args:
        causes: the gaps with their causes.
        in_calls: of `ExplainedGaps`.
        host_path: per gap, where the host was between calls.
        queue_path: per gap, the path of the launch that ended it; inside a replay of a graph, that
            of the operation.
        path_of_call: by row of the calls that idle time lies in or is charged to.
        begun_ns: when each call began, by row.
    """
    gaps, charges = causes.gaps, causes.charges
    outside = repeated(None, len(gaps), pl.UInt32)
    between = {"profiler": host_path, "host": host_path, "unknown": outside}
    between |= {"queue_delay": queue_path, "dependency": queue_path}
    charged = charges.with_columns(path_of_call[charges["call"]].alias("path"))
    parts = {}
    for cause in CAUSES:
        ns = gaps[f"{cause}_ns"]
        if greatest(ns) == 0:  # most causes are rare
            parts[cause] = IDLE_PARTS.to_frame()
        elif cause in between:
            path = between[cause].alias("path")
            parts[cause] = _whole(pl.DataFrame([gaps["gap"], path, ns.alias("ns")]))
        elif cause in STALLS:
            parts[cause] = _by_place(charged.filter(pl.col("cause") == cause), begun_ns)
        else:
            inside = in_calls[cause]
            apart, whole = _with_time_between(inside.places(path_of_call), ns, host_path)
            calls = inside.calls_in(apart["gap"])
            calls = calls.with_columns(path_of_call[calls["call"]].alias("path"))
            columns = ["gap", "path", "call", "ns"]
            pieces = pl.concat([calls.select(columns), apart.select(columns)])
            parts[cause] = pl.concat([_whole(whole), _by_place(pieces, begun_ns)])
    return parts


def main_paths(gaps: CausedGaps, parts: dict[str, IdleParts], rank: pl.Series) -> pl.Series:
    """Per gap, the place with most of its largest cause; the first by `rank` on a tie.

    Args:
        gaps: all gaps.
        parts: of `idle_parts`.
        rank: the order of the paths, by number.
    """
    chosen = [IDLE_PARTS.to_frame()[["gap", "path"]]]
    for cause, rows in parts.items():
        if rows.is_empty():  # most causes are rare
            continue
        mine = rows.filter((gaps["cause"] == cause)[rows["gap"]])
        if mine.is_empty():
            continue
        several = mine.filter("split").with_columns(_ranked(mine.filter("split")["path"], rank))
        best = several.sort("gap", -pl.col("ns"), "rank").unique("gap", keep="first")
        chosen += [mine.filter(~pl.col("split"))[["gap", "path"]], best[["gap", "path"]]]
    places = pl.concat(chosen)
    return scatter_table(len(gaps), places["gap"], places["path"])


def _ranked(path: pl.Series, rank: pl.Series) -> pl.Series:
    return rank[path].fill_null(0).alias("rank")


def _whole(parts: pl.DataFrame) -> IdleParts:
    """The parts (`gap`, `path`, `ns`) of gaps with one place."""
    split, call = pl.lit(value=False).alias("split"), pl.lit(None, pl.UInt32).alias("call")
    return parts.filter(pl.col("ns") > 0).select("gap", "path", "ns", split, call)


def _by_place(pieces: pl.DataFrame, begun_ns: pl.Series) -> IdleParts:
    """The parts that the pieces of calls make up.

    Args:
        pieces: `gap`, `path`, `ns`, and `call`, which is null between calls.
        begun_ns: when each call began, by row.
    """
    if pieces.is_empty():
        return IDLE_PARTS.to_frame()
    several = pieces["gap"].is_duplicated()
    alone = _whole(pieces.filter(~several))
    ranked = pieces.filter(several, pl.col("ns") > 0)
    ranked = ranked.with_columns(begun_ns[ranked["call"]].alias("begun"))
    # between calls comes after the call that has as much
    ranked = ranked.sort("gap", "path", -pl.col("ns"), "begun", "call", nulls_last=True)
    places = ranked.group_by("gap", "path", maintain_order=True).agg(
        pl.col("ns").sum(), pl.col("call").first()
    )
    places = places.with_columns((pl.len().over("gap") > 1).alias("split"))
    culprit = pl.when("split").then("call").alias("call")
    return pl.concat([alone, places.select("gap", "path", "ns", "split", culprit)])


def _with_time_between(
    inside: pl.DataFrame, ns: pl.Series, host_path: pl.Series
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The time of a cause that lies inside calls, with the rest, which lies between them.

    Args:
        inside: of `CallTime.places`.
        ns: per gap, all time of the cause.
        host_path: per gap, where the host was between calls.

    Returns:
        The time between calls in gaps with several places: `gap`, `path`, `call` (null), `ns`; and
        all of it in those with one: `gap`, `path`, `ns`.
    """
    of_calls = {
        name: scatter_table(len(ns), inside["gap"], inside[name])
        for name in ("inside_ns", "path", "several")
    }
    rows = pl.DataFrame({**of_calls, "ns": ns, "host": host_path}).with_row_index("gap")
    rows = rows.filter(pl.col("ns") > 0).with_columns(pl.col("inside_ns").fill_null(0))
    inside_ns, rest_ns = pl.col("inside_ns"), pl.col("ns") - pl.col("inside_ns")
    same = (inside_ns == 0) | (rest_ns == 0) | pl.col("path").eq_missing(pl.col("host"))
    several = pl.col("several").fill_null(value=False) | ~same
    path = pl.when(inside_ns > 0).then("path").otherwise("host").alias("path")
    nobody = pl.lit(None, pl.UInt32).alias("call")
    return (
        rows.filter(several).select(
            "gap", pl.col("host").alias("path"), nobody, rest_ns.alias("ns")
        ),
        rows.filter(~several).select("gap", path, "ns"),
    )
