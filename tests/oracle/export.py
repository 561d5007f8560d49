"""Reading an unpacked SQLite export as the oracle's rows, row by row."""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from html import unescape
from itertools import groupby
from math import ceil, floor
from pathlib import Path
from typing import Any

from tests.oracle import model
from tests.oracle.model import LOW_24_BITS, PROCESS_MASK, PlainTrace
from tests.oracle.once import unmeasured
from tests.oracle.retries import TAKES


def api_name(name: str) -> str:
    """§1.12: the name without its version suffix (`cudaLaunchKernel_v7000`, `_ptsz`)."""
    while (shorter := re.sub(r"_(v\d+|ptsz|ptds|spt)$", "", name)) != name:
        name = shorter
    return name


def kernel_name(short: str, full: str) -> str:
    """§6.2: the short name; a generic one is replaced by that of its first template argument."""
    if short in ("Kernel", "Kernel2", "kernel", "device_kernel", "_kernel_agent"):
        argument = full.partition(f"{short}<")[2]
        found = re.match(r"(?:[\w<>]+::)*(?:enable_\w+<(?:\w+::)*)?([A-Za-z]\w+)", argument)
        return found[1] if found else short
    return short


MEMORY_BY_LABEL = {
    "Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array",
    "Managed": "managed", "Device Static": "device", "Managed Static": "managed",
    "Unknown": "unknown",
}  # fmt: skip
MEMORY_BY_NUMBER = dict(enumerate(MEMORY_BY_LABEL.values()))
DIRECTION_BY_LABEL = {
    "Unknown": "unknown", "Host-to-Device": "HtoD", "Device-to-Host": "DtoH",
    "Host-to-Array": "HtoA", "Array-to-Host": "AtoH", "Array-to-Array": "AtoA",
    "Array-to-Device": "AtoD", "Device-to-Array": "DtoA", "Device-to-Device": "DtoD",
    "Host-to-Host": "HtoH", "Peer-to-Peer": "PtoP", "Unified Host-to-Device": "unified HtoD",
    "Unified Device-to-Host": "unified DtoH", "Unified Device-to-Device": "unified DtoD",
}  # fmt: skip
DIRECTION_BY_NUMBER = dict(enumerate(DIRECTION_BY_LABEL.values()))


class _Export:
    """An open export: rows as dicts. §1.3, §1.4: missing tables have no rows, columns are None."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.db.row_factory = sqlite3.Row
        self.tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        self.strings = {row["id"]: row["value"] for row in self.rows("StringIds")}

    def rows(self, table: str) -> Iterator["_Row"]:
        """§1.3: the rows of a table whose times are possible, with the text of `nameId`."""
        times = ("timestamp",) if table == "GPU_METRICS" else ("start", "end")
        if table in self.tables:
            for values in self.db.execute(f'SELECT * FROM "{table}" ORDER BY rowid'):
                row = _Row(zip(values.keys(), values, strict=True))
                if row["nameId"] is not None:
                    row["name"] = self.strings[row["nameId"]]
                if all(row[time] is None or abs(row[time]) < 1 << 62 for time in times):
                    yield row

    @cached_property
    def _gpus(self) -> dict[tuple[int, int], int]:
        rows = self.rows("TARGET_INFO_CUDA_DEVICE")
        return {(row["pid"], row["cudaId"]): row["gpuId"] for row in rows}

    def gpu(self, process: int | None, number: int) -> int:
        """§1.9: the physical GPU of a process's device."""
        pid = -1 if process is None else process >> 24 & LOW_24_BITS
        return self._gpus.get((pid, number), number)

    def enum(
        self, table: str, by_label: dict[str, str], fallback: dict[int, str]
    ) -> dict[int, str]:
        """§1.3: labels by number, from an `ENUM_*` table or else from `fallback`."""
        known = (row for row in self.rows(table) if row["label"] in by_label)
        return {**fallback, **{row["id"]: by_label[row["label"]] for row in known}}

    def text(self, event: "_Row") -> str | None:
        """The text of an NVTX event."""
        return event["text"] if event["text"] is not None else self.strings.get(event["textId"])

    def domains(self, events: list["_Row"]) -> dict[tuple[int, int], str]:
        """§1: the name of each domain, by process and number."""
        named = ((event, self.text(event)) for event in events if event["eventType"] == 75)
        return {(event["process"], event["domainId"]): name for event, name in named if name}


