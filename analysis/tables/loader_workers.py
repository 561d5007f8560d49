"""What DataLoaders and their workers did, and how long the loop waited for them (spec §27)."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns, p95_ns, percent
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.schema import START_METHOD, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.memory import host_steps, recorded_time
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

LOADER_WORKERS: Final = TableSchema(
    """One row per DataLoader of a process and each worker of it, and one, without `worker`, of the
    loader as a whole, in the selected time.""",
    [
        *shared("report process"),
        Column("loader", pl.Int64(), "the loader's number in its process, from 0"),
        Column("worker", pl.Int64(), "the worker's number, from 0; empty for the whole loader"),
        Column(
            "span_ns",
            pl.Int64(),
            "the time of the host in the judged steps, as far as batches were recorded",
        ),
        Column("batches", pl.Int64(), "how many batches were sent to the loop"),
        Column(
            "busy_ns",
            pl.Int64(),
            "time from a request to its batch being sent; of a loader the sum over its workers",
        ),
        Column(
            "busy_pct",
            pl.Float64(),
            "the share of that time; of a loader, of its workers' time together",
        ),
        Column(
            "waiting_ns",
            pl.Int64(),
            "time without a request: as many batches are ready as the loop wants ahead",
        ),
        Column("fetch_median_ns", pl.Int64(), "the median time that a batch takes to fetch"),
        Column("fetch_p95_ns", pl.Int64(), "the time that 95 % of them do not exceed"),
        Column("batches_per_s", pl.Float64(), "batches per second of the selected time"),
        Column("steps", pl.Int64(), "how many batches the loop took; empty for a worker"),
        Column("waited_ns", pl.Int64(), "how long the loop waited for them; empty for a worker"),
        Column("workers", pl.Int64(), "`num_workers` of the loader"),
        Column("batch_size", pl.Int64(), "its `batch_size`"),
        Column("prefetch_factor", pl.Int64(), "its `prefetch_factor`"),
        Column("pin_memory", pl.Boolean(), "its `pin_memory`"),
        Column("persistent_workers", pl.Boolean(), "its `persistent_workers`"),
        Column("start_method", START_METHOD, "how its workers start"),
        Column("cores", pl.Int64(), "how many cores its process may use"),
    ],
)

_KEY: Final = ("process", "loader")
_SETTINGS: Final = (
    *("workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers"),
    *("start_method", "cores"),
)


def loader_workers_table(view: View) -> pl.DataFrame:
    """The LOADER_WORKERS table."""
    times = view.trace.loader_times.filter(pl.col("start_ns") <= pl.col("end_ns"))
    rows = [
        _of_process(own, spans)
        for own in times.partition_by("process", maintain_order=True)
        if (spans := _Spans(_told(own, _selected(view, int(own["process"][0]))))).ns
    ]
    found = pl.concat([LOADER_WORKERS.to_frame().drop("report"), *rows])
    return found.sort("process", "loader", "worker", nulls_last=False)


def _selected(view: View, process: int) -> pl.DataFrame:
    """`start_ns`, `end_ns` of the selected time of a process, in order: on the first GPU on which
    it has steps, or ran something."""
    mine = pl.col("process") == process
    rows = view.timeline.steps if view.of_steps else view.events.ops
    devices = rows.filter(mine)["device_no"].unique().sort().to_list()
    if not devices:
        return pl.DataFrame(schema={"start_ns": pl.Int64(), "end_ns": pl.Int64()})
    device_no = int(devices[0])
    if view.of_steps:
        return host_steps(view, process, device_no).select("start_ns", "end_ns")
    return recorded_time(view, device_no)


def _told(times: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The spans as far as the batches and waits of a process reach: the last ones of a recording
    may not have been told."""
    first, last = times["start_ns"].min(), times["end_ns"].max()
    return spans.select(
        pl.max_horizontal("start_ns", pl.lit(first, pl.Int64)).alias("start_ns"),
        pl.min_horizontal("end_ns", pl.lit(last, pl.Int64) + 1).alias("end_ns"),
    )


