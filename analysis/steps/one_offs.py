"""Steps that took much longer than the steps around them (spec §8.14)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.statistics import median_ns, whole_ns

NEAREST: Final = 9
"""A step is compared with the median of so many: enough to bear four others that are slow, few
enough to follow steps that grow longer."""

LEAST_STEPS: Final = 5
"""With fewer steps, none can be called unusual."""

PCT_OF_MEDIAN: Final = 20
"""A step that is off by no more is still like the others …"""

TIMES_RESIDUAL: Final = 5
"""… and so is one that is off by no more than five times what steps usually are."""

_OF: Final = ("process", "device_no")


def with_excess(steps: pl.DataFrame) -> pl.DataFrame:
    """`steps` with `excess_ns`, what each took beyond the median of those around it, and `outlier`.

    Args:
        steps: `process`, `device_no`, `duration_ns`, in the order of the steps.
    """
    around = pl.col("duration_ns").rolling_median(NEAREST, min_samples=NEAREST, center=True)
    # at the rims the first and the last nine are the nearest ones
    nearest = whole_ns(around.backward_fill().forward_fill())
    local = pl.coalesce(nearest, median_ns(pl.col("duration_ns"))).over(_OF)
    steps = steps.with_columns(local.alias("local_ns"))
    excess = pl.col("duration_ns") - pl.col("local_ns")
    usual = median_ns(excess.abs()).over(_OF)
    outlier = (
        (pl.len().over(_OF) >= LEAST_STEPS)
        & (100 * excess > PCT_OF_MEDIAN * pl.col("local_ns"))
        & (excess > TIMES_RESIDUAL * usual)
    )
    return steps.with_columns(excess.alias("excess_ns"), outlier.alias("outlier")).drop("local_ns")
