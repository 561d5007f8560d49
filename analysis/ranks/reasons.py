"""Why a rank held up the others: what it did longer than the next one (spec §9.13)."""

from typing import Final

import polars as pl

from nsysflow.analysis.tables.schema import REASONS

_PARTS: Final = ("compute", "copy", "comm")


def with_reasons(stretches: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`collective`, `rank`, `cost_ns`, REASONS and `begun_ns` of each stretch.

    Both ranks were in step when it began, and are when it ends. So what one did longer, the other
    spent in exposed communication of the group.

    Args:
        stretches: of `costs.stretches_of`.
        rows: of `arrivals.aligned`.
    """
    ends = rows.select(
        *("collective", "rank", pl.col("own_end_ns").alias("end_ns")),
        *(pl.col(f"{part}_until_ns").alias(part) for part in _PARTS),
    )
    mine = _parts(stretches, ends, "rank", "own_ns")
    other = _parts(stretches, ends, "second", "second_own_ns").drop("begun_ns")
    both = stretches.hstack(mine.get_columns()).hstack(
        other.select(pl.all().name.suffix("_other")).get_columns()
    )
    longer = [(pl.col(name) - pl.col(f"{name}_other")).clip(0).fill_null(0) for name in REASONS]
    return both.select(
        "collective",
        "rank",
        "cost_ns",
        "begun_ns",
        *(each.alias(name) for each, name in zip(longer, REASONS, strict=True)),
    ).with_columns(_shares(pl.col("cost_ns")))


def _parts(stretches: pl.DataFrame, ends: pl.DataFrame, rank: str, own: str) -> pl.DataFrame:
    """`begun_ns`, and what a rank did in each stretch but the collectives of the group, by the
    names of REASONS; null where the stretch has no begin.

    Args:
        stretches: of `costs.stretches_of`.
        ends: when a rank ended a collective, and what it had done until then.
        rank: the column of the rank.
        own: the column of its exposed time in the collectives of the group.
    """
    found = stretches.join(
        ends,
        left_on=["collective", rank],
        right_on=["collective", "rank"],
        how="left",
        maintain_order="left",
    ).join(
        ends,
        left_on=["previous", rank],
        right_on=["collective", "rank"],
        how="left",
        maintain_order="left",
        suffix="_before",
    )
    compute, copies, comm, whole = (
        pl.col(part) - pl.col(f"{part}_before") for part in (*_PARTS, "end_ns")
    )
    did = (compute, copies, comm - pl.col(own), whole - compute - copies - comm)
    return found.select(
        pl.col("end_ns_before").alias("begun_ns"),
        *(part.alias(name) for part, name in zip(did, REASONS, strict=True)),
    )


def _shares(cost: pl.Expr) -> list[pl.Expr]:
    """`cost` shared in proportion to REASONS, by largest remainder; all of it is the host's where
    nothing took longer."""
    *_, host = REASONS
    total = pl.sum_horizontal(REASONS)
    weights = [
        pl.when(total == 0).then(int(name == host)).otherwise(name).cast(pl.Int128)
        for name in REASONS
    ]
    whole = pl.max_horizontal(total, 1)
    left = [cost * weight % whole for weight in weights]
    missing = pl.sum_horizontal(left) // whole
    shares = []
    for at, (name, weight) in enumerate(zip(REASONS, weights, strict=True)):
        ahead = pl.sum_horizontal(
            (other >= left[at]) if before < at else (other > left[at])
            for before, other in enumerate(left)
        )
        shares.append((cost * weight // whole + (ahead < missing)).cast(pl.Int64).alias(name))
    return shares