class _Spans:
    """Stretches of time, disjoint and in order."""

    def __init__(self, spans: pl.DataFrame) -> None:
        lasting = spans.filter(pl.col("start_ns") < pl.col("end_ns"))
        self._start, self._end = lasting["start_ns"], lasting["end_ns"]
        lengths = (self._end - self._start).cum_sum()
        self.ns = int(lengths[-1]) if len(lengths) else 0
        self._before = pl.concat([pl.Series([0], dtype=pl.Int64), lengths])

    def elapsed(self, time_ns: pl.Series) -> pl.Series:
        """How much of them lies before each instant."""
        begun = self._start.search_sorted(time_ns, side="right")
        ahead = (self._end.gather((begun.cast(pl.Int64) - 1).clip(0)) - time_ns).clip(0)
        return (
            self._before.gather(begun)
            - pl.select(pl.when(begun > 0).then(ahead).otherwise(0)).to_series()
        )

    def holds(self, time_ns: pl.Series) -> pl.Series:
        """Whether each instant lies in one, which its end does not."""
        begun = self._start.search_sorted(time_ns, side="right")
        return (begun > 0) & (time_ns < self._end.gather((begun.cast(pl.Int64) - 1).clip(0)))


def _of_process(times: pl.DataFrame, selected: _Spans) -> pl.DataFrame:
    """The rows of a process."""
    start = pl.max_horizontal("start_ns", reached_before(pl.col("end_ns")).over(*_KEY, "worker"))
    parts = times.sort("start_ns", "end_ns").with_columns(start.alias("begun_ns"))
    until = pl.max_horizontal("begun_ns", "end_ns")
    ends = parts.select(until).to_series()
    rows = parts.with_columns(
        (selected.elapsed(ends) - selected.elapsed(parts["begun_ns"])).alias("ns"),
        selected.holds(parts["end_ns"]).alias("counts"),
        (pl.coalesce("fetched_ns", "end_ns") - pl.col("start_ns")).alias("fetch_ns"),
    )
    return pl.concat(
        _summed(part, each, selected.ns)
        for part in rows.partition_by("loader", maintain_order=True)
        for each in _workers(part)
    ).select(LOADER_WORKERS.names()[1:])


def _workers(rows: pl.DataFrame) -> Iterator[int | None]:
    """The workers of a loader, and None for the whole."""
    yield None
    yield from sorted(rows["worker"].drop_nulls().unique())


def _summed(rows: pl.DataFrame, worker: int | None, span_ns: int) -> pl.DataFrame:
    """The row of a worker, or of a loader: without workers the loop itself fetches."""
    of_loop = pl.col("worker").is_null()
    counts = pl.col("counts")
    whole = worker is None
    workers = rows["workers"][0] or 0
    fetching = (of_loop if not workers else ~of_loop) if whole else pl.col("worker") == worker
    hands = max(workers, 1) if whole else 1
    busy = pl.col("ns").filter(fetching).sum()
    batches = (fetching & counts).sum().cast(pl.Int64)
    fetch = pl.col("fetch_ns").filter(fetching & counts)
    nothing = pl.lit(None, pl.Int64)
    return rows.select(
        os_pid(pl.col("process").first()).alias("process"),
        pl.col("loader").first(),
        pl.lit(worker, pl.Int64).alias("worker"),
        pl.lit(span_ns, pl.Int64).alias("span_ns"),
        batches.alias("batches"),
        busy.alias("busy_ns"),
        percent(busy, pl.lit(hands * span_ns)).alias("busy_pct"),
        (hands * span_ns - busy).alias("waiting_ns"),
        median_ns(fetch).alias("fetch_median_ns"),
        p95_ns(fetch).alias("fetch_p95_ns"),
        (batches / pl.lit(span_ns) * 1e9).alias("batches_per_s"),
        ((of_loop & counts).sum().cast(pl.Int64) if whole else nothing).alias("steps"),
        (pl.col("ns").filter(of_loop).sum() if whole else nothing).alias("waited_ns"),
        pl.col(*_SETTINGS).first(),
    )


TABLES: Final = (
    Table(
        name="loader_workers",
        schema=LOADER_WORKERS,
        make=loader_workers_table,
        csv="with rows",
        json_key="loader_workers",
        page_rows=3,
        full_rows=10,
        filled_by="record a program with a DataLoader with nsysflow profile",
        shown=(
            "loader worker batches busy_pct fetch_median_ns fetch_p95_ns batches_per_s steps "
            "waited_ns workers batch_size prefetch_factor pin_memory persistent_workers "
            "start_method cores busy_ns waiting_ns span_ns report process"
        ),
    ),
)
