"""Write each rank's part of a run as an export of its own, as nsys would have."""

import json
import lzma
import math
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import polars as pl

from benchmarks.many_ranks.changed import STRINGS, TENSOR_PARALLEL_BYTES
from benchmarks.many_ranks.simulated import Delay, Groups, Run, Times
from benchmarks.many_ranks.step import (
    CALLS,
    KERNELS,
    MEMCPYS,
    MEMSETS,
    RANGES,
    RECORDS,
    WAITS,
    Event,
    Op,
    Span,
    Step,
    Values,
)

GPUS_OF_A_HOST: Final = 8

_FIRST_PID: Final = 20_000
_COMMUNICATORS: Final = {"dp": 0x5EED_0000_0000_0000, "tp": 0x5EED_1000_0000_0000}

_UNSTATED_BYTES: Final = 67_129_344
"""What a rank of two holds of a block of the FSDP2 program: 2 x 2048 x 8192 weights and biases."""

_CLOCKS_NS: Final = 5_000_000_000
"""The clocks of two reports differ by this, at most."""

_NUMBERS: Final = (CALLS, KERNELS, MEMCPYS, MEMSETS, RECORDS, WAITS)
"""Tables of whole numbers, which ADBC writes in less than half the time of executemany. It takes
none of polars's text."""

_EMPTIED: Final = (KERNELS, MEMSETS, CALLS, "PROFILER_OVERHEAD", "DIAGNOSTIC_EVENT")
_ON_STREAM: Final = ("deviceId", "streamId", "correlationId", "globalPid", "eventSyncId")

_MEMCPY_COLUMNS: Final = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphNodeId, bytes,"
    " copyKind, srcKind, dstKind"
)


def unpack(report: Path, target: Path) -> Path:
    """An export, without its `.xz`."""
    opener = lzma.open if report.suffix == ".xz" else open
    with opener(report, "rb") as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return target


def empty_export(base: Path, *, pid: int) -> None:
    """Leave of an export what all ranks share: names, GPUs, and what describes the format.

    Args:
        base: the export; changed.
        pid: of the process whose step is repeated.
    """
    with closing(sqlite3.connect(base)) as db:
        for table in (RECORDS, WAITS):
            db.execute(f"DROP TABLE IF EXISTS {table}")
            numbers = ", ".join(f"{name} INTEGER" for name in _ON_STREAM)
            db.execute(f"CREATE TABLE {table} ({numbers})")
        for table in _EMPTIED:
            db.execute(f"DELETE FROM {table}")
        db.execute(
            f"DELETE FROM {RANGES} WHERE eventType <> 75 OR globalTid >> 24 & 0xFFFFFF <> {pid}"
        )
        db.execute(f"DELETE FROM ThreadNames WHERE globalTid >> 24 & 0xFFFFFF <> {pid}")
        columns = ", ".join(f'"{name.strip()}" INTEGER' for name in _MEMCPY_COLUMNS.split(","))
        db.execute(f"CREATE TABLE IF NOT EXISTS {MEMCPYS} ({columns})")
        db.execute(f"DELETE FROM {MEMCPYS}")
        db.executemany("INSERT OR REPLACE INTO StringIds VALUES (?, ?)", STRINGS.items())
        _set_gpus(db, pid)
        db.commit()
        db.execute("VACUUM")


def _set_gpus(db: sqlite3.Connection, pid: int) -> None:
    """Give the host eight GPUs like its first."""
    (gpu,) = db.execute("SELECT name, smCount, memoryBandwidth FROM TARGET_INFO_GPU LIMIT 1")
    db.execute("DELETE FROM TARGET_INFO_GPU")
    db.execute("DELETE FROM TARGET_INFO_CUDA_DEVICE")
    for number in range(GPUS_OF_A_HOST):
        db.execute(
            "INSERT INTO TARGET_INFO_GPU (id, name, uuid, smCount, memoryBandwidth)"
            " VALUES (?, ?, ?, ?, ?)",
            (number, gpu[0], f"gpu-{number}", *gpu[1:]),
        )
        db.execute(
            "INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (?, ?, ?)",
            (number, number, pid),
        )


