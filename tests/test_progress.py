"""A spinner shows after a second, on terminals that want one."""

import io
import sys
import time

import pytest

from nsysflow import progress as progress_module
from nsysflow.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*, no_color: str, at_most_s: float) -> str:
    """What a terminal shows of work that lasts until something is shown."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(progress_module, "_PATIENCE_S", 0.0)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("NO_COLOR", no_color)
        until = time.monotonic() + at_most_s
        with progress("analysing"):
            while not terminal.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
    return terminal.getvalue()


def test_a_terminal_shows_a_spinner() -> None:
    assert "analysing" in shown(no_color="", at_most_s=10)


def test_no_color_means_no_escape_codes_at_all() -> None:
    assert shown(no_color="1", at_most_s=0.1) == ""


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("analysing"):
        pass
    assert capsys.readouterr().err == ""
