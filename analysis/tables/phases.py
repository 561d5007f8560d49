"""What each phase ran, and its idle time, including nested phases (spec §7.9)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.columns import whole_ns
from nsysflow.analysis.phases.work import with_columns_of
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection import bound as parts
from nsysflow.analysis.selection.bound import PARTS, bounds
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import CAUSE_COLUMNS, Column, Table, TableSchema, shared

PHASES: Final = TableSchema(
    """One row per process and path of ranges, including what is nested in it. `host_wall_ns` is how
    long the ranges were open. `mean_ns` to `p95_ns` are of an instance's span, from its first
    operation to its last; null where no instance launched anything. `bound` names the largest of
    compute, communication and copies that were waited for, and idle time by cause, joined by those
    close to it; `bound_pct` is the share of the first. `steady_per_step_ns` is the busy and idle
    time in steady steps, divided by their number; null if there are none.""",
    [
        *shared("report"),
        Column("process", pl.Int64(), "the id (pid) of the process that the range is of"),
        *shared("path"),
        Column("depth", pl.Int64(), "how many ranges the path has"),
        Column("instances", pl.Int64(), "how often the range was opened"),
        Column("host_wall_ns", pl.Int64(), "how long the range was open on the host"),
        *shared("ops kernels"),
        Column(
            "kernel_ns",
            pl.Int64(),
            "the sum of the durations of its kernels; where they overlap it is more than the time "
            "that passed",
        ),
        Column("busy_ns", pl.Int64(), "time in which at least one of its operations runs"),
        Column(
            "span_ns",
            pl.Int64(),
            "from the first to the last operation launched in it, summed over the instances",
        ),
        *shared("launches"),
        Column("idle_ns", pl.Int64(), "idle time while the host was in it"),
        *CAUSE_COLUMNS,
        *shared("bound bound_pct"),
        Column(
            "mean_ns",
            pl.Int64(),
            "the mean span of an instance, from its first to its last operation",
        ),
        Column("median_ns", pl.Int64(), "the median span of an instance"),
        Column("min_ns", pl.Int64(), "the shortest span of an instance"),
        Column("max_ns", pl.Int64(), "the longest span of an instance"),
        Column(
            "std_ns",
            pl.Int64(),
            "the standard deviation of the instances' spans; empty for a single one",
        ),
        Column("p95_ns", pl.Int64(), "the span that 95 % of the instances do not exceed"),
        Column(
            "exclusive_kernel_ns",
            pl.Int64(),
            "the sum of the durations of kernels launched in it, but in no range nested in it",
        ),
        *shared("graph_estimate_ns"),
        Column(
            "own_ops",
            pl.Int64(),
            "how many operations were launched by the thread that opened the range",
        ),
        Column(
            "borrowed_ops",
            pl.Int64(),
            "how many operations were launched by a thread that inherits the range, e.g. "
            "autograd's",
        ),
        Column(
            "process_range_ops",
            pl.Int64(),
            "how many operations were put here because only a range of the whole process was open",
        ),
        Column(
            "captured_ops",
            pl.Int64(),
            "how many operations of CUDA graphs were put here because they were captured in this "
            "range",
        ),
        Column(
            "steady_per_step_ns",
            pl.Int64(),
            "the busy and idle time in steady steps, over their number; empty without steady steps",
        ),
    ],
)


def phase_table(view: View) -> pl.DataFrame:
    """The PHASES table, in tree order."""
    causes = [f"{cause}_ns" for cause in CAUSES]
    work = with_columns_of(view.attribution, view.work, view.idle)
    rows = (
        work.join(_steady(view), on=["process", "path"], how="left", maintain_order="left")
        .join(_steady_steps(view), on="process", how="left", maintain_order="left")
        .with_columns(_steady_per_step().alias("steady_per_step_ns"))
        .sort("process", "key")
    )
    of_rows = rows[["process", "path"]].join(
        parts.phase_parts(view), on=["process", "path"], how="left", maintain_order="left"
    )
    bound = bounds(of_rows.select(pl.col([f"{part}_ns" for part in PARTS]).fill_null(0)))
    return (
        rows.hstack(bound.get_columns())
        .with_columns(pl.col(causes).fill_null(0))
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("joined").alias("path"),
            pl.sum_horizontal(causes).alias("idle_ns"),
        )
    )


def _steady(view: View) -> pl.DataFrame:
    """`process`, `path`, `steady_ns`: the phases' busy and idle time in steady steps."""
    idle_ns = pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES)
    parts = [
        view.steady_busy.select("process", "path", pl.col("busy_ns").alias("steady_ns")),
        view.steady_idle.select("process", "path", idle_ns.alias("steady_ns")),
    ]
    return pl.concat(parts).group_by("process", "path").agg(pl.col("steady_ns").sum())


def _steady_steps(view: View) -> pl.DataFrame:
    """`process`, `steady_steps`: how many ranges are a steady step on some device."""
    steady = view.steps.filter("steady")
    return steady.group_by("process").agg(pl.col("range").n_unique().alias("steady_steps"))


def _steady_per_step() -> pl.Expr:
    """Null where a process has no steady steps."""
    total = pl.col("steady_ns").fill_null(0)
    return pl.when(pl.col("steady_steps") > 0).then(whole_ns(total / pl.col("steady_steps")))


TABLES: Final = (
    Table(
        name="phases",
        schema=PHASES,
        make=phase_table,
        json_key="phases",
        page_rows=6,
        full_rows=30,
        filled_by="put NVTX ranges around the parts of the program: nsysflow.region",
        shown=(
            "path instances median_ns busy_ns idle_ns host_wall_ns launches process report kernels"
        ),
    ),
)
