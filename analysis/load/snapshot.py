"""Snapshots of PyTorch's caching allocator, `torch.cuda.memory._dump_snapshot(FILE)`: what memory a
process has, and the history of it (spec §26.12).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.plain_pickle import OddPickle, plain_values
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import Damaged

_BEGINS: Final = re.compile(rb"\A\x80[\x03-\x05].{0,64}\b(?:segments|device_traces)", re.DOTALL)
_AGAIN: Final = "torch.cuda.memory._dump_snapshot('memory_snapshot.pickle')"

_ROUNDED_TO: Final = 512
"""The allocator rounds what it is asked for up to a multiple of so many bytes."""

_US_NS: Final = 1_000
_TOO_LARGE: Final = 1 << 52
"""Neither addresses, nor a petabyte, nor the us since 1970 come near it before the year 2100."""

_MOST_GPUS: Final = 1 << 10
_IN_USE: Final = "active_allocated"
_RESERVES: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_ALLOCATES: Final = {"alloc": 1, "free_requested": -1}
OUT_OF_MEMORY: Final = "oom"
"""The action of an entry for memory that ran out."""

_OPERATOR: Final = re.compile(r"at::_ops::(\w+?)(?:_[A-Z]\w*)?::(?:call|redispatch)\(")
"""The C++ function of an operator, where stacks have C++ functions: `index`, overload `Tensor`."""

_PYTHON_FILE: Final = re.compile(r"\.py\Z|\A<")


def is_snapshot(head: bytes) -> bool:
    """Whether a file that begins so is a snapshot."""
    return _BEGINS.match(head) is not None


def read_snapshot(path: Path, shown: str, report: str) -> Trace:
    """The snapshot at `path`, which messages call `shown`.

    Raises:
        Damaged: it is cut off, or is no snapshot but begins like one.
    """
    try:
        snapshot = plain_values(path.read_bytes())
        if not isinstance(snapshot, dict):
            raise OddSnapshot(f"it holds a {type(snapshot).__name__}")
        return _trace_of(snapshot, report)
    except (OddPickle, OddSnapshot) as error:
        raise Damaged(
            f"{shown} cannot be read as a memory snapshot: {error}", "Dump it again", _AGAIN
        ) from error


class OddSnapshot(ValueError):
    """A snapshot lacks what every one has; the text says what."""


Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class DeviceHistory:
    """What is known of the memory of a GPU.

    Attributes:
        number: the number of the GPU in its process.
        history: what happened, in order.
        reserved_bytes: how much is reserved at the end.
        blocks: the parts of that.
    """

    number: int
    history: Sequence[Entry]
    reserved_bytes: int
    blocks: Sequence[Entry]


def _devices(snapshot: Mapping[object, object]) -> list[DeviceHistory]:
    histories = snapshot.get("device_traces", [])
    if not isinstance(histories, list):
        raise OddSnapshot("its device_traces are no list")
    by_device: dict[int, list[Entry]] = defaultdict(list)
    for segment in _entries(snapshot.get("segments", []), "segments"):
        by_device[_number(segment, "device")].append(segment)
    all_blocks = [s.get("blocks", []) for of_device in by_device.values() for s in of_device]
    for name, lists in (("histories", histories), ("lists of blocks", all_blocks)):
        if len({id(part) for part in lists if part}) < sum(map(bool, lists)):
            raise OddSnapshot(f"two of its {name} are one")  # read twice, they could be endless
    numbers = sorted({*range(len(histories)), *by_device})
    if numbers and numbers[-1] >= _MOST_GPUS:
        raise OddSnapshot(f"it is of GPU {numbers[-1]}")
    return [
        DeviceHistory(
            number=number,
            history=_entries(histories[number] if number < len(histories) else [], "histories"),
            reserved_bytes=sum(_number(s, "total_size") for s in by_device[number]),
            blocks=[
                block
                for s in by_device[number]
                for block in _entries(s.get("blocks", []), "blocks")
            ],
        )
        for number in numbers
    ]


def _entries(value: object, name: str) -> list[Entry]:
    """A list of dicts."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise OddSnapshot(f"its {name} are no list of dicts")
    return value


def _number(entry: Entry, name: str) -> int:
    """A number of an entry."""
    value = entry.get(name)
    if type(value) is not int or not 0 <= value < _TOO_LARGE:
        raise OddSnapshot(f"an entry has no {name}")
    return value