class _Row(dict[str, Any]):
    """A row; a column that it lacks is None."""

    def __missing__(self, column: str) -> Any:
        match column:
            case "process":  # §1.7: `globalTid & ~0xFFFFFF` = `globalPid`
                return self["globalTid"] & PROCESS_MASK
            case "thread":
                return self["globalTid"]
            case "correlation":  # §1.8: a correlationId of 0 never joins, like NULL
                return self["correlationId"] or None
            case "original":
                return self["originalGraphNodeId"] or None
        return None

    def of(self, columns: str) -> Any:
        """The values of these columns."""
        return tuple(self[column] for column in columns.split())


@unmeasured
def read_export(path: Path) -> PlainTrace:
    """One unpacked SQLite export as canonical rows; rows of negative length are kept."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        export = _Export(db)
        rows: dict[str, Any] = {name: tuple(read(export)) for name, read in _READ.items()}
        return PlainTrace(report=path.stem, **rows)


def _each(of: Callable[..., Any], table: str, columns: str, export: _Export) -> Iterator[Any]:
    """What stands in these columns of a table's rows, without those of an unknown thread."""
    rows = export.rows(table)
    return (of(*row.of(columns)) for row in rows if row.get("globalTid", 0) is not None)


def _calls(export: _Export) -> Iterator[tuple[model.Call, int | None]]:
    """Each call, and what it returned."""
    for row in export.rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
        row["name"] = api_name(row["name"])
        call = model.Call(*row.of("start end process thread correlation name"))
        yield call, row["returnValue"]


def _on_streams(of: type[model.EventRecord], table: str, export: _Export) -> Iterator[Any]:
    """§1: records of events, or waits; the device of a wait is that of its context."""
    contexts = {
        (row["processId"], row["contextId"]): row["deviceId"]
        for row in export.rows("TARGET_INFO_CUDA_CONTEXT_INFO")
    }
    for row in export.rows(table):
        pid = (row["globalPid"] >> 24) & LOW_24_BITS
        device = row["deviceId"]
        if table.endswith("SYNCHRONIZATION"):
            device = contexts.get((pid, row["contextId"]), device)
        stream = None if row["streamId"] == 0xFFFFFFFF else row["streamId"]
        device = export.gpu(row["globalPid"], device)
        number = row["eventSyncId"] or None
        yield of(row["globalPid"], device, row["correlation"], stream, number)


def _ops(export: _Export) -> Iterator[model.Op]:
    """§1.9: kernels, memcpys, memsets and graph traces, on their physical GPU."""
    memory = export.enum("ENUM_CUDA_MEM_KIND", MEMORY_BY_LABEL, MEMORY_BY_NUMBER)
    direction = export.enum("ENUM_CUDA_MEMCPY_OPER", DIRECTION_BY_LABEL, DIRECTION_BY_NUMBER)
    for kind in ("kernel", "memcpy", "memset", "graph"):
        table = "GRAPH_TRACE" if kind == "graph" else kind.upper()
        for row in export.rows(f"CUPTI_ACTIVITY_KIND_{table}"):
            process = row["globalPid"]
            name = short_name = kind
            shape = copy = None
            if kind == "kernel":
                name = export.strings[row["demangledName"]]
                short_name = kernel_name(export.strings[row["shortName"]], name)
                sizes = row.of("gridX gridY gridZ blockX blockY blockZ registersPerThread")
                shared = sum(row.of("staticSharedMemory dynamicSharedMemory"))
                shape = model.Shape(*(*sizes, shared))
            if kind == "memcpy":
                way = direction.get(row["copyKind"], "unknown")
                sides = memory.get(row["srcKind"]), memory.get(row["dstKind"])
                copy = model.Copy(row["bytes"], way, *sides)
                name = short_name = f"memcpy {way}"
            device = export.gpu(process, row["deviceId"])
            where = device, process, row["streamId"], row["correlation"], row["graphNodeId"]
            times = row["start"], row["end"]
            yield model.Op(kind, *times, *where, name, short_name, shape, copy)


