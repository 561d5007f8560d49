"""The steps that figures draw: those that were recorded whole."""

from typing import Final

import polars as pl

from nsysflow.report.results import Results

TRACK: Final = ("report", "process", "device")
"""What names the process and GPU of a step."""

_CUT: Final = ("cut-off", "incomplete")


def whole_steps(results: Results) -> pl.DataFrame:
    """STEPS without those that the recording cut off or lost operations of, with `judged`."""
    judged = results.judged.step_keys.with_columns(pl.lit(value=True).alias("judged"))
    whole = results.table("steps").filter(~pl.col("kind").is_in(_CUT))
    joined = whole.join(judged, on=[*TRACK, "step"], how="left", maintain_order="left")
    return joined.with_columns(pl.col("judged").fill_null(value=False))
