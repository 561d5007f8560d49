"""How fast NCCL moved its bytes, and which link is slow (spec §9.17, §9.18)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns, percent
from nsysflow.analysis.ranks.groups import ALL_RANKS, GROUP_KIND
from nsysflow.analysis.ranks.outliers import is_far, robust_z
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.base.peaks import NVLINK

BANDWIDTH: Final = TableSchema(
    """One row per group, operation and size of the communication; `group` is null for kernels of
    which only one rank is known. `size_bytes` is the message rounded down to a power of two,
    `bytes` the median of what the operation moves by NCCL's count: an all-gather's message times
    the ranks. `done_ns` is the median time from the last rank's arrival to the end; a kernel's own
    duration where only one rank is known. `peak_bytes_per_s` is NVLink's, one way, if the ranks
    share a host. `slow_ns` is what a slow link cost: the time beyond the other groups' median, or
    beyond the median of its own steps where there is one group.""",
    [
        Column(
            "group",
            pl.Int64(),
            "the group's number, as in rank_groups; empty for kernels of which one rank is known",
        ),
        Column("kind", GROUP_KIND, "what the ranks of the group share, as in rank_groups"),
        *shared("operation"),
        Column(
            "size_bytes",
            pl.Int64(),
            "the message size that NCCL states, rounded down to a power of two; empty where it "
            "states none",
        ),
        Column("ranks", pl.Int64(), "how many ranks are in the group"),
        Column("count", pl.Int64(), "how many collectives"),
        Column("bytes", pl.Int64(), "the median of what one moves, by NCCL's count"),
        Column(
            "done_ns",
            pl.Int64(),
            "the median time from the last rank's arrival to the end; where one rank is known, the "
            "kernels' duration",
        ),
        Column(
            "algorithm_bytes_per_s",
            pl.Float64(),
            "`bytes` by `done_ns`: NCCL's algorithm bandwidth",
        ),
        Column(
            "bus_bytes_per_s",
            pl.Float64(),
            "what that takes of each link: NCCL's bus bandwidth, which can be compared with the "
            "peak",
        ),
        Column(
            "peak_bytes_per_s",
            pl.Float64(),
            "NVLink's peak of one GPU, one way; empty where it is not known, or the ranks do not "
            "share a host",
        ),
        Column("peak_pct", pl.Float64(), "bus bandwidth, of the peak"),
        Column(
            "overlapped_pct",
            pl.Float64(),
            "the share of the kernels' time in which another communication kernel ran on the same "
            "GPU",
        ),
        Column(
            "slow_ns",
            pl.Int64(),
            "what a slow link cost, all together; empty where the link is as fast as the others",
        ),
    ],
)


_OPERATIONS: Final = (
    ("ncclAllReduce", r"(?i)all_?reduce", 2, False),
    ("ncclAllGather", r"(?i)all_?gather", 1, True),
    ("ncclReduceScatter", r"(?i)reduce_?scatter", 1, True),
    ("ncclAlltoAll", r"(?i)all_?(?:to|2)_?all", 1, True),
    ("ncclBroadcast", r"(?i)broadcast|bcast", None, False),
    ("ncclReduce", r"(?i)reduce", None, False),
    ("ncclSend", r"(?i)send|recv", None, False),
)
"""Name, pattern, how often each byte crosses a link over (n - 1) / n (None: once), and whether the
message that NCCL states is one rank's share. As in NCCL's nccl-tests, doc/PERFORMANCE.md."""

SLOW: Final = 10
"""A slow link takes longer by at least one part in this many."""

FEWEST: Final = 3
"""So many groups or steps it takes to tell the odd one."""

_OF: Final = ["group", "operation", "size_bytes"]
_ALIKE: Final = ["kind", "ranks", "operation", "size_bytes"]
_NO_GROUP: Final = pl.lit(None, pl.Int64)


def bandwidth_table(
    rows: pl.DataFrame, alone: pl.DataFrame, kinds: pl.DataFrame, gpus: pl.DataFrame
) -> pl.DataFrame:
    """BANDWIDTH.

    Args:
        rows: of `arrivals.aligned`, those to sum up.
        alone: kernels that met no others.
        kinds: `group`, `kind`.
        gpus: `report_no`, `device`, `name`.
    """
    transfers = _transfers(rows, alone)
    table = (
        transfers.group_by(_OF)
        .agg(
            pl.col("ranks").first().cast(pl.Int64),
            pl.len().cast(pl.Int64).alias("count"),
            median_ns(pl.col("bytes")).alias("bytes"),
            pl.col("done_ns").sum().alias("all_done_ns"),
            median_ns(pl.col("done_ns")).alias("done_ns"),
            percent(pl.col("overlapped_ns").sum(), pl.col("total_ns").sum()).alias(
                "overlapped_pct"
            ),
        )
        .join(kinds, on="group", how="left")
        .join(_peaks(rows, gpus), on="group", how="left")
    )
    slow = pl.when(pl.len().over(_ALIKE) >= FEWEST).then("slow_ns").otherwise("slow_steps_ns")
    met = pl.col("group").is_not_null()
    return (
        table.with_columns(_slow_ns())
        .join(_slow_steps(transfers), on=_OF, how="left", nulls_equal=True)
        .with_columns(pl.when(met).then(slow).alias("slow_ns"), *_per_second())
        .with_columns(
            percent(pl.col("bus_bytes_per_s"), pl.col("peak_bytes_per_s")).alias("peak_pct")
        )
        .sort(_OF, nulls_last=True)
        .select([*BANDWIDTH])
        .match_to_schema(BANDWIDTH)
    )


def _transfers(rows: pl.DataFrame, alone: pl.DataFrame) -> pl.DataFrame:
    """A row per collective, and per kernel that met no other: `_OF`, `ranks` (null for the latter),
    `bytes`, `done_ns`, `step`, `overlapped_ns`, `total_ns` (of its kernels)."""
    lasts = pl.col("end_ns") - pl.col("start_ns")
    met = rows.with_columns(lasts.alias("total_ns"), _operation())
    transfers = met.group_by("group", "collective").agg(
        pl.col("bytes").max(),
        pl.col("operation", "done_ns").first(),
        pl.len().cast(pl.Int64).alias("ranks"),
        pl.col("step").min(),
        pl.col("overlapped_ns", "total_ns").sum(),
    )
    single = alone.select(
        _operation(),
        lasts.alias("done_ns"),
        lasts.alias("total_ns"),
        *("bytes", "step", "overlapped_ns"),
        _NO_GROUP.alias("group"),
        _NO_GROUP.alias("ranks"),
    )
    messages = pl.concat([transfers.drop("collective"), single], how="diagonal")
    power = pl.lit(2, pl.Int64).pow(pl.col("bytes").log(2).floor())
    return messages.with_columns(
        pl.when(pl.col("bytes") > 0)
        .then(power)
        .otherwise("bytes")
        .cast(pl.Int64)
        .alias("size_bytes")
    )


def _operation() -> pl.Expr:
    """NCCL's name of what the kernel does; the kernel's own name where it is none of these."""
    known = [
        pl.when(pl.col(column).str.contains(pattern)).then(pl.lit(name))
        for column in ("operation", "name")
        for name, pattern, _, _ in _OPERATIONS
    ]
    return pl.coalesce(*known, "name").alias("operation")


def _per_second() -> tuple[pl.Expr, ...]:
    """`bytes` by NCCL's count, `algorithm_bytes_per_s`, `bus_bytes_per_s`."""
    ranks = pl.col("ranks")
    crossing = {
        name: pl.lit(1.0) if often is None else often * (ranks - 1) / ranks
        for name, _, often, _ in _OPERATIONS
    }
    shares = [name for name, _, _, share in _OPERATIONS if share]
    moved = pl.col("bytes") * pl.when(pl.col("operation").is_in(shares)).then(ranks).otherwise(1)
    speed = pl.when(pl.col("done_ns") > 0).then(1e9 * moved / pl.col("done_ns"))
    often = pl.coalesce(
        pl.when(pl.col("operation") == name).then(factor) for name, factor in crossing.items()
    )
    return (
        moved.alias("bytes"),
        speed.alias("algorithm_bytes_per_s"),
        (speed * often).alias("bus_bytes_per_s"),
    )