def _ranges(export: _Export) -> Iterator[model.Range]:
    """§1: `NVTX_EVENTS` type 59 (push/pop), 60 (start/end); type 75 names domains, per process."""
    events = list(export.rows("NVTX_EVENTS"))
    domains = export.domains(events)
    kinds = {59: "push_pop", 60: "start_end"}
    for row, event in enumerate(events):
        if event["eventType"] in kinds:
            domain = domains.get((event["process"], event["domainId"]))
            name = export.text(event) or ""
            # §7.19: a recorder without domains writes the domain in front of the name
            if name.startswith("nsysflow.auto:"):
                domain, name = "nsysflow.auto", name.removeprefix("nsysflow.auto:")
            kind = kinds[event["eventType"]]
            where = event["process"], event["thread"]
            yield model.Range(event["start"], event["end"], kind, *where, domain, name, row)


def _gil(export: _Export) -> Iterator[model.Gil]:
    """§28.1: the ranges of the domain `GIL Trace`, by name."""
    states = {"Holding GIL": "holding", "Waiting for GIL": "waiting"}
    for row in _ranges(export):
        if row.domain == "GIL Trace" and row.name in states:
            yield model.Gil(row.start_ns, row.end_ns, row.thread, states[row.name])


def _python_stacks(of: Callable[..., Any], kind: str, export: _Export) -> Iterator[Any]:
    """§11.1, §17.1: NVTX events of type 34 in a domain of their own, escaped for HTML. Of samples,
    those of threads that make calls, take the GIL or were read count."""
    calling = {row["globalTid"] for row in export.rows("CUPTI_ACTIVITY_KIND_RUNTIME")}
    calling |= {row.thread for row in _gil(export)}
    calling |= {row.thread for row in _thread_cpu(export)}
    events = list(export.rows("NVTX_EVENTS"))
    domains = {number for (_, number), name in export.domains(events).items() if name == kind}

    def said(number: int) -> str:
        return unescape(export.strings[number])

    for event in events:
        text = event["jsonText"] or export.strings.get(event["jsonTextId"])
        counts = kind != "Python Periodic Sampling" or event["globalTid"] in calling
        if event["eventType"] == 34 and event["domainId"] in domains and text and counts:
            frames = (
                model.Frame(said(frame["File"]), frame["Line"], said(frame["Function"]))
                for frame in json.loads(text)[kind]["Frames"]
            )
            yield of(event["start"], event["globalTid"], tuple(frames))


METRIC_NAMES = {
    "SM Active": "sm_active_pct",
    "SMs Active": "sm_active_pct",
    "SM Issue": "sm_issue_pct",
    "Tensor Active": "tensor_active_pct",
    "Tensor Active / FP16 Active": "tensor_active_pct",
    "DRAM Read Bandwidth": "dram_read_pct",
    "DRAM Write Bandwidth": "dram_write_pct",
}


def _gpu_samples(export: _Export) -> Iterator[model.GpuSample]:
    """§10.2: counters by name; the low 8 bits of `typeId` are the GPU's index."""
    metrics = {
        (row["typeId"], row["metricId"]): METRIC_NAMES.get(
            row["metricName"].removesuffix(" [Throughput %]")
        )
        for row in export.rows("TARGET_INFO_GPU_METRICS")
    }
    samples: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for row in export.rows("GPU_METRICS"):
        metric = metrics.get((row["typeId"], row["metricId"]))
        if metric is not None:
            samples[row["typeId"] % 256, row["timestamp"]][metric] = floor(row["value"] + 0.5)
    for (device, time_ns), values in sorted(samples.items()):
        yield model.GpuSample(time_ns, device, **values)


def _sampled_clocks(export: _Export) -> Iterator[model.GpuState]:
    """§25.1: the clock among nsys's counters."""
    names = ("GPC Clock Frequency", "GPC Clock Frequency [MHz]", "GPC Clock Frequency [Hz]")
    clocks = {
        (row["typeId"], row["metricId"])
        for row in export.rows("TARGET_INFO_GPU_METRICS")
        if row["metricName"] in names
    }
    for row in export.rows("GPU_METRICS"):
        if (row["typeId"], row["metricId"]) in clocks and row["value"] < 1 << 36:
            mhz = row["value"] / 1e6 if row["value"] > 100_000 else row["value"]
            yield model.GpuState(row["timestamp"], row["typeId"] % 256, floor(mhz + 0.5))


