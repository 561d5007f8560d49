"""The GPU operations of the picture, and their classes."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import by_number
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.tables.kernels.classes import Rules, class_of
from nsysflow.analysis.tracks.depths import depths
from nsysflow.analysis.tracks.lanes import Lanes
from nsysflow.analysis.tracks.schema import OPERATIONS

COMMUNICATION: Final = "communication"

_GROUPS: Final = {COMMUNICATION: COMMUNICATION, "memset": "copy"}
"""What classes count as that are neither compute nor named like a copy."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Rows in the order of the picture.

    Attributes:
        rows: the rows.
        place: where in `rows` each row of the events is.
    """

    rows: pl.DataFrame
    place: pl.Series


def sorted_by_lane(rows: pl.DataFrame, lane: pl.Series) -> Placed:
    """`rows` by `lane`, each lane in the order of `rows`."""
    rows = rows.with_columns(lane.alias("lane"))
    if rows["lane"].is_sorted():
        return Placed(rows=rows, place=pl.int_range(len(rows), dtype=pl.UInt32, eager=True))
    order = rows.select("lane").with_row_index("row").sort("lane", maintain_order=True)["row"]
    place = by_number(len(rows), order, pl.int_range(len(rows), dtype=pl.UInt32, eager=True))
    return Placed(rows=rows[order], place=place)


def with_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus `depth`."""
    return rows.with_columns(depths(rows))


def operations(timeline: Timeline, lanes: Lanes, call_place: pl.Series) -> Placed:
    """`schema.OPERATIONS`.

    Args:
        timeline: the report.
        lanes: of the report.
        call_place: the row of each call in `schema.CALLS`.
    """
    ops = timeline.ops
    rows = ops.select(
        "start_ns",
        "end_ns",
        pl.col("short_name").alias("name"),
        pl.col("name").alias("full_name"),
        _classes(ops, timeline.options.kernel_classes),
        call_place.gather(ops["call"]).alias("call"),
        timeline.attribution.path_of(ops["node"]).alias("phase"),
        _bytes(timeline, ops),
        pl.when(pl.col("kind") == "kernel").then("detail").alias("shape"),
    )
    placed = sorted_by_lane(rows, lanes.numbered("stream", lanes.stream_no))
    drawn = with_depths(placed.rows).select(OPERATIONS.names()).match_to_schema(OPERATIONS)
    return Placed(rows=drawn, place=placed.place)


def _classes(ops: pl.DataFrame, more: Rules) -> pl.Series:
    """The `class` of each operation; each distinct name is classified once."""
    key = ["kind", "name", "short_name"]
    names = ops.select(key).unique()
    name, short_name = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    kernel = class_of(name, short_name, more).replace("comm", COMMUNICATION)
    kind = pl.col("kind")
    copied = short_name.str.replace("^memcpy", "copy")
    found = (
        pl.when(kind == "kernel")
        .then(kernel)
        .when(kind == "memcpy")
        .then(copied)
        .otherwise(kind.cast(pl.String))
    )
    classes = names.with_columns(found.cast(pl.Categorical).alias("class"))
    found_classes = ops.select(key).join(
        classes, on=key, how="left", maintain_order="left", nulls_equal=True
    )
    return found_classes["class"]


def _bytes(timeline: Timeline, ops: pl.DataFrame) -> pl.Series:
    """The `bytes` of each copy; null for other operations."""
    detail = ops.select(pl.when(pl.col("kind") == "memcpy").then("detail")).to_series()
    return timeline.trace.copy_details["bytes"].gather(detail).alias("bytes")


def group_of(name: str) -> str:
    """Whether a class of operations is compute, communication or a copy."""
    return _GROUPS.get(name, "copy" if name.startswith("copy ") else "compute")
