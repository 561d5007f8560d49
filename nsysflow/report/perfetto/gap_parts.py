"""The parts of gaps as slices: one for each cause that has a part of a gap."""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.schema import CAUSE

_COLUMNS: Final = {f"{cause}_ns": cause for cause in CAUSES}


def gap_parts(gaps: pl.DataFrame) -> pl.DataFrame:
    """The parts of each gap laid end to end in it, the largest one last.

    Only their lengths were measured: where in a gap a cause held the GPU up is not known. The
    largest one ends where the gap ends, behind the call that is to blame.

    Args:
        gaps: `start_ns`, `end_ns`, `cause` and `<cause>_ns` of each.

    Returns:
        `row` of the gap, `part` (its cause), `start_ns`, `end_ns`, and `largest`; by gap and time.
    """
    parts = (
        gaps.select("start_ns", "cause", *_COLUMNS)
        .with_row_index("row")
        .unpivot(
            list(_COLUMNS),
            index=["row", "start_ns", "cause"],
            variable_name="part",
            value_name="ns",
        )
        .filter(pl.col("ns") > 0)
        .with_columns(pl.col("part").replace_strict(_COLUMNS, return_dtype=CAUSE))
        .with_columns((pl.col("part") == pl.col("cause")).alias("largest"))
        .sort("row", "largest", "ns", "part")
    )
    end = pl.col("start_ns") + pl.col("ns").cum_sum().over("row")
    return parts.with_columns(end.alias("end_ns")).select(
        "row", "part", (pl.col("end_ns") - pl.col("ns")).alias("start_ns"), "end_ns", "largest"
    )
