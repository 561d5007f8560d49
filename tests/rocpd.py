"""Small rocpd databases of rocprofv3, written by hand in each form of its schema.

`inline` (3.0) has the place and times of an event in its row, `tracks` (4.1) its place in a track,
`times` (the first one) its place in a track and its times in a table of times.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from nsysflow.analysis.trace import Trace

Form = Literal["inline", "tracks", "times"]
FORMS: Final[tuple[Form, ...]] = ("inline", "tracks", "times")

PID: Final = 4711
MAIN: Final = PID << 24 | PID
UUID: Final = "_0a1b2c3d"

_VERSIONS: Final[Mapping[Form, str]] = {"inline": "3.0.2", "tracks": "4.1.0", "times": "3"}


@dataclass
class Database:
    """Tables as rows: of each table its columns and what they hold."""

    form: Form
    suffix: str = UUID
    pid: int = PID
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("rocpd_metadata", tag="schema_version", value=_VERSIONS[self.form])
        self.add("rocpd_info_process", id=self.pid, pid=self.pid)
        self.add("rocpd_info_thread", id=self.pid, pid=self.pid, tid=self.pid, name="python")
        self.agent("CPU", 0, "AMD EPYC")
        self.agent("GPU", 0, "AMD Instinct MI300X", cu_count=304)
        self.agent("GPU", 1, "AMD Instinct MI300X", cu_count=304)

    def add(self, table: str, **columns: Any) -> int:
        """A row of a table; its number."""
        rows = self.rows.setdefault(f"{table}{self.suffix}", [])
        rows.append({"id": len(rows) + 1, **columns})
        return int(rows[-1]["id"])

    def agent(self, kind: str, index: int, name: str, **extra: Any) -> None:
        where = {"type": kind, "type_index": index, "logical_index": index}
        names = {"name": "gfx942", "product_name": name}
        self.add("rocpd_info_agent", **where, **names, extdata=json.dumps(extra))

    def string(self, text: str) -> int:
        """The number of a text."""
        if text not in self.strings:
            self.strings[text] = self.add("rocpd_string", string=text)
        return self.strings[text]

    def event(self, category: str, stack: int, parent: int, extra: Mapping[str, Any]) -> int:
        if self.form == "tracks":
            known = self.rows.setdefault(f"rocpd_info_category{self.suffix}", [])
            number = next((row["id"] for row in known if row["name"] == category), None)
            number = number or self.add("rocpd_info_category", name=category)
        else:
            number = self.string(category)
        about = {"category_id": number, "stack_id": stack, "parent_stack_id": parent}
        return self.add("rocpd_event", **about, extdata=json.dumps(extra))

    def ran(self, table: str, start: int, end: int, place: Mapping[str, Any], **more: Any) -> None:
        """A row of something that ran from `start` to `end` at `place`."""
        row = dict(more)
        if self.form == "inline":
            row |= place
        else:
            tracks = self.rows.setdefault(f"rocpd_track{self.suffix}", [])
            row["track_id"] = next(
                (track["id"] for track in tracks if track.items() >= place.items()), None
            ) or self.add("rocpd_track", **{**_PLACE, **place})
        if self.form == "times":
            row["start_id"] = self.add("rocpd_timestamp", value=start)
            row["end_id"] = self.add("rocpd_timestamp", value=end)
        else:
            row |= {"start": start, "end": end}
        self.add(table, **row)

    def call(
        self,
        start: int,
        end: int,
        stack: int,
        name: str = "hipLaunchKernel",
        category: str = "HIP_RUNTIME_API_EXT",
        message: str | None = None,
    ) -> None:
        """A region on the main thread."""
        extra = {} if message is None else {"message": message}
        row = {"name_id": self.string(name), "event_id": self.event(category, stack, 0, extra)}
        self.ran("rocpd_region", start, end, {"pid": self.pid, "tid": self.pid}, **row)

    def kernel(
        self,
        start: int,
        end: int,
        stack: int,
        name: str = "_ZN4mine3addEPf.kd",
        *,
        parent: int = 0,
        agent: int = 2,
        stream: int = 1,
        **more: Any,
    ) -> None:
        """A dispatch of 4 blocks of 64 threads."""
        symbols = self.rows.setdefault(f"rocpd_info_kernel_symbol{self.suffix}", [])
        number = next((each["id"] for each in symbols if each["kernel_name"] == name), None)
        number = number or self.add(
            "rocpd_info_kernel_symbol", kernel_name=name, display_name=None, arch_vgpr_count=32
        )
        place = {"pid": self.pid, "tid": self.pid, "agent_id": agent, "stream_id": stream}
        row = {
            "workgroup_size_x": 64,
            "workgroup_size_y": 1,
            "workgroup_size_z": 1,
            "grid_size_x": 250,
            "grid_size_y": 1,
            "grid_size_z": 1,
            "kernel_id": number,
            "group_segment_size": 1024,
            "event_id": self.event("KERNEL_DISPATCH", stack, parent, {}),
        }
        self.ran("rocpd_kernel_dispatch", start, end, place, **row | more)

    def copy(
        self, start: int, end: int, stack: int, source: int | None, target: int | None, size: int
    ) -> None:
        """A copy between agents: 1 is the CPU, 2 and 3 are GPUs."""
        place = {"pid": self.pid, "tid": self.pid, "stream_id": 1}
        row = {"src_agent_id": source, "dst_agent_id": target, "size": size}
        row["name_id"] = self.string("MEMORY_COPY_HOST_TO_DEVICE")
        row["event_id"] = self.event("MEMORY_COPY", stack, 0, {})
        self.ran("rocpd_memory_copy", start, end, place, **row)


_PLACE: Final = dict.fromkeys(("pid", "tid", "agent_id", "queue_id", "stream_id"))


def write_rocpd(path: Path, *databases: Database) -> Path:
    """One file with the tables of each process."""
    with closing(sqlite3.connect(path)) as db, db:
        for database in databases:
            for table, rows in database.rows.items():
                columns = list(dict.fromkeys(name for row in rows for name in row))
                types = ", ".join(
                    f'"{name}" INTEGER PRIMARY KEY' if name == "id" else f'"{name}"'
                    for name in columns
                )
                db.execute(f'CREATE TABLE "{table}" ({types})')
                _insert(db, table, columns, ([row.get(name) for name in columns] for row in rows))
            view = 'CREATE VIEW IF NOT EXISTS rocpd_kernel_dispatch AS SELECT * FROM "{}"'
            db.execute(view.format(f"rocpd_kernel_dispatch{database.suffix}"))
    return path


def _insert(
    db: sqlite3.Connection, table: str, columns: list[str], rows: Iterable[list[Any]]
) -> None:
    marks = ", ".join("?" * len(columns))
    db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)


def assert_is_step(trace: Trace) -> None:
    """Whether a trace of rocprofv3, in any of its formats, has the step that both tests write."""
    assert trace.ops.select(
        "kind", "start_ns", "end_ns", "device", "process", "stream", "correlation", "short_name"
    ).rows() == [
        ("kernel", 12, 40, 0, PID << 24, 1, 1, "add"),
        ("memcpy", 120, 149, 0, PID << 24, 1, 3, "memcpy HtoD"),
    ]
    assert trace.copy_details.rows() == [(4096, "HtoD", None, "device")]
    assert trace.calls.select("start_ns", "end_ns", "thread", "correlation", "name").rows() == [
        (5, 10, MAIN, 1, "hipLaunchKernel"),
        (41, 100, MAIN, 2, "hipDeviceSynchronize"),
        (110, 150, MAIN, 3, "hipMemcpy"),
    ]
    assert trace.ranges.select("start_ns", "end_ns", "kind", "thread", "name").rows() == [
        (0, 200, "push_pop", MAIN, "step 1")
    ]
    assert trace.threads.rows() == [(PID << 24, MAIN, "python")]
