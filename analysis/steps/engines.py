"""When a serving engine works on a step, and where its host takes the tokens of one (spec §23)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import STALLS
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.phases.automatic import step_at
from nsysflow.analysis.phases.engine_steps import EngineSteps
from nsysflow.analysis.steps.kinds import Steps

STEP_SPANS: Final = pl.Schema(
    {"process": pl.Int64(), "range": pl.UInt32(), "start_ns": pl.Int64(), "end_ns": pl.Int64()}
)
"""When the host works on each step: from the begin of its range to that of the next one's; on the
last one to the end of its range. In the order of the process."""
StepSpans = Annotated[pl.DataFrame, STEP_SPANS]

TOKEN_WAITS: Final = pl.Schema({"call": pl.UInt32(), "range": pl.UInt32()})
"""The calls that wait for what a step computed, in the order of the steps."""
TokenWaits = Annotated[pl.DataFrame, TOKEN_WAITS]


def step_spans(steps: Steps, engines: EngineSteps) -> StepSpans:
    """The spans of those steps that are an engine's."""
    ranges = steps.join(engines[["range"]], on="range", how="semi")
    ranges = ranges.select("process", "range", "begun_ns", "done_ns").unique()
    ranges = ranges.sort("process", "begun_ns", "range")
    until = pl.coalesce(pl.col("begun_ns").shift(-1).over("process"), "done_ns")
    return ranges.select("process", "range", start_ns="begun_ns", end_ns=until)


def token_waits(spans: StepSpans, events: Events) -> TokenWaits:
    """The syncs and blocking copies in each span that begin after the last kernel or graph was
    launched in it; but for copies to the GPU."""
    if spans.is_empty():
        return TOKEN_WAITS.to_frame()
    axis, ops = events.axis, events.ops
    work = ops.filter(pl.col("kind").cast(pl.String).is_in(["kernel", "graph"]))
    launched = work.select("process", time_ns="launch_start_ns")
    launched = launched.with_columns(step_at(spans, launched, axis)).drop_nulls("range")
    last = launched.group_by("range").agg(pl.col("time_ns").max().alias("launched_ns"))
    to_gpu = ops.filter(pl.col("short_name").cast(pl.String) == "memcpy HtoD")["call"].drop_nulls()
    waits = events.calls.filter(
        pl.col("class").cast(pl.String).is_in([cause for cause in STALLS if cause != "alloc"]),
        ~pl.col("call").is_in(to_gpu.implode()),
    )
    asked = waits.select(
        "call", events.threads["process"][waits["thread_no"]], time_ns=pl.col("start_ns")
    )
    order = spans[["range"]].with_row_index("order")
    return (
        asked.with_columns(step_at(spans, asked, axis))
        .join(last, on="range")
        .filter(pl.col("time_ns") > pl.col("launched_ns"))
        .join(order, on="range")
        .sort("order", "time_ns", "call")
        .select(TOKEN_WAITS.names())
    )
