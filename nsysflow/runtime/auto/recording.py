"""What records automatic ranges, and where."""

from __future__ import annotations

from collections.abc import Callable

from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.graph_ranges import noted
from nsysflow.runtime.protocol import AUTO_DOMAIN
from nsysflow.runtime.recorders import Recorder, find_recorder
from nsysflow.runtime.this_process import (
    THIS_PROCESS,
    is_loader_worker,
    save_status_at_exit,
)


class Recording:
    """Opens ranges in the domain of automatic ones. All of them are opened here."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._recorder: Recorder | None = None

    def open(self, name: str) -> Callable[[], object]:
        """Open a range on this thread; calling what is returned closes it."""
        recorder = self._recorder or self._find()
        if recorder is None or is_loader_worker():
            return _nothing
        THIS_PROCESS.ranges += 1
        return noted(name, AUTO_DOMAIN, recorder.open(name, None))

    def _find(self) -> Recorder | None:
        """The recorder; looked for again until there is one, as nvtx may be imported later."""
        save_status_at_exit()
        self._recorder = find_recorder(self._collector, AUTO_DOMAIN)
        return self._recorder


def _nothing() -> None:
    """Closes a range that was not opened."""