def _action(entry: Entry) -> str:
    action = entry.get("action")
    if type(action) is not str:
        raise OddSnapshot("an entry has no action")
    return action


class _Stacks:
    """The distinct frames and stacks of a snapshot, numbered. A snapshot holds one that it has
    several times once, and all of them while it is read: they are told by their place in memory."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._frames: dict[tuple[str | None, int | None, str], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._read: dict[int, int | None] = {}

    def number(self, entry: Entry) -> int | None:
        """The number of an entry's stack; None if it has none that says anything."""
        frames = entry.get("frames")
        if not isinstance(frames, list):
            return None
        if id(frames) not in self._read:
            self._read[id(frames)] = self._stack(frames)
        return self._read[id(frames)]

    def _stack(self, frames: list[object]) -> int | None:
        stack: list[int] = []
        for frame in frames:
            if id(frame) not in self._read:
                self._read[id(frame)] = self._frame(frame)
            number = self._read[id(frame)]
            if number is not None and stack[-1:] != [number]:
                stack.append(number)
        following = self._first + len(self._stacks)
        return self._stacks.setdefault(tuple(stack), following) if stack else None

    def _frame(self, frame: object) -> int | None:
        """The number of a frame of Python, or of an operator's C++ function."""
        if not isinstance(frame, dict):
            return None
        file, line, name = (frame.get(key) for key in ("filename", "line", "name"))
        if type(file) is not str or type(line) is not int or type(name) is not str:
            return None
        if _PYTHON_FILE.search(file) and 0 <= line < _TOO_LARGE:
            return self._frames.setdefault((file, line, name), len(self._frames))
        operator = _OPERATOR.match(name)
        if operator is None:
            return None
        return self._frames.setdefault((None, None, f"aten::{operator[1]}"), len(self._frames))

    @property
    def count(self) -> int:
        """How many distinct stacks there are."""
        return len(self._stacks)

    def table(self) -> pl.DataFrame:
        """`schema.FRAMES`."""
        frames = pl.DataFrame([*self._frames], _FRAME, orient="row")
        stacks = pl.DataFrame({"frame": [*self._stacks]}, {"frame": pl.List(pl.UInt32)})
        rows = stacks.with_row_index("stack", offset=self._first).with_columns(
            pl.int_ranges(pl.col("frame").list.len(), dtype=pl.UInt32).alias("depth")
        )
        rows = rows.explode("frame", "depth")
        return rows.hstack(frames[rows["frame"]]).select(schema.FRAMES.names())


_FRAME: Final = pl.Schema({name: schema.FRAMES[name] for name in ("file", "line", "function")})


class AllocatorRows:
    """The rows of all GPUs of a process.

    Attributes:
        stacks: the stacks of the rows.
    """

    def __init__(self, zero_ns: int | None, process: int = 0, first_stack: int = 0) -> None:
        """No rows yet.

        Args:
            zero_ns: from when on times count; without it, the entries of a GPU are 1 us apart.
            process: the key of the process.
            first_stack: the number of the first stack.
        """
        self.stacks = _Stacks(first_stack)
        self._memory: list[tuple[Any, ...]] = []
        self._out_of_memory: list[tuple[int | None, ...]] = []
        self._zero_ns = zero_ns
        self._process = process

    @property
    def memory(self) -> pl.DataFrame:
        """`schema.MEMORY`."""
        return pl.DataFrame(self._memory, schema.MEMORY, orient="row")

    @property
    def out_of_memory(self) -> pl.DataFrame:
        """`schema.OUT_OF_MEMORY`."""
        return pl.DataFrame(self._out_of_memory, schema.OUT_OF_MEMORY, orient="row")

    def add(self, device: DeviceHistory) -> None:
        """Take the history of a GPU, and before it what was allocated when it began."""
        history = device.history
        allocated = 0
        signs = [(_RESERVES.get(_action(entry), 0), entry) for entry in history]
        changed = sum(sign * _number(entry, "size") for sign, entry in signs if sign)
        reserved = device.reserved_bytes - changed
        for at, (size, address, entry) in enumerate(_older(device)):
            allocated += size
            time_ns = schema.BEFORE_NS + at
            self._change(device, time_ns, entry, address, size, (allocated, reserved))
        last_ns = -1
        for place, entry in enumerate(history):
            if self._zero_ns is None:
                time_ns = place * _US_NS
            else:
                time_ns = _number(entry, "time_us") * _US_NS - self._zero_ns
            last_ns = max(time_ns, last_ns + 1)
            action = _action(entry)
            if action in _ALLOCATES:
                change = _ALLOCATES[action] * _rounded(_number(entry, "size"))
                allocated += change
                address = _number(entry, "addr")
                self._change(device, last_ns, entry, address, change, (allocated, reserved))
            elif action in _RESERVES:
                reserved += _RESERVES[action] * _number(entry, "size")
                self._change(device, last_ns, entry, None, 0, (allocated, reserved))
            elif action == OUT_OF_MEMORY:
                free = entry.get("device_free")
                known = _number(entry, "device_free") if free is not None else None
                asked = _number(entry, "size")
                stack = self.stacks.number(entry)
                row = last_ns, device.number, self._process, None, asked, known, stack
                self._out_of_memory.append(row)

    def _change(
        self,
        device: DeviceHistory,
        time_ns: int,
        entry: Entry,
        address: int | None,
        change: int,
        levels: tuple[int, int],
    ) -> None:
        if max(map(abs, levels)) >= _TOO_LARGE:
            raise OddSnapshot(f"there are {levels[0]} bytes allocated, {levels[1]} reserved")
        where = time_ns, len(self._memory), device.number, self._process, None, None, "allocator"
        self._memory.append((*where, address, change, *levels, self.stacks.number(entry)))


