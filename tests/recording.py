"""The ranges and marks of a program: kept in a list, or recorded by a real nsys."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.nsys.run import export
from nsysflow.runtime import process as this_process
from nsysflow.runtime import protocol, regions
from nsysflow.runtime import steps as window_module
from nsysflow.runtime.captures import KinetoCapture
from tests.nsys.real import real_nsys, record

Event = tuple[str, str, int | None]
"""`open`, `close` or `mark`; the name or text; the payload."""

Tree = list[tuple[str, "Tree"]]
"""Ranges and the ranges inside them."""


class Notes:
    """A recorder that keeps what it is given, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self.events.append(("open", name, payload))
        return lambda: self.events.append(("close", name, payload))

    def mark(self, text: str) -> None:
        self.events.append(("mark", text, None))

    def opened(self) -> list[str]:
        return [name for what, name, _ in self.events if what == "open"]


class Kept(list[tuple[str, Any]]):
    """The readings that a reader or sampler gives, each with its key."""

    def keep(self, key: str, readings: Any) -> None:
        self.append((key, readings))

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self]


def kineto_capture(patch: pytest.MonkeyPatch) -> tuple[KinetoCapture, dict[str, Any]]:
    """A capture that is running, and what its trace has beside the events of torch.profiler."""
    written: dict[str, Any] = {}
    capture = KinetoCapture(SimpleNamespace())  # type: ignore[arg-type]
    capture._profile = SimpleNamespace(
        stop=lambda: None,
        add_metadata_json=lambda key, text: written.update({key: json.loads(text)}),
    )
    patch.setattr(capture, "_still_records", lambda: True)
    patch.setattr(capture, "_export", lambda: None)
    return capture, written


def read_back(notes: Notes) -> Tree:
    """The tree of ranges in the notes; fails if a range closes out of order."""
    path: list[tuple[str, Tree]] = [("", [])]
    for what, name, _ in notes.events:
        if what == "open":
            path.append((name, []))
        else:
            assert path[-1][0] == name
            closed = path.pop()
            path[-1][1].append(closed)
    ((_, tree),) = path
    return tree


@contextmanager
def recorded(collector: protocol.Collector = "nsys") -> Iterator[Notes]:
    """Make this process look as if it had just been started under a profiler."""
    notes = Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "COLLECTOR_HERE", collector)
        patch.setattr(regions, "_recorder", notes)
        patch.setattr(regions, "_out_of_order_warned", False)
        patch.setattr(window_module, "_running", None)
        for name, value in vars(this_process.ProcessState()).items():
            patch.setattr(this_process.THIS_PROCESS, name, value)
        yield notes


def record_and_export(argv: list[str], folder: Path, **variables: str) -> Path:
    """The SQLite export of a real nsys's recording of a program without a GPU."""
    report = record(argv, folder, **variables)
    export(real_nsys(), report, report.with_suffix(".sqlite"))
    return report.with_suffix(".sqlite")


def nvtx_events(report: Path) -> list[tuple[str | None, int | None]]:
    """The texts and payloads of a report's NVTX events, by time."""
    with closing(sqlite3.connect(report)) as db:
        return db.execute(
            "SELECT coalesce(e.text, s.value), e.int64Value FROM NVTX_EVENTS AS e"
            " LEFT JOIN StringIds AS s ON s.id = e.textId ORDER BY e.start"
        ).fetchall()
