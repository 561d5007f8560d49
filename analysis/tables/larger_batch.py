"""How many times the batch a GPU's memory would hold (spec §26.15)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.memory import MemoryUse, beginning_in, memory_uses
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

LARGER_BATCH: Final = TableSchema(
    """One row per process and device of which PyTorch's allocator says how much is allocated, how
    much the process could have, and of which steps are known. What a step allocates is taken to
    grow with the batch, but for gradients and what else is as large as a parameter.""",
    [
        *shared("report process device"),
        Column(
            "usable_bytes",
            pl.Int64(),
            "how much the process can have: what is reserved and what is free",
        ),
        Column("peak_bytes", pl.Int64(), "the most that was allocated in a step"),
        Column("peak_reserved_bytes", pl.Int64(), "the most that was reserved in a step"),
        Column(
            "growing_bytes",
            pl.Int64(),
            "what grows with the batch, at the instant at which memory would run out first",
        ),
        Column("fixed_bytes", pl.Int64(), "what else was allocated then"),
        Column(
            "times",
            pl.Float64(),
            "how many times the batch fits, if as much of what is reserved lies in pieces as now",
        ),
    ],
)


def larger_batch_table(view: View) -> pl.DataFrame:
    """The LARGER_BATCH table, the GPUs and processes in order."""
    usable = {
        (process, device): usable_bytes
        for process, device, usable_bytes in view.trace.gpu_memory.iter_rows()
    }
    rows = [
        _of_process(view, use, usable[use.process, use.device])
        for use in memory_uses(view.timeline)
        if use.said_by == "allocator" and use.allocated and (use.process, use.device) in usable
    ]
    if not rows:
        return LARGER_BATCH.to_frame()
    return pl.concat(rows).with_columns(os_pid(pl.col("process")).alias("process"))


def _of_process(view: View, use: MemoryUse, usable_bytes: int) -> pl.DataFrame:
    """The row of a process and GPU; none where nothing that grows is known of its steps."""
    steps = use.steps(view)
    levels = use.levels[1:]
    changes = view.trace.memory[levels["change"]].select(
        "address",
        "bytes",
        start_ns="time_ns",
        level=levels["bytes"],
        reserved=levels["reserved_bytes"],
    )
    changes = changes.with_row_index("at")
    again = pl.col("at").shift(-1).over("address")
    changes = changes.with_columns(
        pl.when(pl.col("address").is_not_null()).then(again).alias("freed_at")
    )
    inside = beginning_in(steps, changes)
    made = inside.filter(pl.col("bytes") > 0, pl.col("address").is_not_null())
    parameters = _held_sizes(changes, steps)
    as_parameter = pl.col("bytes").is_in(parameters.implode())
    of_batch = inside.with_columns(_live(made.filter(~as_parameter), len(changes))[inside["at"]])
    most = of_batch.sort(-pl.col("live"), "at").unique("step", keep="first")
    grows = ~as_parameter | (pl.col("at") < pl.col("most_at"))
    growing = made.join(most.select("step", most_at="at"), on="step").filter(grows)
    instants = inside.with_columns(_live(growing, len(changes))[inside["at"]])
    fixed = pl.col("level") - pl.col("live")
    peak, reserved = pl.col("level").max(), pl.col("reserved").max()
    room = usable_bytes * pl.min_horizontal(
        1.0, pl.col("peak_bytes") / pl.col("peak_reserved_bytes")
    )
    return (
        instants.with_columns(peak.alias("peak_bytes"), reserved.alias("peak_reserved_bytes"))
        .filter(pl.col("live") > 0, pl.col("level").is_not_null())
        .with_columns(((room - fixed) / pl.col("live")).alias("times"))
        .sort("times", "at")
        .head(1)
        .select(
            pl.lit(use.process, pl.Int64).alias("process"),
            pl.lit(use.device, pl.Int32).alias("device"),
            pl.lit(usable_bytes, pl.Int64).alias("usable_bytes"),
            "peak_bytes",
            "peak_reserved_bytes",
            pl.col("live").alias("growing_bytes"),
            fixed.alias("fixed_bytes"),
            "times",
        )
    )


def _held_sizes(changes: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """The distinct sizes of what is allocated before the first step and lives through it. What the
    step before left in its variables is given back as soon as they have new values."""
    first = steps.sort("start_ns").head(1)
    begin_ns, end_ns = (pl.lit(first[name].max(), pl.Int64) for name in ("start_ns", "end_ns"))
    made = pl.col("address").is_not_null() & (pl.col("bytes") > 0)
    before = changes.filter(made, pl.col("start_ns") < begin_ns)
    given_back_ns = changes["start_ns"].gather(before["freed_at"])
    return before.filter((given_back_ns >= end_ns).fill_null(value=True))["bytes"].unique()


def _live(made: pl.DataFrame, count: int) -> pl.Series:
    """How much of these allocations is there after each of `count` changes: `live`."""
    freed = made.drop_nulls("freed_at")
    delta = repeated(0, count, pl.Int64).scatter(made["at"], made["bytes"])
    back = repeated(0, count, pl.Int64).scatter(freed["freed_at"], freed["bytes"])
    return (delta - back).cum_sum().alias("live")


TABLES: Final = (
    Table(
        name="larger_batch",
        schema=LARGER_BATCH,
        make=larger_batch_table,
        csv="with rows",
        json_key="larger_batch",
        filled_by="record several steps of a PyTorch program with nsysflow profile --memory",
        shown="times peak_bytes peak_reserved_bytes usable_bytes growing_bytes fixed_bytes device"
        " process report",
    ),
)
