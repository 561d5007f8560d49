"""Inherited and own stacks as one tree, and the node of each place in it (spec §7.3 to §7.5)."""

import polars as pl

from nsysflow.analysis.frames.lookup import enum_from_index
from nsysflow.analysis.phases.stacks import NODES
from nsysflow.analysis.schema import ATTRIBUTION


def with_inherited(
    nodes: pl.DataFrame, found: list[pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`nodes`, plus one for each own stack on top of an inherited one.

    The second frame, `inherited`, `own`, `node`, says which node was added for which pair.
    """
    both = [
        f.filter(pl.col("own").is_not_null() & pl.col("inherited").is_not_null()) for f in found
    ]
    pairs = pl.concat([f.select("inherited", "own") for f in both]).unique()
    known = [pairs]
    while not pairs.is_empty():
        pairs = pairs.select("inherited", nodes["parent"].gather(pairs["own"]).alias("own"))
        pairs = pairs.drop_nulls().unique()
        known.append(pairs)
    composed = (
        pl.concat(known).unique().sort("inherited", "own").with_row_index("node", offset=len(nodes))
    )
    outer = composed.select(
        "node",
        "inherited",
        nodes["parent"].gather(composed["own"]).alias("own"),
        pl.col("own").alias("top"),
    ).join(
        composed.rename({"node": "outer"}),
        on=["inherited", "own"],
        how="left",
        maintain_order="left",
    )
    added = outer.select(
        "node",
        pl.coalesce("outer", "inherited").alias("parent"),
        nodes["range"].gather(outer["top"]).alias("range"),
    )
    return pl.concat([nodes, added.match_to_schema(NODES)]), composed


def placed_in(found: pl.DataFrame, composed: pl.DataFrame) -> pl.DataFrame:
    """`node` and `how` from the stacks found."""
    own, inherited, span = pl.col("own"), pl.col("inherited"), pl.col("span")
    if not composed.is_empty():
        found = found.join(composed, on=["inherited", "own"], how="left", maintain_order="left")
    else:
        found = found.with_columns(pl.lit(None, pl.UInt32).alias("node"))
    rank = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(ATTRIBUTION.categories)}
    how = (
        pl.when(inherited.is_not_null())
        .then(rank["borrowed"])
        .when(own.is_not_null())
        .then(rank["own"])
        .when(span.is_not_null())
        .then(rank["process_range"])
    )
    placed = found.select(pl.coalesce("node", inherited, own, span).alias("node"), how.alias("how"))
    return placed.with_columns(enum_from_index(placed["how"], ATTRIBUTION))
