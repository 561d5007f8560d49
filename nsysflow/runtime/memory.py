"""What PyTorch's allocator hands out and takes back while this process is recorded, with the lines
of Python that asked.

PyTorch keeps the history itself. Once the recording has ended, the process leaves it in the run's
folder, and `nsysflow profile` puts it into the report: as marks of nsys it would be in the way of
the steps. A torch without such a history says so, and the program runs on.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Final, Optional

from nsysflow.runtime.process import is_loader_worker, scratch_file
from nsysflow.runtime.protocol import KEY, MEMORY, MEMORY_FILES, RUN_FOLDER, rank
from nsysflow.runtime.regions import CLOCK_READINGS

MOST_ENTRIES: Final = 400_000
"""Of a GPU; older ones are dropped. 20 steps of 2,000 operators have 240,000."""

KEPT: Final = frozenset(
    {
        *("alloc", "free_requested", "oom"),
        *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    }
)
"""What of a history is of use; the rest says again when memory could be used again."""

_SKIPPED: Final = ("free_completed", "snapshot")
_ALL: Final = ("alloc", "free_requested", "segment_alloc", "segment_free", "oom", *_SKIPPED)
"""What a torch that can leave out kinds of entries leaves out: while it records, and afterwards."""


class AllocatorHistory:
    """The history of this process."""

    def __init__(self) -> None:
        self._pid = 0
        self._keeps = False
        self._ours = False
        self._frozen: dict[str, Any] = {}
        self._until_us: int | None = None

    def begin(self, mark: Callable[[str], None]) -> None:
        """Keep the history from now on, if `nsysflow profile` wants it, or once CUDA starts.

        Args:
            mark: records a mark, for the time of the system on the report's clock.
        """
        torch = sys.modules.get("torch")
        if MEMORY not in os.environ or torch is None or is_loader_worker():
            return
        if self._pid == os.getpid() or not torch.backends.cuda.is_built():
            return
        self._pid = os.getpid()
        for _ in range(CLOCK_READINGS):
            mark(json.dumps({KEY: {"unix_ns": time.time_ns()}}))
        torch.cuda._lazy_call(self._start)
        atexit.register(self.save)

    def _start(self) -> None:
        memory = sys.modules["torch"].cuda.memory
        try:
            self._ours = not memory._C._cuda_isHistoryEnabled()
            if self._ours:
                skipped = {"skip_actions": [*_SKIPPED]} if _can_skip(memory) else {}
                memory._record_memory_history(
                    "all", context="alloc", stacks="python", max_entries=MOST_ENTRIES, **skipped
                )
            self._keeps = True
        except (AttributeError, RuntimeError, TypeError) as error:
            sys.stderr.write(f"nsysflow: this torch keeps no history of its memory: {error}\n")

    def freeze(self) -> None:
        """Enough is recorded: what comes later is not kept, it would push out what came before.

        A torch that cannot leave out entries gives the whole history here, which takes longer.
        """
        if not self._keeps or self._pid != os.getpid() or self._frozen:
            return
        memory = sys.modules["torch"].cuda.memory
        try:
            if self._ours and _can_skip(memory):
                memory._record_memory_history(
                    "all", context=None, max_entries=MOST_ENTRIES, skip_actions=[*_ALL]
                )
                self._until_us = time.time_ns() // 1000
                self._frozen = {"segments": memory.memory_snapshot(include_traces=False)}
            else:
                self._frozen = memory._snapshot()
        except RuntimeError as error:  # CUDA after a failed kernel
            self._keeps = False
            sys.stderr.write(f"nsysflow: the history of memory is lost: {error}\n")

    def save(self) -> None:
        """Leave the history in the run's folder, and keep it no longer; only the first time."""
        if not self._keeps or self._pid != os.getpid():
            return
        self._keeps = False
        memory, folder = sys.modules["torch"].cuda.memory, Path(os.environ.get(RUN_FOLDER, "."))
        try:
            whole = {} if "device_traces" in self._frozen else memory._snapshot()
            history = compact({**whole, **self._frozen}, self._until_us)
            for number, device in enumerate(history["devices"]):
                # of no other GPU: to ask would make a context there, which takes memory
                device["usable"] = _usable_bytes(memory, number) if device["reserved"] else None
            text = json.dumps(history, separators=(",", ":"))
            with scratch_file(folder, ".json") as scratch:
                scratch.write_text(text, encoding="utf-8")
                scratch.replace(folder / MEMORY_FILES.replace("*", str(self._pid)))
            if self._ours:
                memory._record_memory_history(None)
        except (OSError, RuntimeError) as error:  # a full disk, or CUDA after a failed kernel
            sys.stderr.write(f"nsysflow: the history of memory is lost: {error}\n")