def _thread_cpu(export: _Export) -> Iterator[model.ThreadCpu]:
    """§29.1: readings of threads that marks of ours hold."""
    for process, at_ns, about in _marks(export):
        for tid, ran_ns, waited_ns in about.get("thread_cpu", []):
            yield model.ThreadCpu(at_ns, process | tid, ran_ns, waited_ns)


def _process_cpu(export: _Export) -> Iterator[model.ProcessCpu]:
    """§29.1: readings of processes that marks of ours hold."""
    for process, at_ns, about in _marks(export):
        for values in about.get("process_cpu", []):
            yield model.ProcessCpu(at_ns, process, *values)


def _marked_states(export: _Export) -> Iterator[model.GpuState]:
    """§25.1: the states that marks of ours hold."""
    for process, at_ns, about in _marks(export):
        for number, sm, memory, milliwatts, celsius, bits in about.get("gpu_states", []):
            gpu = export.gpu(process, number)
            watts = None if milliwatts is None else floor(milliwatts / 1000 + 0.5)
            yield model.GpuState(at_ns, gpu, sm, memory, watts, celsius, limit_of(bits))


def _traffic(export: _Export) -> Iterator[model.GpuTraffic]:
    """§25.5: the traffic that marks of ours hold."""
    for process, at_ns, about in _marks(export):
        for number, past_ns, *rates in about.get("gpu_traffic", []):
            gpu = export.gpu(process, number)
            yield model.GpuTraffic(at_ns, gpu, past_ns, *rates)


LIMITS = (
    ("thermal", (0x20, 0x40)),
    ("power_brake", (0x80,)),
    ("hardware", (0x8,)),
    ("power_cap", (0x4,)),
    ("sync_boost", (0x10,)),
    ("setting", (0x2, 0x100)),
    ("idle", (0x1,)),
)


def limit_of(bits: int | None) -> str | None:
    """§25.1: the first limit of which a bit is set."""
    if bits is None:
        return None
    for name, of_limit in LIMITS:
        if any(bits & bit for bit in of_limit):
            return name
    return "none"


def _memory(export: _Export) -> Iterator[model.MemoryChange]:
    """§26.2: what CUDA allocated and freed."""
    found: dict[tuple[int, int], list[model.MemoryChange]] = defaultdict(list)
    pools: dict[tuple[int, int, int], tuple[int, int]] = {}
    rows = [*enumerate(export.rows("CUDA_GPU_MEMORY_USAGE_EVENTS"))]
    for number, row in sorted(rows, key=lambda each: (each[1]["start"], each[0])):
        sign = {0: 1, 1: -1}.get(row["memoryOperationType"])
        if sign is None or row["memKind"] not in (2, 3, 5):
            continue
        process, change = row["globalPid"], sign * row["bytes"]
        device = export.gpu(process, row["deviceId"])
        mine, pool = found[process, device], row["localMemoryPoolAddress"] or 0
        allocated = mine[-1].allocated_bytes if mine else None
        reserved = (mine[-1].reserved_bytes or 0) if mine else 0
        if pool:
            size, used = row["localMemoryPoolSize"] or 0, row["localMemoryPoolUtilizedSize"] or 0
            size_before, used_before = pools.get((process, device, pool), (0, 0))
            pools[process, device, pool] = size, used
            reserved, allocated = (
                reserved + size - size_before,
                (allocated or 0) + used - used_before,
            )
        else:
            reserved += change
        mine.append(
            model.MemoryChange(
                *(row["start"], number, device, process, "cuda", change, allocated, reserved),
                correlation=row["correlationId"] or None,
                address=row["address"],
            )
        )
    for changes in found.values():
        lowest = min(0, *(change.reserved_bytes or 0 for change in changes), 0)
        for change in changes:
            yield replace(change, reserved_bytes=(change.reserved_bytes or 0) - lowest)


