"""When work was captured into a CUDA graph instead of run (spec §12.3)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import matching
from nsysflow.analysis.timeline.events import Events

_CAPTURE: Final = r"^(?:cuda|cu)Stream(?:Begin|End)Capture"


def capture_began(rows: pl.DataFrame, events: Events) -> pl.Series:
    """When the stream capture began that was on in the process of each of `rows` (`process`,
    `start_ns`); null where none was. Any thread of the process may capture."""
    marks = _marks(events)
    asked = rows.select("process", "start_ns").with_row_index("row").sort("start_ns", "row")
    # the last begin or end of a capture before a row says whether one was on
    found = asked.join_asof(
        marks, on="start_ns", by="process", allow_exact_matches=False, check_sortedness=False
    )
    return found.sort("row")["began_ns"]


def _marks(events: Events) -> pl.DataFrame:
    """`process`, `start_ns` of every begin and end of a capture, in order; `began_ns` of begins."""
    calls = events.calls.filter(matching(events.calls["name"], _CAPTURE))
    process = events.threads["process"].gather(calls["thread_no"]).alias("process")
    name = pl.col("name").cast(pl.String)
    order = ["start_ns", -pl.col("end_ns"), "correlation", "thread_no", name]
    begins = name.str.contains("Begin")
    return (
        calls.with_columns(process, pl.when(begins).then("start_ns").alias("began_ns"))
        .sort(order, nulls_last=True)
        .select("process", "start_ns", "began_ns")
    )
