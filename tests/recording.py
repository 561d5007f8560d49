"""What a program marks: noted down in this process, or recorded by a real nsys."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nsysflow import recorders, regions, telling, windowing
from nsysflow.nsys import export
from tests.nsys.real import real_nsys, record

Event = tuple[str, str, int | None]
"""`open`, `close` or `mark`, of what, and the payload."""


class Notes:
    """In place of a profiler: a recorder that writes down what it is told, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def open(self, name: str, payload: int | None) -> Callable[[], object]:
        self.events.append(("open", name, payload))
        return lambda: self.events.append(("close", name, payload))

    def mark(self, text: str) -> None:
        self.events.append(("mark", text, None))

    def opened(self) -> list[str]:
        return [name for what, name, _ in self.events if what == "open"]


@contextmanager
def recorded(collector: recorders.Collector = "nsys") -> Iterator[Notes]:
    """As if this process had been started under a profiler, and had done nothing yet."""
    notes = Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorders, "COLLECTOR_HERE", collector)
        patch.setattr(regions, "_recorder", notes)
        patch.setattr(regions, "_out_of_turn_said", False)
        patch.setattr(windowing, "_started", None)
        for name, value in vars(telling.Record()).items():
            patch.setattr(telling.RECORD, name, value)
        yield notes


def record_and_export(argv: list[str], folder: Path, **variables: str) -> Path:
    """What a real nsys records of a program without a GPU, as SQLite."""
    report = record(argv, folder, **variables)
    export(real_nsys(), report, report.with_suffix(".sqlite"))
    return report.with_suffix(".sqlite")


def nvtx_events(report: Path) -> list[tuple[str | None, int | None]]:
    """Texts and payloads of a report's NVTX events, in time."""
    with closing(sqlite3.connect(report)) as db:
        return db.execute(
            "SELECT coalesce(e.text, s.value), e.int64Value FROM NVTX_EVENTS AS e"
            " LEFT JOIN StringIds AS s ON s.id = e.textId ORDER BY e.start"
        ).fetchall()