@dataclass(frozen=True)
class Writer:
    """Writes the exports of a run into `folder`; `base` is one emptied, of process `pid`."""

    base: Path
    folder: Path
    pid: int
    step: Step
    groups: Groups
    run: Run
    seed: int
    delay: Delay | None
    communicators: bool

    def write(self, rank: int) -> Path:
        """The export of a rank."""
        target = self.folder / f"rank{rank}.sqlite"
        shutil.copyfile(self.base, target)
        _adapt(target, rank, self._moved(rank))
        with closing(sqlite3.connect(target)) as db:
            names = {table: _column_names(db, table) for table in (RANGES, *_NUMBERS)}
            ranges = self._table(RANGES, rank).select(names[RANGES])
            marks = ", ".join("?" * ranges.width)
            db.executemany(f"INSERT INTO {RANGES} VALUES ({marks})", ranges.iter_rows())
            db.commit()
        with (
            adbc_driver_sqlite.connect(str(target)) as driver,
            adbc_driver_manager.AdbcConnection(driver) as connection,
        ):
            connection.set_autocommit(False)
            for table in _NUMBERS:
                frame = self._table(table, rank)
                if len(frame):
                    _append(connection, table, frame.select(names[table]))
            connection.commit()
        return target

    def _table(self, table: str, rank: int) -> pl.DataFrame:
        """All rows of a table, step by step."""
        if table in (CALLS, RANGES):
            return self._spans([span for span in self.step.spans if span.table == table], rank)
        if table in (RECORDS, WAITS):
            return self._events(table, rank)
        return self._operations([op for op in self.step.ops if op.table == table], rank)

    def _spans(self, spans: Sequence[Span], rank: int) -> pl.DataFrame:
        number = {id(event): n for n, event in enumerate(self.step.events)}
        times = self.run.events[rank] + self._clock(rank)

        def at(events: Sequence[Event]) -> Times:
            placed: Times = times[:, [number[id(event)] for event in events]]
            return placed

        moved = self._moved(rank)
        rows = [
            span.values
            | {"globalTid": span.values["globalTid"] + moved}
            | ({"jsonText": self._payload(span, rank)} if span.group else {})
            for span in spans
        ]
        columns = {
            "start": at([span.begin for span in spans]),
            "end": at([span.end for span in spans]),
            "correlationId": self._correlations(spans),
        }
        return self._frame(rows, columns, self._kept([span.injected for span in spans], rank))

    def _events(self, table: str, rank: int) -> pl.DataFrame:
        """The rows of RECORDS or of WAITS."""
        waits, steps = self.step.waits, self.run.events.shape[1]
        sides = [
            (each.record, each.recorded_on) if table == RECORDS else (each.wait, each.waiting)
            for each in waits
        ]
        rows = [self._of_rank(rank) | {"streamId": stream} for _, stream in sides]
        numbers = np.arange(1, steps * len(waits) + 1, dtype=np.int64).reshape(steps, -1)
        columns = {
            "correlationId": self._correlations([span for span, _ in sides]),
            "eventSyncId": numbers,
        }
        return self._frame(rows, columns, self._kept([False] * len(waits), rank))

    def _of_rank(self, rank: int) -> Values:
        """The GPU and the process of a rank."""
        return {
            "deviceId": rank % GPUS_OF_A_HOST,
            "globalPid": (self.process >> 24) + _FIRST_PID + rank - self.pid << 24,
        }

    def _operations(self, ops: Sequence[Op], rank: int) -> pl.DataFrame:
        number = {id(op): n for n, op in enumerate(self.step.ops)}
        at = [number[id(op)] for op in ops]
        clock = self._clock(rank)
        columns = {
            "start": self.run.starts[rank][:, at] + clock,
            "end": self.run.ends[rank][:, at] + clock,
            "correlationId": self._correlations([op.launch for op in ops]),
        }
        rows = [op.values | self._of_rank(rank) | self._grid(op, rank) for op in ops]
        return self._frame(rows, columns, self._kept([op.injected for op in ops], rank))

    def _grid(self, op: Op, rank: int) -> Values:
        """The grid of a kernel that has more work on a rank."""
        works = self.delay is not None and (self.delay.kind, self.delay.rank) == ("work", rank)
        more = works and op.group is None and "gridX" in op.values
        return {"gridX": math.ceil(1.5 * op.values["gridX"])} if more else {}

    @property
    def process(self) -> int:
        """The globalPid of the process whose step it is."""
        return int(self.step.spans[0].values["globalTid"]) >> 24 << 24

    def _moved(self, rank: int) -> int:
        """What is added to the `globalTid` of a rank's threads: the same to process and thread, as
        the main thread is the one with the number of its process."""
        return (_FIRST_PID + rank - self.pid) * (1 << 24 | 1)

    def _clock(self, rank: int) -> int:
        """How far the clock of a rank's report is ahead."""
        return int(np.random.default_rng((self.seed, rank)).integers(_CLOCKS_NS))

    def _correlations(self, spans: Sequence[Span]) -> Times:
        """The ids of calls by step."""
        number = {id(span): n for n, span in enumerate(self.step.spans, start=1)}
        first = np.arange(self.run.events.shape[1], dtype=np.int64) * (len(number) + 1)
        return first[:, None] + np.array([number[id(span)] for span in spans], np.int64)

    def _payload(self, span: Span, rank: int) -> str | None:
        """What NCCL says of a collective: its size, and its communicator."""
        if not self.communicators or span.group is None:
            return None
        stated = json.loads(span.values.get("jsonText") or "{}").get("Message size [bytes]")
        usual = TENSOR_PARALLEL_BYTES if span.group == "tp" else _UNSTATED_BYTES
        (group,) = np.flatnonzero((self.groups.members(span.group) == rank).any(axis=1))
        number = _COMMUNICATORS[span.group] + int(group)
        return json.dumps({"Message size [bytes]": stated or usual, "NCCL communicator ID": number})

    def _kept(self, injected: Sequence[bool], rank: int) -> np.typing.NDArray[np.bool_]:
        """By step and row: whether it is there; what is injected is there where the delay is."""
        steps = range(self.run.events.shape[1])
        delay = self.delay
        here = [delay is not None and delay.rank == rank and delay.in_step(s) for s in steps]
        return ~np.array(injected, np.bool_)[None, :] | np.array(here, np.bool_)[:, None]

    def _frame(
        self,
        rows: Sequence[Values],
        columns: Mapping[str, Times],
        kept: np.typing.NDArray[np.bool_],
    ) -> pl.DataFrame:
        """The rows of a step once per step, with the columns that differ by step."""
        once = pl.DataFrame(list(rows), infer_schema_length=None).drop(columns, strict=False)
        steps = len(kept)
        again = pl.concat([once] * steps) if rows else once
        varied = [pl.Series(name, values.reshape(-1)) for name, values in columns.items()]
        return again.with_columns(varied).filter(pl.Series(kept.reshape(-1)))


def _adapt(target: Path, rank: int, moved: int) -> None:
    """Make the processes and GPUs of an export those of a rank and its host."""
    host = rank // GPUS_OF_A_HOST
    with closing(sqlite3.connect(target)) as db:
        db.execute("PRAGMA synchronous = OFF")
        for table in (RANGES, "ThreadNames"):
            db.execute(f"UPDATE {table} SET globalTid = globalTid + {moved}")
        db.execute(f"UPDATE TARGET_INFO_CUDA_DEVICE SET pid = {_FIRST_PID + rank}")
        db.execute(f"UPDATE TARGET_INFO_GPU SET uuid = 'host-{host}-' || uuid")
        db.commit()


def _column_names(db: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]


def _append(
    connection: adbc_driver_manager.AdbcConnection, table: str, frame: pl.DataFrame
) -> None:
    """Add rows of whole numbers to a table."""
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(
            **{
                "adbc.ingest.target_table": table,
                "adbc.ingest.mode": "adbc.ingest.mode.append",
            }
        )
        statement.bind_stream(frame.cast(pl.Int64).__arrow_c_stream__())
        statement.execute_update()
