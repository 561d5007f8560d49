"""The communication kernels of all reports of a run, by rank and lane (spec §9.4, §9.12)."""

from collections.abc import Sequence
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, flatten, on_axis
from nsysflow.analysis.ranks.digest import EXCHANGED, JUDGED_STEPS, Digest

POINT_TO_POINT: Final = r"(?i)send|recv"
"""Matches the names of kernels in which two ranks take part, as a rule."""

ALL_TO_ALL: Final = r"(?i)all_?(?:to|2)_?all"
"""Matches names and operations in which each rank sends to each: some are sends and receives."""

NUMBERED_RANKS: Final = pl.Schema(
    {
        "rank": pl.Int64(),
        "report_no": pl.Int64(),
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
    }
)
"""A row per rank of a run, in the order of the reports; the row number is `rank`."""
NumberedRanks = Annotated[pl.DataFrame, NUMBERED_RANKS]

RUN_STEPS: Final = pl.Schema({**JUDGED_STEPS, "report_no": pl.Int64(), "rank": pl.Int64()})
"""A row per step of each rank."""
RunSteps = Annotated[pl.DataFrame, RUN_STEPS]

_RANK: Final = ["report_no", "process", "device"]
_BY_START: Final = ["start_ns", "end_ns", "stream"]


def ranks_of(digests: Sequence[Digest]) -> NumberedRanks:
    """The ranks of a run: of a report those with communication; of one without any, those with
    steps."""
    parts = []
    for number, digest in enumerate(digests):
        rows = digest.steps if digest.collectives.is_empty() else digest.collectives
        parts.append(
            rows.select(
                pl.lit(number, pl.Int64).alias("report_no"),
                pl.lit(digest.report).alias("report"),
                *("process", "device"),
            ).unique()
        )
    if not parts:
        return NUMBERED_RANKS.to_frame()
    ranks = pl.concat(parts).sort(_RANK)
    return ranks.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("rank"), pl.all())


def kernels_of(digests: Sequence[Digest], ranks: NumberedRanks) -> pl.DataFrame:
    """EXCHANGED of all reports by rank and start, plus `report_no`, `rank`, `point_to_point`,
    `exposed_ns`, and `lane`, `turn`: the kernel's number in its lane.

    A lane is the kernels of a name that a rank runs for one communicator, or on one stream where
    NCCL states none.
    """
    rows = _of_ranks([digest.collectives for digest in digests], EXCHANGED.to_frame(), ranks)
    unknown = pl.col("communicator").is_null()
    sends = pl.col("name").str.contains(POINT_TO_POINT)
    each_to_each = pl.col("operation").str.contains(ALL_TO_ALL).fill_null(value=False)
    rows = rows.sort("rank", *_BY_START)
    rows = rows.with_columns(
        exposed_of(rows),
        (sends & ~each_to_each).alias("point_to_point"),
        pl.when(unknown).then("stream").alias("on"),
    )
    key = ["rank", "name", "communicator", "on"]
    lanes = rows.select(key).unique().sort(key)
    lanes = lanes.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("lane"))
    rows = rows.join(lanes, on=key, nulls_equal=True, maintain_order="left").drop("on")
    return rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("lane").alias("turn"))


def exposed_of(rows: pl.DataFrame) -> pl.Series:
    """`exposed_ns` of each kernel: the exposed communication while it runs; where several run on a
    rank, of the one that started last, as compute waits for that.

    Args:
        rows: EXCHANGED by `rank` and start.
    """
    if rows.is_empty():
        return pl.Series("exposed_ns", [], dtype=pl.Int64)
    first_ns, last_ns = rows.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    axis = Axis.over(first_ns, last_ns, margin_ns=1)
    places = on_axis(rows, axis, "rank").with_row_index("row")
    pieces = flatten(places.sort("start", "row"), rank=_started_last, keep=["row"])
    spent = pl.concat(
        [
            pl.DataFrame({"place": places["start"], "spent_ns": rows["comm_before_ns"]}),
            pl.DataFrame({"place": places["end"], "spent_ns": rows["comm_until_ns"]}),
        ]
    ).unique("place")
    own = (
        pieces.join(spent, left_on="start", right_on="place")
        .join(spent, left_on="end", right_on="place", suffix="_until")
        .group_by("row")
        .agg((pl.col("spent_ns_until") - pl.col("spent_ns")).sum().alias("exposed_ns"))
    )
    joined = places.select("row").join(own, on="row", how="left", maintain_order="left")
    return joined["exposed_ns"].fill_null(0)


def _started_last(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of kernels that run together: last started first."""
    return claims.select(-pl.col("start"), -pl.col("row").cast(pl.Int64))


def steps_of(digests: Sequence[Digest], ranks: NumberedRanks) -> RunSteps:
    """The steps of all ranks."""
    return _of_ranks([digest.steps for digest in digests], JUDGED_STEPS.to_frame(), ranks)


def _of_ranks(
    frames: Sequence[pl.DataFrame], blank: pl.DataFrame, ranks: NumberedRanks
) -> pl.DataFrame:
    """The rows of all reports, with `report_no` and `rank`; only those of ranks."""
    numbered = [
        frame.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
        for number, frame in enumerate([blank, *frames], start=-1)
    ]
    keys = ranks[["rank", *_RANK]]
    return pl.concat(numbered).join(keys, on=_RANK, nulls_equal=True, maintain_order="left")