def _allocator(export: _Export) -> Iterator[model.MemoryChange | model.Failure]:
    """§26.14: what the histories of processes say, on the clock of the report."""
    marks = [(at - about["unix_ns"], p) for p, at, about in _marks(export) if "unix_ns" in about]
    for row in export.rows("NSYSFLOW_MEMORY"):
        history, pid = json.loads(row["history"]), row["pid"]
        ahead = [mark for mark in marks if mark[1] >> 24 & 0xFFFFFF == pid]
        if not ahead:
            continue
        apart, process = min(ahead)
        known = [model.Frame(*frame) for frame in history["frames"]]
        stacks = [[known[number] for number in stack] for stack in history["stacks"]]
        count = 0
        for number, device in enumerate(history["devices"]):
            gpu, last = export.gpu(process, number), -1
            older = [*_older(device)]
            changed = sum(
                _RESERVES.get(action, 0) * size for action, _, size, _, _ in device["history"]
            )
            allocated, reserved = 0, device["reserved"] - changed
            for at, (action, address, size, time_us, stack) in enumerate(older + device["history"]):
                if at >= len(older):
                    last = max(1000 * time_us + apart, last + 1)
                time_ns = last if at >= len(older) else -(1 << 62) + at
                frames = None if stack is None else _of_python(stacks[stack])
                if action == "oom":
                    yield model.Failure(time_ns, gpu, process, None, size, address, frames)
                    continue
                change = _ALLOCATES.get(action, 0) * ceil(size / 512) * 512
                allocated += change
                reserved += _RESERVES.get(action, 0) * size
                yield model.MemoryChange(
                    *(time_ns, count, gpu, process, "allocator", change, allocated, reserved),
                    address=address if change else None,
                    frames=frames,
                )
                count += 1


def _gpu_memory(export: _Export) -> Iterator[model.GpuMemory]:
    """§26.15: how much memory each process can have."""
    processes = {process >> 24 & 0xFFFFFF: process for process, _, _ in _marks(export)}
    for row in export.rows("NSYSFLOW_MEMORY"):
        for number, device in enumerate(json.loads(row["history"])["devices"]):
            if device.get("usable") is not None and row["pid"] in processes:
                process = processes[row["pid"]]
                yield model.GpuMemory(process, export.gpu(process, number), device["usable"])


_ALLOCATES = {"alloc": 1, "free_requested": -1}
_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _older(device: dict[str, Any]) -> Iterator[list[Any]]:
    """§26.12: what there was before a history, as entries that allocate it."""
    allocated: set[int] = set()
    for action, address, size, *_ in device["history"]:
        if action == "free_requested" and address not in allocated:
            yield ["alloc", address, size, None, None]
        if action == "alloc":
            allocated.add(address)
        elif action == "free_requested":
            allocated.discard(address)
    for address, size, stack in device["blocks"]:
        if address not in allocated:
            yield ["alloc", address, size, None, stack]


def _of_python(frames: list[model.Frame]) -> tuple[model.Frame, ...] | None:
    """§26.12: the frames that count, equal neighbours once; None without any."""
    counted = [frame for frame in frames if re.search(r"\.py$|^<", frame.file or "")]
    return tuple(frame for frame, _ in groupby(counted)) or None


