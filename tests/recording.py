"""A profiler that only takes notes, in place of a real one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nsysflow import recorders, regions, telling

Event = tuple[str, str, int | None]
"""`open`, `close` or `mark`, of what, and the payload."""


class Notes:
    """A recorder that writes down what it is told, in order."""

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
        for name, value in vars(telling.Record()).items():
            patch.setattr(telling.RECORD, name, value)
        yield notes
