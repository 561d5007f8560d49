"""Reading a rocpd database as the oracle's rows, row by row (spec §1.13 to §1.20)."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsysflow.analysis.load.kernel_names import short_kernel_name
from tests.oracle.export import api_name
from tests.oracle.model import LOW_24_BITS, Call, Copy, Device, Op, PlainTrace, Range, Shape, Thread

Row = dict[str, Any]


def plain_rocpd(path: Path) -> PlainTrace:
    """Operations, calls, ranges, threads and GPUs of the database, in any order."""
    ops: list[Op] = []
    calls: list[Call] = []
    ranges: list[Range] = []
    threads: list[Thread] = []
    devices: dict[int, Device] = {}
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        for name in names:
            if found := re.fullmatch(r"rocpd_kernel_dispatch(_.*)?", name):  # 13
                run = _Process(db, names, found[1] or "")
                ops += run.ops()
                calls += run.calls()
                ranges += run.ranges()
                threads += run.threads()
                for device in run.devices():
                    devices.setdefault(device.device, device)
    used = {op.device for op in ops}
    return PlainTrace(
        ops=tuple(ops),
        calls=tuple(calls),
        ranges=tuple(ranges),
        threads=tuple(threads),
        devices=tuple(devices[device] for device in sorted(used)),
    )


@dataclass
class _Region:
    """A region with what its event says."""

    start: int
    end: int
    process: int | None
    thread: int | None
    name: str
    category: str
    stack: int | None
    message: str | None


class _Process:
    """The tables of one process."""

    def __init__(self, db: sqlite3.Connection, names: list[str], suffix: str) -> None:
        self._db, self._names, self._suffix = db, names, suffix
        self._tables: dict[str, list[Row]] = {}

    def _rows(self, table: str) -> list[Row]:
        """All rows of a table; none where it is missing."""
        if table not in self._tables:
            name = f"{table}{self._suffix}"
            found = self._db.execute(f'SELECT * FROM "{name}"') if name in self._names else ()
            self._tables[table] = [dict(row) for row in found]
        return self._tables[table]

    def _row(self, table: str, number: int | None) -> Row:
        """The row of a table with that number; empty if the table lacks it."""
        for row in self._rows(table):
            if number is not None and row["id"] == number:
                return row
        return {}

    def _value(self, row: Row, column: str) -> Any:
        """14: what stands in the row, else in its track."""
        if row.get(column) is not None:
            return row[column]
        return self._row("rocpd_track", row.get("track_id")).get(column)

    def _time(self, row: Row, side: str) -> int | None:
        """14: a time in the row, else in the table of times."""
        time = row.get(side)
        if time is None:
            time = self._row("rocpd_timestamp", row.get(f"{side}_id")).get("value")
        return None if time is None or abs(time) >= 1 << 62 else int(time)

    def _process(self, row: Row) -> int | None:
        """15."""
        pid = self._value(row, "pid")
        os_pid = self._row("rocpd_info_process", pid).get("pid")
        pid = pid if os_pid is None else os_pid
        return None if pid is None else (pid & LOW_24_BITS) << 24

    def _thread(self, row: Row) -> int | None:
        """15."""
        tid, process = self._value(row, "tid"), self._process(row)
        os_tid = self._row("rocpd_info_thread", tid).get("tid")
        tid = tid if os_tid is None else os_tid
        return None if tid is None or process is None else process + (tid & LOW_24_BITS)

    def _category(self, event: Row) -> str:
        """16."""
        if self._rows("rocpd_info_category"):
            return self._row("rocpd_info_category", event.get("category_id")).get("name") or ""
        return self._row("rocpd_string", event.get("category_id")).get("string") or ""

    def _regions(self) -> list[_Region]:
        regions = []
        for row in self._rows("rocpd_region"):
            start, end = self._time(row, "start"), self._time(row, "end")
            name = self._row("rocpd_string", row.get("name_id")).get("string")
            event = self._row("rocpd_event", row.get("event_id"))
            if start is not None and end is not None and name:
                where = self._process(row), self._thread(row)
                stack, said = event.get("stack_id"), _said(event, "message", str)
                category = self._category(event)
                regions.append(_Region(start, end, *where, name, category, stack, said))
        return regions

    def _hip(self) -> list[_Region]:
        """16."""
        return [r for r in self._regions() if re.search(r"(?i)hip\w*api", r.category)]

    def calls(self) -> list[Call]:
        """16."""
        return [
            Call(r.start, r.end, r.process, r.thread, r.stack or None, api_name(r.name))  # type: ignore[arg-type]
            for r in self._hip()
        ]

    def ranges(self) -> list[Range]:
        """17."""
        ranges = []
        for r in self._regions():
            rccl = bool(re.search("(?i)rccl", r.category))
            marker = bool(re.search("(?i)marker", r.category))
            if r.thread is not None and (rccl or (marker and r.message is not None)):
                across = not rccl and re.search("(?i)process|RangeStart", r.name)
                kind = "start_end" if across else "push_pop"
                domain, name = ("NCCL", r.name) if rccl else (None, r.message)
                where: Row = {"process": r.process, "thread": r.thread}
                what: Row = {"kind": kind, "domain": domain, "name": name, "row": 0}
                ranges.append(Range(start_ns=r.start, end_ns=r.end, **where, **what))
        return ranges

    def _gpus(self) -> dict[int | None, int]:
        """18: the GPU of each agent that is one."""
        gpus: dict[int | None, int] = {}
        agents = sorted(self._rows("rocpd_info_agent"), key=lambda agent: int(agent["id"]))
        for place, agent in enumerate(a for a in agents if a["type"] == "GPU"):
            stated = (agent.get("type_index"), agent.get("logical_index"), place)
            number = next(each for each in stated if each is not None)
            if -(2**31) <= number < 2**31:
                gpus[agent["id"]] = number
        return gpus

    def devices(self) -> list[Device]:
        """18."""
        gpus = self._gpus()
        agents = sorted(self._rows("rocpd_info_agent"), key=lambda agent: int(agent["id"]))
        return [
            Device(
                gpus[agent["id"]],
                agent.get("product_name") or agent.get("name"),
                None,
                _int32(_said(agent, "cu_count", int)),
                None,
            )
            for agent in agents
            if agent["id"] in gpus
        ]

    def ops(self) -> list[Op]:
        """19 and 20."""
        kernels = [self._kernel(row) for row in self._rows("rocpd_kernel_dispatch")]
        copies = [self._copy(row) for row in self._rows("rocpd_memory_copy")]
        return [op for op in (*kernels, *copies) if op is not None]

    def _kernel(self, row: Row) -> Op | None:
        symbol = self._row("rocpd_info_kernel_symbol", row.get("kernel_id"))
        name = symbol.get("display_name") or (symbol.get("kernel_name") or "").removesuffix(".kd")
        device = self._gpus().get(self._value(row, "agent_id"))
        sizes: Row = {}
        for axis in "xyz":
            threads, block = row.get(f"grid_size_{axis}"), row.get(f"workgroup_size_{axis}")
            blocks = None
            if threads is not None and block is not None and block > 0:
                blocks = (threads + block - 1) // block
            sizes[f"grid_{axis}"] = _int32(blocks)
            sizes[f"block_{axis}"] = _int32(block)
        registers = _int32(symbol.get("arch_vgpr_count"))
        shape = Shape(**sizes, registers=registers, shared_bytes=row.get("group_segment_size"))  # type: ignore[arg-type]
        return self._op("kernel", row, device, name, short_kernel_name(name), shape=shape)

    def _copy(self, row: Row) -> Op | None:
        gpus = self._gpus()
        source, target = (gpus.get(row.get(f"{side}_agent_id")) for side in ("src", "dst"))
        if target is None:
            direction = "DtoH"
        elif source is None:
            direction = "HtoD"
        else:
            direction = "DtoD" if source == target else "PtoP"
        sides = ("device" if side is not None else None for side in (source, target))
        copy = Copy(row.get("size"), direction, *sides)  # type: ignore[arg-type]
        device = source if target is None else target
        name = f"memcpy {direction}"
        return self._op("memcpy", row, device, name, name, copy=copy)

    def _op(
        self, kind: str, row: Row, device: int | None, name: str, short: str, **detail: Any
    ) -> Op | None:
        start, end = self._time(row, "start"), self._time(row, "end")
        if start is None or end is None or device is None or not name:
            return None
        event = self._row("rocpd_event", row.get("event_id"))
        own, around = event.get("stack_id"), event.get("parent_stack_id")
        known = {r.stack for r in self._hip() if r.stack}
        correlation = around if own not in known and around in known else own or None
        where = self._process(row), self._value(row, "stream_id")
        node = row.get("graph_node_id") or None
        return Op(kind, start, end, device, *where, correlation, node, name, short, **detail)

    def threads(self) -> list[Thread]:
        """15."""
        return [
            Thread(
                self._process(row) or 0, self._thread({**row, "tid": row["id"]}) or 0, row["name"]
            )
            for row in self._rows("rocpd_info_thread")
            if row.get("name") and row.get("tid") is not None
        ]


def _said(row: Row, key: str, kind: type) -> Any:
    """A value in the JSON of `extdata`; None where it is missing or of another type."""
    try:
        said = json.loads(row.get("extdata") or "{}")
    except ValueError:
        return None
    value = said.get(key) if isinstance(said, dict) else None
    return value if type(value) is kind else None


def _int32(value: int | None) -> int | None:
    """A number of 32 bits; None where it does not fit."""
    return value if value is not None and -(2**31) <= value < 2**31 else None