def _marks(export: _Export) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Process, time and content of each mark that is JSON with the key `nsysflow`."""
    for event in export.rows("NVTX_EVENTS"):
        text = export.text(event) or ""
        if event["eventType"] == 34 and text.startswith('{"nsysflow"'):
            yield event["process"], event["start"], json.loads(text)["nsysflow"]


def _loader_times(export: _Export) -> Iterator[model.LoaderTime]:
    """§27.1: what marks of ours say of loaders, on the clock of the report."""
    marks = [mark for mark in _marks(export) if "loader" in mark[2]]
    for process, _, about in marks:
        ahead = min(at - of["clock_ns"] for other, at, of in marks if other == process)
        number, *settings, starts, cores = about["loader"]
        more = *settings, starts or None, cores
        for worker, got, fetched, sent in about["batches"]:
            times = got + ahead, fetched + ahead, sent + ahead
            yield model.LoaderTime(process, number, worker, *times, *more)
        for asked, had in about["waits"]:
            times_of_loop = asked + ahead, None, had + ahead
            yield model.LoaderTime(process, number, None, *times_of_loop, *more)


def _windows(export: _Export) -> dict[int, dict[str, Any]]:
    """§8.6: the first mark of each process that names the captured steps."""
    found: dict[int, dict[str, Any]] = {}
    for process, _, about in _marks(export):
        if "capture" in about:
            found.setdefault(process, about)
    return found


def _graph_ranges(export: _Export) -> Iterator[model.Range]:
    """§7.16: the listed ranges, on the clock of the report."""
    marks = [mark for mark in _marks(export) if "graph_ranges" in mark[2]]
    listed = [(process, each) for process, _, about in marks for each in about["graph_ranges"]]
    for row, (process, (name, domain, start, end, tid)) in enumerate(listed):
        apart = min(at - about["clock_ns"] for of, at, about in marks if of == process)
        at = start + apart, end + apart
        yield model.Range(*at, "push_pop", process, process | tid, domain, name, row)


def _captures(export: _Export) -> Iterator[model.Capture]:
    """§8.6: the captured steps, and the time of a step without a profiler."""
    for process, about in _windows(export).items():
        yield model.Capture(process, about["capture"], about.get("unprofiled_step_ns"))


def _flops(export: _Export) -> Iterator[model.Flops]:
    """§8.7: the declared FLOPs of each phase."""
    for process, about in _windows(export).items():
        if "flops" in about:
            for phase, flops in about["flops"]["phases"].items():
                yield model.Flops(process, phase, flops, about["flops"]["unit"])


def _messages(export: _Export) -> Iterator[model.Message]:
    """§9.1: message size and communicator of NCCL's push/pop ranges, from their JSON."""
    events = list(export.rows("NVTX_EVENTS"))
    named = export.domains(events).items()
    domains = {number for (_, number), name in named if name.lower() == "nccl"}
    for event in events:
        if event["eventType"] == 59 and event["domainId"] in domains and event["jsonText"]:
            payload = json.loads(event["jsonText"])
            if "Message size [bytes]" in payload:
                size = payload["Message size [bytes]"]
                communicator = payload.get("NCCL communicator ID")
                yield model.Message(event["start"], event["globalTid"], size, communicator)


_READ: dict[str, Callable[[_Export], Iterable[Any]]] = {
    "ops": _ops,
    "calls": lambda export: (call for call, _ in _calls(export)),
    "failed_calls": lambda export: (
        call for call, value in _calls(export) if value == 2 and TAKES.fullmatch(call.name)
    ),
    "ranges": lambda export: (row for row in _ranges(export) if row.domain != "GIL Trace"),
    "gil": _gil,
    "overhead": partial(
        _each, model.Overhead, "PROFILER_OVERHEAD", "start end process thread name"
    ),
    "threads": partial(_each, model.Thread, "ThreadNames", "process thread name"),
    "devices": partial(
        _each, model.Device, "TARGET_INFO_GPU", "id name uuid smCount memoryBandwidth"
    ),
    "diagnostics": partial(_each, model.Diagnostic, "DIAGNOSTIC_EVENT", "severity text"),
    "backtraces": partial(_python_stacks, model.Backtrace, "Python Backtrace on CUDA"),
    "samples": partial(_python_stacks, model.Sample, "Python Periodic Sampling"),
    "gpu_samples": _gpu_samples,
    "gpu_states": lambda export: (*_marked_states(export), *_sampled_clocks(export)),
    "gpu_traffic": _traffic,
    "thread_cpu": _thread_cpu,
    "process_cpu": _process_cpu,
    "loader_times": _loader_times,
    "memory": lambda export: (
        *_memory(export),
        *(row for row in _allocator(export) if isinstance(row, model.MemoryChange)),
    ),
    "out_of_memory": lambda export: (
        row for row in _allocator(export) if isinstance(row, model.Failure)
    ),
    "gpu_memory": _gpu_memory,
    "captures": _captures,
    "flops": _flops,
    "messages": _messages,
    "event_records": partial(_on_streams, model.EventRecord, "CUPTI_ACTIVITY_KIND_CUDA_EVENT"),
    "waits": partial(_on_streams, model.EventWait, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
    "graph_nodes": partial(
        _each,
        model.GraphNode,
        "CUDA_GRAPH_NODE_EVENTS",
        "start process thread graphNodeId original",
    ),
    "graph_ranges": _graph_ranges,
}
"""How the rows of each kind are read."""
