"""Idle time by the stack that the host was running."""

import polars as pl


def by_stack(instants: pl.DataFrame, phase_of_path: pl.Series) -> pl.DataFrame:
    """Idle time by phase, cause, thread and stack: `phase`, `cause`, `thread_no`, `stack`,
    `idle_ns`, `samples`.

    Args:
        instants: of `host_instants.INSTANTS`.
        phase_of_path: the name of each path.
    """
    phase = phase_of_path.cast(pl.Categorical).gather(instants["path"]).alias("phase")
    return (
        instants.with_columns(phase)
        .group_by("phase", "cause", "thread_no", "stack")
        .agg(
            pl.col("ns").sum().alias("idle_ns"),
            pl.col("cell").drop_nulls().n_unique().cast(pl.Int64).alias("samples"),
        )
        .with_columns(pl.col("phase").cast(pl.String).fill_null(""))
    )
