"""Which lanes the picture of a report has, in which order (spec §22.1, §22.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import by_number, greatest
from nsysflow.analysis.frames.nsys_ids import os_pid, os_tid
from nsysflow.analysis.schema import METRICS
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.tracks.schema import LANE_KIND, LANES

_OF_THREAD: Final = {
    "phases": "phases",
    "calls": "CUDA calls",
    "host_stack": "Python",
    "profiler": "profiler",
}
"""The lanes of a thread, in their order, and what their titles say."""

_METRICS: Final = {
    "sm_active_pct": "SMs active",
    "sm_issue_pct": "SMs issuing",
    "tensor_active_pct": "tensor cores active",
    "dram_read_pct": "DRAM read",
    "dram_write_pct": "DRAM write",
}
"""What the title of a counter's lane says."""

_NUMBER: Final = "number"

_ORDER: Final = ["of_gpu", "owner", "place", "within"]
"""The lanes of processes come first. Each of them, and each GPU, has its lanes together."""


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The lanes, and where each row of the events belongs.

    Attributes:
        frame: `schema.LANES` without `rows`, plus `number`: that of the thread, of the stream or of
            the metric; and `owner`, the process or GPU.
        stream_no: the number of each operation's stream.
    """

    frame: pl.DataFrame
    stream_no: pl.Series

    @classmethod
    def of(
        cls,
        events: Events,
        steps: pl.DataFrame,
        threads: Mapping[str, pl.Series],
        idle: pl.Series,
    ) -> "Lanes":
        """The lanes of a report.

        Args:
            events: the report.
            steps: `process`, `device` of its steps.
            threads: by kind of lane, the `thread_no` of each row to draw.
            idle: the `device_no` of each gap.
        """
        found = [
            _steps(steps),
            *(_of_threads(events, kind, threads[kind]) for kind in _OF_THREAD),
            _gaps(events.ops, idle),
            _streams(events.ops, events.stream_no),
            _counters(events.trace.gpu_samples),
        ]
        frame = pl.concat(found, how="diagonal").sort(_ORDER, maintain_order=True)
        return cls(frame=frame.with_row_index("lane"), stream_no=events.stream_no)

    def numbered(self, kind: str, numbers: pl.Series) -> pl.Series:
        """The `lane` of each row of a kind whose lanes have numbers."""
        mine = self.frame.filter(pl.col("kind") == kind)
        return (
            by_number(greatest(mine[_NUMBER]) + 1, mine[_NUMBER], mine["lane"])
            .gather(numbers)
            .alias("lane")
        )

    def of_steps(self, steps: pl.DataFrame) -> pl.Series:
        """The `lane` of each step."""
        owned = steps.select(pl.col("process").alias("owner"), "device")
        return self._lane_of("steps", owned, ["owner", "device"])

    def of_counters(self, values: pl.DataFrame) -> pl.Series:
        """The `lane` of each sampled value, by its `device` and the `number` of its metric."""
        return self._lane_of("counter", values, ["device", _NUMBER])

    def _lane_of(self, kind: str, rows: pl.DataFrame, key: list[str]) -> pl.Series:
        mine = self.frame.filter(pl.col("kind") == kind).select("lane", *key)
        return rows.join(mine, on=key, how="left", maintain_order="left")["lane"]

    def with_rows(self, depths: list[pl.DataFrame]) -> pl.DataFrame:
        """`schema.LANES`, from `lane` and `depth` of the rows on lanes that have depths."""
        deepest = [each.group_by("lane").agg(pl.col("depth").max()) for each in depths]
        found = self.frame.join(pl.concat(deepest), on="lane", how="left", maintain_order="left")
        rows = (pl.col("depth").fill_null(0) + 1).cast(pl.UInt32).alias("rows")
        return found.with_columns(rows).select(LANES.names()).match_to_schema(LANES)


def _lanes(kind: str, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(kind, LANE_KIND).alias("kind"),
        pl.col("owner", "place", "within").cast(pl.Int64),
    )


def _gpu() -> pl.Expr:
    return pl.format("GPU {}", "device")


def _steps(steps: pl.DataFrame) -> pl.DataFrame:
    """The lanes of steps: one for each process and GPU."""
    return _lanes(
        "steps",
        steps.select("process", "device")
        .unique()
        .select(
            pl.lit(value=False).alias("of_gpu"),
            pl.col("process").alias("owner"),
            pl.lit(-1).alias("place"),
            pl.col("device").alias("within"),
            pl.format("{}: steps", _gpu()).alias("title"),
            os_pid(pl.col("process")).alias("process"),
            "device",
        ),
    )


def _of_threads(events: Events, kind: str, thread_no: pl.Series) -> pl.DataFrame:
    """The lanes of one kind of the threads that have rows. The main thread comes first, then
    PyTorch's backward threads."""
    place = pl.struct(~pl.col("main"), ~pl.col("autograd"), "thread").rank("ordinal")
    threads = events.threads.with_columns(place.alias("place"))
    several = threads["process_no"].n_unique() > 1
    tid = os_tid(pl.col("thread"))
    name = pl.format("{} {}", pl.col("name").fill_null("thread"), tid)
    name = pl.when("main").then(pl.lit("main thread")).otherwise(name)
    pid = os_pid(pl.col("process"))
    name = pl.format("{} of {}", name, pid) if several else name
    return _lanes(
        kind,
        threads[thread_no.unique().sort()].select(
            pl.lit(value=False).alias("of_gpu"),
            pl.col("process").alias("owner"),
            "place",
            pl.lit([*_OF_THREAD].index(kind)).alias("within"),
            pl.format("{}: {}", name, pl.lit(_OF_THREAD[kind])).alias("title"),
            pid.alias("process"),
            tid.alias("thread"),
            pl.col("thread_no").alias(_NUMBER),
        ),
    )


