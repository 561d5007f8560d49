"""What PyTorch's allocator did while nsys recorded: the histories of memory that processes leave,
beside nsys's own tables in an export (spec §26.14).
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.source_files import shown_files
from nsysflow.analysis.load.export_tables import TABLES
from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.analysis.load.snapshot import (
    OUT_OF_MEMORY,
    AllocatorRows,
    DeviceHistory,
    Entry,
    OddSnapshot,
)
from nsysflow.analysis.load.sqlite import quoted
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.trace import Note, NoteKind

_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 52)]
_Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]

_Frame = tuple[str, _Number, str]
"""File, line and function."""

_Entry = tuple[str, _Number | None, _Number, _Number, _Index | None]
"""What happened, the address (of memory that ran out, how much was free), the size, the time in us
of the system, and the number of the stack."""

_Block = tuple[_Number, _Number, _Index | None]
"""Address, size, and the number of the stack."""


class _OfDevice(msgspec.Struct):
    """A GPU of the process.

    Attributes:
        history: what happened, in order.
        blocks: what is in use at the end.
        reserved: how much is reserved then, in bytes.
        usable: how much of the GPU's memory the process could have, in bytes; None where it has
            none.
    """

    history: list[_Entry]
    blocks: list[_Block]
    reserved: _Number
    usable: _Number | None = None


class History(msgspec.Struct, kw_only=True):
    """What a process leaves.

    Attributes:
        pid: its id.
        rank: its rank under torchrun.
        full: whether entries may be missing at the beginning.
        frames: the distinct frames.
        stacks: the distinct stacks, as numbers of frames, innermost first.
        devices: its GPUs, by their number in the process.
    """

    pid: _Number
    rank: _Number | None = None
    full: bool = False
    frames: list[_Frame]
    stacks: list[list[_Index]]
    devices: list[_OfDevice]


_HISTORY: Final = msgspec.json.Decoder(History)
_ENCODER: Final = msgspec.json.Encoder()


def history_of(text: str | bytes) -> History | None:
    """The `History` that a process left; None if it is none."""
    return decoded_or_none(_HISTORY, text)


def add_histories(export: Path, histories: Iterable[History]) -> None:
    """Add histories to an export that is being made, in a table of ours.

    Raises:
        sqlite3.Error: it cannot be written.
    """
    table = quoted(TABLES["histories"].name)
    rows = [(history.pid, _ENCODER.encode(history).decode()) for history in histories]
    with closing(sqlite3.connect(export)) as db, db:
        db.execute(f"CREATE TABLE {table} (pid INTEGER, history TEXT)")
        db.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)


def slim_history(text: str) -> str | None:
    """A history whose files have the names that the analysis shows; None if it is none."""
    history = history_of(text)
    if history is None:
        return None
    names = shown_files(file for file, _, _ in history.frames)
    history.frames = [(names[file], line, function) for file, line, function in history.frames]
    return _ENCODER.encode(history).decode()


@dataclass(frozen=True, kw_only=True)
class AllocatorMemory:
    """What the histories of an export say.

    Attributes:
        memory: `schema.MEMORY`; `device` is the number in its process.
        out_of_memory: `schema.OUT_OF_MEMORY`, likewise.
        gpu_memory: `schema.GPU_MEMORY`, likewise.
        frames: `schema.FRAMES` of their stacks.
        notes: what is missing.
    """

    memory: pl.DataFrame
    out_of_memory: pl.DataFrame
    gpu_memory: pl.DataFrame
    frames: pl.DataFrame
    notes: tuple[Note, ...]


def allocator_rows(
    histories: pl.DataFrame, began_ns: Mapping[int, int], first_stack: int
) -> AllocatorMemory:
    """What the histories say, on the report's clock.

    Args:
        histories: `pid` and `history` of each process.
        began_ns: by process, when the report's clock was 0 by the time of the system.
        first_stack: the number of the first stack.
    """
    keys = pl.DataFrame({"process": [*began_ns]}, {"process": pl.Int64()})
    process_of = dict(keys.select(os_pid(pl.col("process")).alias("pid"), "process").iter_rows())
    read: list[AllocatorRows] = []
    usable: list[tuple[int, int, int]] = []
    notes: list[Note] = []
    for pid, text in histories.rows():
        history, process = history_of(text or ""), process_of.get(pid)
        if process is None:
            notes.append(_unread(pid, "has no mark of its clock in the report"))
            continue
        rows = AllocatorRows(began_ns[process], process, first_stack)
        try:
            usable += _add(rows, history, process)
        except (OddSnapshot, LookupError) as error:
            notes.append(_unread(pid, f"is damaged ({error})"))
            continue
        read.append(rows)
        first_stack += rows.stacks.count
        if history is not None and history.full:
            notes.append(Note(NoteKind.SNAPSHOT, _FULL.format(pid=pid)))
    memory, out_of_memory, frames = (
        pl.concat([columns.to_frame(), *parts])
        for columns, parts in (
            (schema.MEMORY, [rows.memory for rows in read]),
            (schema.OUT_OF_MEMORY, [rows.out_of_memory for rows in read]),
            (schema.FRAMES, [rows.stacks.table() for rows in read]),
        )
    )
    return AllocatorMemory(
        memory=memory,
        out_of_memory=out_of_memory,
        gpu_memory=pl.DataFrame(usable, schema.GPU_MEMORY, orient="row"),
        frames=frames,
        notes=tuple(notes),
    )


def _add(rows: AllocatorRows, history: History | None, process: int) -> list[tuple[int, int, int]]:
    """Take a history; gives the rows of `schema.GPU_MEMORY` for it.

    Raises:
        OddSnapshot: it is none, or its levels make no sense.
        LookupError: a number of a stack or frame stands for none.
    """
    if history is None:
        raise OddSnapshot("it is none")
    for device in _devices(history):
        rows.add(device)
    return [
        (process, number, device.usable)
        for number, device in enumerate(history.devices)
        if device.usable is not None
    ]


_FULL: Final = (
    "PyTorch kept only the last changes of memory of process {pid}: of earlier steps, and of where"
    " older memory was allocated, nothing is known"
)


def _unread(pid: int, why: str) -> Note:
    return Note(NoteKind.SNAPSHOT, f"the history of memory of process {pid} {why}: it was left out")


def _devices(history: History) -> list[DeviceHistory]:
    """The GPUs of a process, as a snapshot describes them.

    Raises:
        LookupError: a number of a stack or frame stands for none.
    """
    frames = [{"filename": f, "line": line, "name": name} for f, line, name in history.frames]
    stacks: dict[int | None, Any] = {None: None}
    stacks |= {at: [frames[number] for number in s] for at, s in enumerate(history.stacks)}
    return [
        DeviceHistory(
            number=number,
            history=[_entry(*entry, stacks) for entry in device.history],
            reserved_bytes=device.reserved,
            blocks=[
                {
                    "state": "active_allocated",
                    "address": address,
                    "requested_size": size,
                    "frames": stacks[stack],
                }
                for address, size, stack in device.blocks
            ],
        )
        for number, device in enumerate(history.devices)
    ]


def _entry(
    action: str,
    address: int | None,
    size: int,
    time_us: int,
    stack: int | None,
    stacks: Mapping[int | None, Any],
) -> Entry:
    """An entry of a history as a snapshot has it."""
    told = "device_free" if action == OUT_OF_MEMORY else "addr"
    happened = {"action": action, "size": size, "time_us": time_us, "frames": stacks[stack]}
    return {**happened, told: address}
