"""Why a rank came late to a collective: what it did since the last one (spec §9.13)."""

from typing import Final

import polars as pl

from nsysflow.analysis.tables.schema import REASONS

_PARTS: Final = ("compute", "copy", "comm")


def with_reasons(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `arrivals.aligned`, plus `late_work_ns` to `late_host_ns`, which sum to
    `late_ns`, and `begun_ns`: since when, on the report's own clock (null for the first).

    Joins are of few columns: rows have fifty, and there may be a million of them.
    """
    parts = _parts_before(rows)
    first = parts.filter("first").select("collective", pl.col(REASONS).name.suffix("_first"))
    more = parts.join(first, on="collective", maintain_order="left").select(
        "late_ns",
        "begun_ns",
        *(
            (pl.col(name) - pl.col(f"{name}_first")).clip(0).fill_null(0).alias(name)
            for name in REASONS
        ),
    )
    found = more.select("begun_ns", *_shares(pl.col("late_ns")))
    return rows.hstack(found.get_columns())


def _parts_before(rows: pl.DataFrame) -> pl.DataFrame:
    """`collective`, `first`, `late_ns`, `begun_ns`, and how long the rank did what since it was
    last in step with its group; null where it never was. In the order of `rows`.

    Ranks are in step at the end of a collective that the compute of all waited for. It is the last
    one that had ended when the first rank came to this one.
    """
    each = rows.unique("collective").select(
        "collective", "party", "arrived_ns", "ended_ns", "in_step"
    )
    before = each.sort("arrived_ns").join_asof(
        each.filter("in_step")
        .select("party", "ended_ns", previous="collective")
        .sort("ended_ns", "previous"),
        left_on="arrived_ns",
        right_on="ended_ns",
        by="party",
        check_sortedness=False,
    )
    there = rows.select(
        pl.col("collective").alias("previous"),
        *("rank", pl.col("own_end_ns").alias("begun_ns")),
        *(pl.col(f"{part}_until_ns") for part in _PARTS),
    )
    since = (
        rows.select(
            *("collective", "rank", "first", "late_ns", "own_start_ns"),
            *(f"{part}_before_ns" for part in _PARTS),
        )
        .join(before.select("collective", "previous"), on="collective", maintain_order="left")
        .join(there, on=["previous", "rank"], how="left", maintain_order="left")
    )
    compute, copies, comm = (
        pl.col(f"{part}_before_ns") - pl.col(f"{part}_until_ns") for part in _PARTS
    )
    idle = pl.col("own_start_ns") - pl.col("begun_ns") - compute - copies - comm
    return since.with_columns(
        part.alias(name) for part, name in zip((compute, copies, comm, idle), REASONS, strict=True)
    )


def _shares(late: pl.Expr) -> list[pl.Expr]:
    """`late` shared in proportion to REASONS, by largest remainder; all of it is the host's where
    nothing took longer."""
    *_, host = REASONS
    total = pl.sum_horizontal(REASONS)
    weights = [
        pl.when(total == 0).then(int(name == host)).otherwise(name).cast(pl.Int128)
        for name in REASONS
    ]
    whole = pl.max_horizontal(total, 1)
    left = [late * weight % whole for weight in weights]
    missing = pl.sum_horizontal(left) // whole
    shares = []
    for at, (name, weight) in enumerate(zip(REASONS, weights, strict=True)):
        ahead = pl.sum_horizontal(
            (other >= left[at]) if before < at else (other > left[at])
            for before, other in enumerate(left)
        )
        shares.append((late * weight // whole + (ahead < missing)).cast(pl.Int64).alias(name))
    return shares
