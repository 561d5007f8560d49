"""Loops with a capture that only records when it starts and stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st

from nsysflow.runtime import collectors
from nsysflow.runtime import steps as window_module
from nsysflow.runtime.captures import WindowMark
from nsysflow.runtime.protocol import CAPTURE, Window
from tests.recording import Notes, recorded

windows = st.builds(
    Window, wait=st.integers(0, 4), warmup=st.integers(0, 4), active=st.integers(1, 4)
)


lengths = st.integers(0, 14)


@dataclass
class Noted:
    """A capture whose starts and stops appear among the recorded ranges."""

    notes: Notes
    abouts: list[WindowMark | None] = field(default_factory=list)

    def start(self, about: WindowMark | None) -> None:
        self.abouts.append(about)
        self.notes.events.append(("start", "", None))

    def stop(self) -> None:
        self.notes.events.append(("stop", "", None))


@contextmanager
def captured(
    asked: Window | None = None, collector: collectors.Collector = "nsys"
) -> Iterator[Noted]:
    """Make it look as if `profile --capture` had asked for that window."""
    with recorded(collector) as notes, pytest.MonkeyPatch.context() as patch:
        patch.delenv(CAPTURE, raising=False)
        if asked is not None:
            patch.setenv(CAPTURE, str(asked))
        noted = Noted(notes)
        patch.setattr(window_module, "new_capture", lambda _collector: noted)
        yield noted


def marked_steps(notes: Notes) -> list[int | None]:
    return [payload for what, name, payload in notes.events if (what, name) == ("open", "step")]


def captured_steps(notes: Notes) -> list[int | None]:
    """The steps whose range opened between start and stop."""
    found, inside = [], False
    for what, name, payload in notes.events:
        inside = what == "start" or (inside and what != "stop")
        if inside and (what, name) == ("open", "step"):
            found.append(payload)
    return found