def _can_skip(memory: Any) -> bool:
    """Whether this torch can leave out kinds of entries."""
    return "skip_actions" in signature(memory._record_memory_history).parameters


def _usable_bytes(memory: Any, device: int) -> int:
    """How much of a GPU's memory this process can have: what it has reserved, and what is free."""
    free: int = memory.mem_get_info(device)[0]
    reserved: int = memory.memory_reserved(device)
    return free + reserved


Stack = Optional[int]
"""The number of a stack."""


def compact(snapshot: Mapping[str, Any], until_us: int | None = None) -> dict[str, Any]:
    """A snapshot of `torch.cuda.memory` with each stack once, and only what happened up to
    `until_us`.

    It has `pid`, `rank`, `full` (whether older entries may be missing), `frames` (file, line,
    function), `stacks` (numbers of frames) and `devices`: of each GPU its `history` (action,
    address, size, time in us, stack), its `blocks` that are in use (address, size, stack), and how
    much is `reserved`, in bytes.
    """
    stacks = _Stacks()
    histories = snapshot["device_traces"]
    devices: list[dict[str, Any]] = []
    for history in histories:
        of_use = (entry for entry in history if entry["action"] in KEPT)
        kept = [e for e in of_use if until_us is None or e["time_us"] <= until_us]
        entries = [_entry(entry, stacks) for entry in kept]
        devices.append({"history": entries, "blocks": [], "reserved": 0})
    for segment in snapshot["segments"]:
        device = devices[segment["device"]]
        device["reserved"] += segment["total_size"]
        device["blocks"] += [
            [block["address"], block["requested_size"], stacks.number(block.get("frames"))]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        ]
    return {
        "pid": os.getpid(),
        "rank": rank(),
        "full": any(len(history) >= MOST_ENTRIES for history in histories),
        "frames": [*stacks.frames],
        "stacks": [*stacks.stacks],
        "devices": devices,
    }


def _entry(entry: Mapping[str, Any], stacks: _Stacks) -> list[str | int | None]:
    """An entry; one of memory that ran out has what was free instead of an address."""
    address = entry["addr"] if "addr" in entry else entry.get("device_free")
    stack = stacks.number(entry.get("frames"))
    return [entry["action"], address, entry["size"], entry.get("time_us"), stack]


class _Stacks:
    """The distinct frames and stacks of a snapshot, in the order of their numbers."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, int, str], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self._known: dict[int, Stack] = {}

    def number(self, frames: list[Mapping[str, Any]] | None) -> Stack:
        """The number of a stack; None without frames. A snapshot holds equal stacks once."""
        if not frames:
            return None
        if id(frames) not in self._known:
            keys = [(frame["filename"], frame["line"], frame["name"]) for frame in frames]
            stack = tuple(self.frames.setdefault(key, len(self.frames)) for key in keys)
            self._known[id(frames)] = self.stacks.setdefault(stack, len(self.stacks))
        return self._known[id(frames)]


HISTORY: Final = AllocatorHistory()
"""The history of this process."""