def _gaps(ops: pl.DataFrame, idle: pl.Series) -> pl.DataFrame:
    """The lanes of gaps, one for each GPU that was idle."""
    return _lanes(
        "gaps",
        ops.select("device", "device_no")
        .unique()
        .filter(pl.col("device_no").is_in(idle.unique().implode()))
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(0).alias("place"),
            pl.lit(0).alias("within"),
            pl.format("{}: idle", _gpu()).alias("title"),
            "device",
            pl.col("device_no").alias(_NUMBER),
        ),
    )


def _streams(ops: pl.DataFrame, stream_no: pl.Series) -> pl.DataFrame:
    """The lanes of streams, the busiest of each GPU first."""
    length = pl.col("end_ns") - pl.col("start_ns")
    streams = (
        ops.select("device", "process", "stream", "start_ns", "end_ns", stream_no)
        .group_by("stream_no")
        .agg(pl.col("device", "process", "stream").first(), length.sum().alias("ns"))
        .sort(pl.col("ns"), "stream_no", descending=[True, False])
    )
    several = streams.group_by("device").agg(pl.col("process").n_unique())["process"].max()
    title = pl.format("{}: stream {}", _gpu(), pl.col("stream").cast(pl.String).fill_null("?"))
    pid = os_pid(pl.col("process"))
    several_processes = isinstance(several, int) and several > 1
    return _lanes(
        "stream",
        streams.with_row_index("within").select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(1).alias("place"),
            "within",
            (pl.format("{} of {}", title, pid) if several_processes else title).alias("title"),
            pid.alias("process"),
            "device",
            "stream",
            pl.col("stream_no").alias(_NUMBER),
        ),
    )


def _counters(samples: pl.DataFrame) -> pl.DataFrame:
    """The lanes of sampled counters."""
    kinds = [
        samples.filter(pl.col(metric).is_not_null())
        .select("device")
        .unique()
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(2).alias("place"),
            pl.lit(number).alias("within"),
            pl.format("{}: {}", _gpu(), pl.lit(_METRICS[metric])).alias("title"),
            "device",
            pl.lit(number, pl.UInt32).alias(_NUMBER),
        )
        for number, metric in enumerate(METRICS)
    ]
    return _lanes("counter", pl.concat(kinds))
