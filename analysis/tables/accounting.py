"""Where each device's time went: compute, exposed communication and copies, idle (spec §2)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.phases.attribution import PlacedOps
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import CAUSE_COLUMNS, Column, Table, TableSchema, shared

ACCOUNTING: Final = TableSchema(
    """One row per device: window = compute + comm_exposed + copy_exposed + idle, to the ns, and the
    causes sum to idle. `kernel_ns`, `copy_ns` and `comm_ns` are sums of durations, not parts of the
    window. `…_hidden_pct` is the share of copies and communication that ran under other work.""",
    [
        *shared("report device"),
        Column("name", pl.String(), "the GPU's model"),
        Column("start_ns", pl.Int64(), "start of the window, on the report's clock"),
        Column("end_ns", pl.Int64(), "end of the window, on the report's clock"),
        Column(
            "window_ns",
            pl.Int64(),
            "from the GPU's first operation to the end of its last one, or what was selected of "
            "that",
        ),
        *shared("compute_ns comm_exposed_ns copy_exposed_ns idle_ns"),
        *CAUSE_COLUMNS,
        *shared("ops kernels gaps"),
        Column(
            "kernel_ns",
            pl.Int64(),
            "the sum of the durations of all kernels, communication among them",
        ),
        Column("copy_ns", pl.Int64(), "the sum of the durations of copies and memsets"),
        Column("comm_ns", pl.Int64(), "the sum of the durations of communication kernels"),
        Column("copy_hidden_pct", pl.Float64(), "the share of copies that ran under other work"),
        Column(
            "comm_hidden_pct",
            pl.Float64(),
            "the share of communication that ran under compute",
        ),
    ],
)


def accounting_table(view: View) -> pl.DataFrame:
    """The ACCOUNTING table; a device's windows are summed."""
    causes = [f"{cause}_ns" for cause in CAUSES]
    events, windows, ops = view.events, view.windows, view.ops
    parts = windows.hstack(view.busy.parts(windows, events.axis).get_columns())
    in_parts = [name for name in parts.columns if name.endswith("_ns") and name not in windows]
    parts = parts.group_by("device_no").agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col(in_parts).sum()
    )
    counted = _counted(ops)
    idle = view.gaps.group_by("device_no").agg(
        pl.len().cast(pl.Int64).alias("gaps"), pl.col(causes).sum()
    )
    counts = [name for name in (*counted.columns, "gaps") if name != "device_no"]
    return (
        gpus_of(view)
        .join(counted, on="device_no", how="left")
        .join(parts, on="device_no", how="left")
        .join(idle, on="device_no", how="left")
        .with_columns(
            pl.col(*counts, *causes, *in_parts).fill_null(0),
            hidden_pct(pl.col("copy_exposed_ns"), pl.col("copy_union_ns")).alias("copy_hidden_pct"),
            hidden_pct(pl.col("comm_exposed_ns"), pl.col("comm_union_ns")).alias("comm_hidden_pct"),
        )
        .sort("device")
    )


def gpus_of(view: View) -> pl.DataFrame:
    """`device_no`, `device`, `name` of the GPUs of a view."""
    # a window may contain the middle of an operation or of a gap, and no operation's start
    selected = pl.concat([view.ops["device_no"], view.windows["device_no"]]).unique().implode()
    names = view.trace.devices[["device", "name"]].unique("device", keep="first")
    gpus = view.events.devices.filter(pl.col("device_no").is_in(selected))
    return gpus.join(names, on="device", how="left")


def _counted(ops: PlacedOps) -> pl.DataFrame:
    """Per device the number of operations and the sums of their durations."""
    ns, kernel = pl.col("end_ns") - pl.col("start_ns"), pl.col("kind") == "kernel"
    return ops.group_by("device_no").agg(
        pl.len().cast(pl.Int64).alias("ops"),
        kernel.sum().cast(pl.Int64).alias("kernels"),
        ns.filter(kernel).sum().alias("kernel_ns"),
        ns.filter(pl.col("part") == "copy").sum().alias("copy_ns"),
        ns.filter(pl.col("part") == "comm").sum().alias("comm_ns"),
    )


def hidden_pct(exposed: pl.Expr, union: pl.Expr) -> pl.Expr:
    """The share of `union` that other work overlapped; null if `union` is empty."""
    return percent(union - exposed, union)


TABLES: Final = (
    Table(
        name="accounting",
        schema=ACCOUNTING,
        make=accounting_table,
        csv="never",
        json_key="devices",
        page_rows=64,
        full_rows=64,
        complete=True,
        filled_by="record with --trace cuda,nvtx while the GPU is in use",
        shown=(
            "report device window_ns compute_ns idle_ns comm_exposed_ns copy_exposed_ns "
            "host_ns sync_ns launch_ns gaps"
        ),
    ),
)
