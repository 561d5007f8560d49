"""Where a GPU waits for Python, for launches and for code: the pauses, each with its place."""

from typing import Final

import polars as pl

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.selection.view import View

LONG_NS: Final = 2_000_000
"""A pause of this length is a single piece of Python, and no launch's. Between two launches Python
takes 20 to 220 us (samples, 2026-11-20), and up to 1.4 ms while it is sampled at 1 kHz
(h200-hf-trainer-samples)."""

LONG_IN_SHORT_STEP_NS: Final = 500_000
"""In a short step a pause of this length is long if it is more than half of all its pauses."""

LOADS_DATA: Final = (
    r"(?i)(?:^|/)(?:[^/]*dataload[^/]*|[^/]*__next__[^/]*|next"
    r"|(?:(?:get|next|load|fetch|read|prepare|wait)[_ -]?)?(?:for[_ -]?)?"
    r"(?:data|batch|batches|inputs?|samples?|examples?)"
    r"|(?:(?:data|batch|input)[_ -]?)?(?:load|loader|loading|fetch|fetching|reading|wait|pipeline)"
    r"|(?:prefetch|collate|tokeni[sz]|preprocess|augment)[^/]*)(?:/|$)"
)
"""Matches paths with a range that loads data, by its name."""

CAUSES: Final = ("host", "launch", "module_load")
"""The causes of a pause: code of the host's own, what launching costs, and code that is loaded."""


def pause_rows(view: View, step_paths: list[str]) -> pl.DataFrame:
    """The pauses of the judged part: `device`, `process`, `start_ns`, `ns`, `phase` (where the host
    was; `OUTSIDE` in no range), `loads_code` (whether code is loaded in it), `data` (whether its
    phase loads data) and `long`; code is not data, and neither is long.

    Args:
        view: the judged part.
        step_paths: which ranges are steps; `batch` may be one, and then loads nothing.
    """
    parts = view.idle_parts
    places = _by_place(pl.concat([parts[cause].select("row", "path", "ns") for cause in CAUSES]))
    gaps, loading = view.gaps, parts["module_load"]["row"].unique()
    rows = places.select(
        view.events.ops["device"].gather(gaps["next_op"].gather(places["row"])).alias("device"),
        gaps["process"].gather(places["row"]),
        gaps["start_ns"].gather(places["row"]),
        "ns",
        "path",
        pl.col("row").is_in(loading.implode()).alias("loads_code"),
    ).join(_phases(view, step_paths), on="path", how="left", maintain_order="left")
    per_step_ns = pl.col("ns").sum().over("device", "process") / max(1, len(view.steps))
    long = (pl.col("ns") >= LONG_NS) | (
        (pl.col("ns") >= LONG_IN_SHORT_STEP_NS) & (2 * pl.col("ns") > per_step_ns)
    )
    loads, data = pl.col("loads_code"), pl.col("data").fill_null(value=False)
    return rows.drop("path").with_columns(
        (data & ~loads).alias("data"),
        (long & ~data & ~loads).alias("long"),
        pl.col("phase").fill_null(OUTSIDE),
    )


def _by_place(pieces: pl.DataFrame) -> pl.DataFrame:
    """The sums of `ns` by `row` and `path`, in order: most pieces are alone, so that a sort of one
    number takes a third of a group-by."""
    at = (pl.col("row").cast(pl.Int64) * (1 << 32)) + (pl.col("path").cast(pl.Int64) + 1).fill_null(
        0
    )
    pieces = pieces.with_columns(at.alias("at")).sort("at")
    lasts = pieces.with_columns(pl.col("ns").cum_sum().alias("up_to")).filter(
        (pl.col("at") != pl.col("at").shift(-1)).fill_null(value=True)
    )
    return lasts.select(
        "row", "path", pl.col("up_to").diff().fill_null(pl.col("up_to")).alias("ns")
    )


def _phases(view: View, step_paths: list[str]) -> pl.DataFrame:
    """Per `path` its name as `phase`, and `data`: whether it loads data."""
    inner = pl.col("joined")
    for path in step_paths:
        inner = inner.str.strip_prefix(path)
    data = inner.str.contains(LOADS_DATA).alias("data")
    return view.attribution.paths.select("path", pl.col("joined").alias("phase"), data)