def _peaks(rows: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """`group`, `peak_bytes_per_s`: NVLink's, where all GPUs are the same and seem to share a host,
    as no two have the same index."""
    ranks = rows[["group", "rank", "report_no", "device"]].unique()
    same = pl.col("name").n_unique() == 1
    peak = pl.col("name").replace_strict(NVLINK, default=None, return_dtype=pl.Float64)
    return (
        ranks.join(gpus, on=["report_no", "device"], how="left")
        .group_by("group")
        .agg(
            pl.when(same & ~pl.col("device").is_duplicated().any())
            .then(peak.first())
            .alias("peak_bytes_per_s")
        )
    )


def _slow_ns() -> pl.Expr:
    """What a group took longer than the median of the groups like it, if that is far."""
    done, count = pl.col("done_ns"), pl.col("count")
    usual = median_ns(done).over(_ALIKE)
    cost = pl.col("all_done_ns") - count * usual
    return pl.when(_is_slow(done, usual, _ALIKE)).then(cost).alias("slow_ns")


def _slow_steps(transfers: pl.DataFrame) -> pl.DataFrame:
    """`_OF`, `slow_steps_ns`: what slow steps took longer than the median step."""
    done = pl.col("done_ns")
    steps = (
        transfers.drop_nulls("step")
        .group_by(*_OF, "step")
        .agg(median_ns(done).alias("done_ns"), done.sum().alias("all_ns"), pl.len().cast(pl.Int64))
    )
    usual = median_ns(done).over(_OF)
    return (
        steps.filter(pl.len().over(_OF) >= FEWEST)
        .with_columns(usual.alias("usual_ns"), _is_slow(done, usual, _OF).alias("slow"))
        .filter("slow")
        .group_by(_OF)
        .agg((pl.col("all_ns") - pl.col("len") * pl.col("usual_ns")).sum().alias("slow_steps_ns"))
    )


def _is_slow(done: pl.Expr, usual: pl.Expr, over: list[str]) -> pl.Expr:
    """Whether a time is far above the usual one."""
    return is_far(robust_z(done, *over)) & (SLOW * (done - usual) >= usual) & (done > usual)


TABLES: Final = (
    Table(
        name="bandwidth",
        schema=BANDWIDTH,
        scope="run",
        csv="with rows",
        json_key="bandwidth",
        page_rows=3,
        full_rows=64,
        filled_by=ALL_RANKS,
        shown=(
            "kind operation size_bytes bus_bytes_per_s peak_pct algorithm_bytes_per_s "
            "done_ns count slow_ns overlapped_pct group ranks"
        ),
    ),
)
