import io
import re
import sys
import time
from pathlib import Path

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base import progress as progress_module
from nsysflow.base.progress import Progress, progress
from nsysflow.runs.analyze import analyze_reports
from tests.reports import SAMPLES


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*, no_color: str, at_most_s: float, done: int = 0) -> str:
    """What a terminal shows of four pieces of work, `done` of which are done."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(progress_module, "_PATIENCE_S", 0.0)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("NO_COLOR", no_color)
        until = time.monotonic() + at_most_s
        with progress("analysing") as work:
            work.expect(4)
            work.done(done)
            while not terminal.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())


@pytest.mark.parametrize(("done", "percent"), [(0, " 0%"), (1, "25%"), (4, "100%")])
def test_a_terminal_shows_how_much_is_done(done: int, percent: str) -> None:
    said = shown(no_color="", at_most_s=10, done=done)
    assert "analysing" in said
    assert percent in said


def test_no_color_means_no_escape_codes_at_all() -> None:
    assert shown(no_color="1", at_most_s=0.1) == ""


class Counted(Progress):
    """Counts the pieces that are done."""

    def __init__(self) -> None:
        self.expected = self.finished = 0
        self.stages: list[str] = []

    def expect(self, pieces: int) -> None:
        self.expected += pieces

    def done(self, pieces: int = 1) -> None:
        self.finished += pieces

    def stage(self, label: str) -> None:
        self.stages.append(label)


def ranks() -> list[Path]:
    return [SAMPLES / f"ddp-bucketed-rank{rank}.sqlite.xz" for rank in (0, 1)]


def test_what_an_analysis_expects_is_what_it_does() -> None:
    counted = Counted()
    analyze_reports(ranks(), Options(), tables=tuple(ABOUT), progress=counted)
    assert counted.finished == counted.expected > 2 * len(ABOUT)
    assert counted.stages[:2] == ["loading ddp-bucketed-rank0", "analysing ddp-bucketed-rank0"]
