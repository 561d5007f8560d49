"""Which tracks a report has: its processes with their threads, its GPUs with their streams."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.perfetto.packets import Packets

_PID_STEP: Final = 1 << 22
"""Linux has no larger pid: a rank whose pid another rank has gets this added."""

_OF_GPU: Final = ("gaps", "stream", "counter")


@dataclass
class PerfettoLanes:
    """The tracks of one report.

    Slices of one track must not overlap, so each depth of a lane has a track. They have the same
    name and parent, and the viewer draws them as one.

    Attributes:
        packets: where they are described.
        report: the report's name.
        several: whether there are other reports beside it.
        used: the pids that reports have so far.
        names: of threads, by pid and tid.
        gpus: the names of GPUs, by number.
    """

    packets: Packets
    report: str
    several: bool
    used: set[int]
    names: Mapping[tuple[int, int], str]
    gpus: Mapping[int, str]
    _groups: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of_trace(
        cls, trace: Trace, packets: Packets, *, several: bool, used: set[int]
    ) -> "PerfettoLanes":
        """The tracks of a report, none of them described yet."""
        threads = trace.threads.select(
            os_pid(pl.col("process")).alias("pid"), os_tid(pl.col("thread")).alias("tid"), "name"
        )
        return cls(
            packets=packets,
            report=trace.report,
            several=several,
            used=used,
            names={(pid, tid): name for pid, tid, name in threads.drop_nulls().rows()},
            gpus=dict(trace.devices.select("device", "name").drop_nulls().rows()),
        )

    def describe(self, tracks: Tracks) -> pl.Series:
        """Describe the tracks of all lanes; returns the first track of each. Of gaps it is that of
        the first cause; the others follow in their order."""
        first_tracks = []
        for lane in tracks.lanes.iter_rows(named=True):
            if lane["kind"] == "gaps":
                first_tracks.append(self._causes(lane, tracks.gaps))
            elif lane["kind"] == "counter":
                first_tracks.append(
                    self.counter(lane["title"], self._parent(lane), "%", lane["lane"])
                )
            else:
                first_tracks.append(self._depths(lane))
        return pl.Series("first", first_tracks, dtype=pl.UInt64)

    def counter(self, title: str, parent: int, unit: str = "", rank: int = 0) -> int:
        """Describe the track of a counter; returns it."""
        uuid = self.packets.uuids(1)
        self.packets.describe(
            uuid,
            parent_uuid=parent,
            name=title,
            counter={"unit_name": unit},
            sibling_order_rank=rank,
        )
        return uuid

    def gpu(self, device: int) -> int:
        """The track that holds those of a GPU."""
        name = f"GPU {device} {self.gpus.get(device, '')}".rstrip()
        return self._group("gpu", device, name=f"{self.report}: {name}" if self.several else name)

    def process(self, pid: int | None) -> int:
        """The track that holds those of a process."""
        if pid is None:
            return self._group("unknown", name=f"{self.report}: process not recorded")
        descriptor = {"pid": self._pid(pid), "process_name": self.report}
        return self._group("process", pid, process=descriptor)

    def _pid(self, pid: int) -> int:
        """The pid of a process in the trace: its own, unless another report has it too."""
        if pid not in self._pids:
            shown = pid
            while shown in self.used:
                shown += _PID_STEP
            self._pids[pid] = shown
            self.used.add(shown)
        return self._pids[pid]

    def _thread(self, pid: int, tid: int) -> int:
        """The track that holds those of a thread."""
        name = self.names.get((pid, tid)) or ("main thread" if pid == tid else f"thread {tid}")
        descriptor = {"pid": self._pid(pid), "tid": tid, "thread_name": name}
        return self._group("thread", pid, tid, parent_uuid=self.process(pid), thread=descriptor)

    def _group(self, kind: str, first: int = 0, second: int = 0, **fields: Any) -> int:
        """The track of a process, a thread or a GPU, described once."""
        key = (kind, first, second)
        if key not in self._groups:
            self._groups[key] = self.packets.uuids(1)
            self.packets.describe(self._groups[key], child_ordering="EXPLICIT", **fields)
        return self._groups[key]

    def _parent(self, lane: Mapping[str, Any]) -> int:
        if lane["kind"] in _OF_GPU:
            return self.gpu(lane["device"])
        if lane["thread"] is None or lane["process"] is None:
            return self.process(lane["process"])
        return self._thread(lane["process"], lane["thread"])

    def _depths(self, lane: Mapping[str, Any]) -> int:
        """A track for each depth; returns the first."""
        parent, first = self._parent(lane), self.packets.uuids(lane["rows"])
        for uuid in range(first, first + lane["rows"]):
            self._describe(uuid, lane, parent, lane["title"])
        return first

    def _causes(self, lane: Mapping[str, Any], gaps: pl.DataFrame) -> int:
        """A track for each cause that has a part of a gap; returns that of the first cause."""
        parent, first = self._parent(lane), self.packets.uuids(len(CAUSES))
        mine = gaps.filter(pl.col("lane") == lane["lane"])
        for uuid, cause in enumerate(CAUSES.values(), start=first):
            if mine[f"{cause.name}_ns"].sum():
                self._describe(uuid, lane, parent, f"{lane['title']}: {cause.label}")
        return first

    def _describe(self, uuid: int, lane: Mapping[str, Any], parent: int, name: str) -> None:
        self.packets.describe(uuid, parent_uuid=parent, name=name, sibling_order_rank=lane["lane"])