def _older(device: DeviceHistory) -> Iterator[tuple[int, int, Entry]]:
    """What was allocated when the history began: size, address and what is known of it. Of what
    was freed since nothing is."""
    live: set[int] = set()
    for entry in device.history:
        if _action(entry) == "alloc":
            live.add(_number(entry, "addr"))
        elif _action(entry) == "free_requested":
            address = _number(entry, "addr")
            if address not in live:
                yield _rounded(_number(entry, "size")), address, {}
            live.discard(address)
    for block in device.blocks:
        if block.get("state") == _IN_USE:
            address = _number(block, "address")
            if address not in live:
                size = _number(block, "requested_size" if "requested_size" in block else "size")
                yield _rounded(size), address, block


def _rounded(size: int) -> int:
    return -(-size // _ROUNDED_TO) * _ROUNDED_TO


def _trace_of(snapshot: Mapping[object, object], report: str) -> Trace:
    devices = _devices(snapshot)
    entries = [entry for device in devices for entry in device.history]
    annotations = _entries(snapshot.get("external_annotations") or [], "external_annotations")
    timed = all("time_us" in entry for entry in entries)
    times_us = [_number(entry, "time_us") for entry in (*entries, *annotations)] if timed else []
    rows = AllocatorRows(min(times_us, default=0) * _US_NS if timed else None)
    for device in devices:
        rows.add(device)
    return Trace(
        report=report,
        memory=rows.memory,
        out_of_memory=rows.out_of_memory,
        frames=rows.stacks.table(),
        ranges=_ranges(annotations, min(times_us, default=0)) if timed else _NO_RANGES,
        collector="snapshot",
        source="PyTorch (memory snapshot)",
        notes=(*_notes(entries, timed=timed),),
    )


_NO_RANGES: Final = schema.RANGES.to_frame()


def _ranges(annotations: Iterable[Entry], first_us: int) -> pl.DataFrame:
    """`schema.RANGES` of the begins and ends of `record_function`; an end closes the last range of
    that name that is open."""
    begun: dict[str, list[int]] = defaultdict(list)
    rows: list[list[Any]] = []
    for entry in annotations:
        name, time_ns = entry.get("name"), (_number(entry, "time_us") - first_us) * _US_NS
        if type(name) is not str:  # what holds itself many times over has no end as text
            raise OddSnapshot("an annotation has no name")
        if entry.get("stage") == "START":
            begun[name].append(len(rows))
            rows.append([time_ns, None, "push_pop", 0, 1, None, name, len(rows)])
        elif begun[name]:
            rows[begun[name].pop()][1] = time_ns
    return pl.DataFrame(rows, schema.RANGES, orient="row")


def _notes(entries: Sequence[Entry], *, timed: bool) -> Iterator[Note]:
    if not entries:
        yield Note(
            NoteKind.SNAPSHOT,
            "the snapshot has no history: it says how much there is, and not where that was"
            " allocated; call torch.cuda.memory._record_memory_history() first",
        )
    elif not timed:
        yield Note(
            NoteKind.SNAPSHOT,
            "the snapshot has no times: its entries count as 1 us apart",
        )
