"""Launch calls whose operation was not recorded (spec §12)."""

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.timeline.call_classes import makes
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.timeline.stream_captures import capture_began


def lost_launches(events: Events) -> pl.DataFrame:
    """The launch calls without an operation.

    Launches during a stream capture are recorded instead of run, and are left out; any thread of
    the process may capture.

    Returns:
        `call`, `process`, `start_ns`, `end_ns`, `correlation`, `name`.
    """
    ops = events.ops
    led = pl.repeat(value=False, n=len(events.calls), eager=True)
    led = led.scatter(ops["call"].drop_nulls(), True)
    launching = pl.col("class").is_in(["launch", "blocking_copy", "module_load"])
    names = makes(CAUSES["launch"], pl.col("name").cast(pl.String))
    calls = with_process(events.calls.filter(launching & ~led).filter(names), events)
    key = ["process", "correlation"]
    # few calls are left: to look each operation up among them is quicker than the reverse
    led_otherwise = ops.select(key).join(calls.select(key).unique(), on=key, how="semi")
    return outside_capture(calls.join(led_otherwise, on=key, how="anti"), events)


def with_process(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Rows of `events.calls` as `lost_launches` returns them."""
    process = events.threads["process"].gather(calls["thread_no"])
    return calls.select(
        "call", process.alias("process"), "start_ns", "end_ns", "correlation", "name"
    )


def outside_capture(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Those of `calls` (with `process`) before which no stream capture of their process began that
    has not ended."""
    if calls.is_empty():
        return calls
    return calls.filter(capture_began(calls, events).is_null()).sort("start_ns", "call")
