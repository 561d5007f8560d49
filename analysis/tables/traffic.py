"""What each GPU sends and receives over PCIe and NVLink, step by step (spec §25)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.schema import TRAFFIC, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.clocks import held_in, means_of, pieces_of
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

_PCIE: Final = "over PCIe, whoever caused it: all processes, network cards, mapped memory"
_NVLINK: Final = "over all its NVLinks"

_COPIES: Final = {"htod_bytes_per_s": "HtoD", "dtoh_bytes_per_s": "DtoH"}
"""Columns of copies, with their directions; those of managed memory count, too."""

TRAFFIC_TABLE: Final = TableSchema(
    """One row per process, device and step, or per selected window of a GPU without steps, in which
    a rate is known. NVML counts what a GPU sends (`tx`) and receives (`rx`); rates are means over
    the time in which they are known.""",
    [
        *shared("report process device"),
        Column("step", pl.Int64(), "the step's number; empty for a window"),
        *shared("start_ns end_ns"),
        Column("pcie_tx_bytes_per_s", pl.Float64(), f"what the GPU sent {_PCIE}"),
        Column("pcie_rx_bytes_per_s", pl.Float64(), f"what the GPU received {_PCIE}"),
        Column(
            "dtoh_bytes_per_s",
            pl.Float64(),
            "the bytes of the report's copies from this GPU to the host that start in the row, by "
            "its length: where `pcie_tx_bytes_per_s` is much more, something else uses the link",
        ),
        Column(
            "htod_bytes_per_s",
            pl.Float64(),
            "the same of copies from the host to this GPU, to compare with `pcie_rx_bytes_per_s`",
        ),
        Column("nvlink_tx_bytes_per_s", pl.Float64(), f"what the GPU sent {_NVLINK}"),
        Column("nvlink_rx_bytes_per_s", pl.Float64(), f"what the GPU received {_NVLINK}"),
    ],
)


def traffic_table(view: View) -> pl.DataFrame:
    """The TRAFFIC_TABLE."""
    events = view.events
    readings = events.trace.gpu_traffic.join(events.devices, on="device")
    if readings.is_empty():
        return TRAFFIC_TABLE.to_frame()
    pieces = pieces_of(view)
    found = pieces
    for column in TRAFFIC:
        means = means_of(held_in(pieces, held_rates(readings, column), events))
        found = found.join(means.rename({"mean": column}), on="piece", how="left")
    copied = [
        _copied(pieces, events, direction).alias(column) for column, direction in _COPIES.items()
    ]
    return (
        found.sort("piece")
        .with_columns(copied)
        .filter(pl.any_horizontal(pl.col(TRAFFIC).is_not_null()))
        .join(events.devices, on="device_no")
        .with_columns(os_pid(pl.col("process")).alias("process"))
        .sort("process", "device", "step", "start_ns")
    )


def held_rates(readings: pl.DataFrame, column: str, device: str = "device_no") -> pl.DataFrame:
    """The rates of a column with when they hold: since the reading before, whichever process read
    it.

    Args:
        readings: `schema.GPU_TRAFFIC`.
        column: one of `schema.TRAFFIC`.
        device: the column of the GPU.

    Returns:
        `device`, `value`, `start_ns`, `end_ns`, in order of device and time, disjoint.
    """
    ends, value = pl.col("time_ns"), pl.col(column).cast(pl.Float64)  # by ns it has over 64 bits
    return (
        readings.drop_nulls(column)
        .group_by(device, "time_ns")
        .agg(value.max().alias("value"), (ends - pl.col("past_ns")).min().alias("begun"))
        .sort(device, "time_ns")
        .select(
            device,
            "value",
            pl.max_horizontal("begun", ends.shift().over(device)).alias("start_ns"),
            ends.alias("end_ns"),
        )
    )


def _copied(pieces: pl.DataFrame, events: Events, direction: str) -> pl.Series:
    """Per piece, the bytes per second of the copies of a direction that start in it."""
    ops = events.ops.filter(pl.col("kind") == "memcpy")
    start = events.axis.at(ops["device_no"], ops["start_ns"]).alias("start")
    copies = (
        events.trace.copy_details[ops["detail"]]
        .select(start, "bytes", "direction")
        .filter(pl.col("direction").str.ends_with(direction))
        .sort("start")
    )
    so_far = pl.concat([pl.Series([0], dtype=pl.Int64), copies["bytes"].cum_sum()])
    first, past = (copies["start"].search_sorted(pieces[side]) for side in ("start", "end"))
    seconds = (pieces["end_ns"] - pieces["start_ns"]) / 1e9
    rate = (so_far[past] - so_far[first]) / seconds
    return pl.select(pl.when(seconds > 0).then(rate)).to_series()


TABLES: Final = (
    Table(
        name="traffic",
        schema=TRAFFIC_TABLE,
        make=traffic_table,
        csv="with rows",
        json_key=None,
        filled_by="record with nsysflow profile, which samples what NVIDIA's GPUs send and receive",
        shown=(
            "device step pcie_rx_bytes_per_s htod_bytes_per_s pcie_tx_bytes_per_s "
            "dtoh_bytes_per_s nvlink_tx_bytes_per_s nvlink_rx_bytes_per_s start_ns report process"
        ),
    ),
)
