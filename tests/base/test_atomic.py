import errno
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base import progress as progress_module
from nsysflow.base.atomic import staged, staged_file, staged_folder
from nsysflow.base.progress import Progress, progress
from nsysflow.runs.analyze import analyze_reports
from tests.disks import names
from tests.reports import SAMPLES


def write(folder: Path, text: str) -> None:
    """Two files."""
    with staged_folder(folder, last="report.json") as scratch:
        for name in ("gaps.csv", "report.json"):
            (scratch / name).write_text(text)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_replace_older_ones_of_their_names_and_others_stay(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    write(run, "old")
    assert (names(run.parent), names(run)) == (["run"], ["gaps.csv", "report.json"])
    (run / "report.sqlite").write_text("a capture")
    write(run, "new")
    assert texts(run) == {"gaps.csv": "new", "report.json": "new", "report.sqlite": "a capture"}


def test_a_stale_file_is_removed_unless_it_is_written_again(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "mfu.csv").write_text("from other options")
    with staged_folder(tmp_path / "out", stale=["mfu.csv", "gaps.csv"]) as scratch:
        (scratch / "gaps.csv").write_text("new")
    assert texts(tmp_path / "out") == {"gaps.csv": "new", "report.json": "old"}


def test_an_error_leaves_no_new_folder_and_an_old_one_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "old", "old")
    for name in ("old", "new"):
        with pytest.raises(OSError, match="full"), staged_folder(tmp_path / name) as scratch:  # noqa: PT012
            (scratch / "gaps.csv").write_text("half")
            raise OSError("disk full")
    assert names(tmp_path) == ["old"]
    assert texts(tmp_path / "old") == {"gaps.csv": "old", "report.json": "old"}


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    for context in (staged_folder(tmp_path / "out"), staged_file(tmp_path / "file")):
        with pytest.raises(KeyboardInterrupt), context:
            raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_folder_in_the_place_of_a_file_leaves_all_files_as_they_were(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    (out / "report.json").unlink()
    (out / "report.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"report\.json there is a folder"):
        write(out, "new")
    assert (out / "gaps.csv").read_text() == "old"


def test_a_single_file_is_complete_or_missing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), staged_file(tmp_path / "gaps.csv") as scratch:  # noqa: PT012
        scratch.write_text("half")
        raise OSError("disk full")
    assert names(tmp_path) == []
    with staged_file(tmp_path / "gaps.csv") as scratch:
        scratch.write_text("whole")
    assert texts(tmp_path) == {"gaps.csv": "whole"}


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "gaps.csv", tmp_path / "elsewhere" / "real.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    with staged_file(link) as scratch:
        scratch.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(target.parent) == ["real.csv"]


def test_a_folder_that_another_process_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OSError, match="not empty"), staged(out) as scratch:  # noqa: PT012
        scratch.mkdir()
        out.mkdir()
        (out / "theirs").touch()
    assert names(tmp_path) == ["out"]
    assert names(out) == ["theirs"]


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with staged_file(pipe) as target:
            target.write_text("rows")
        assert os.read(reader, 9) == b"rows"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


DAY_S: Final = 24 * 3600

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from nsysflow.base.atomic import staged_file
with staged_file(Path(sys.argv[1])) as scratch:
    scratch.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in(folder: Path) -> Path:
    """What a process left that was killed while it wrote in `folder`."""
    argv = [sys.executable, "-c", KILLED_WHILE_WRITING, str(folder / "file")]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    (left,) = folder.iterdir()
    assert left.name != "file"
    return left


@pytest.fixture(params=["locks", "no locks"])
def any_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with locks, and one without."""
    if request.param == "no locks":
        without_locks(monkeypatch)


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))


@pytest.mark.usefixtures("any_disk")
def test_what_a_killed_process_left_goes_when_the_next_one_writes_there(tmp_path: Path) -> None:
    killed_in(tmp_path)
    write(tmp_path / "out", "1")
    assert names(tmp_path) == ["out"]


@pytest.mark.usefixtures("any_disk")
@pytest.mark.parametrize("days", [0, 400, -400])
def test_a_folder_that_a_process_still_writes_is_no_leftover_however_the_clock_jumps(
    days: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged_file(tmp_path / "slow") as scratch:
        now_s = time.time()
        monkeypatch.setattr("time.time", lambda: now_s + days * DAY_S)
        write(tmp_path / "out", "1")
        scratch.write_text("whole")
    assert (tmp_path / "slow").read_text() == "whole"


OF_ANOTHER: Final = {
    "machine": r"(?<=scratch-)[0-9a-f]{8}",
    "namespace": r"(?<=[0-9a-f]{8}-)\d+(?=-\d+-)",
}
"""What differs in the names of folders of another machine, and of another container."""


@pytest.mark.parametrize("part", ["machine", "namespace"])
def test_what_may_be_anothers_on_a_shared_disk_stays_for_a_week(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch)
    left = killed_in(tmp_path)
    name = re.sub(OF_ANOTHER[part], "00000000", left.name)
    assert name != left.name
    theirs = left.rename(tmp_path / name)
    write(tmp_path / "out", "1")
    assert theirs.exists()
    os.utime(theirs, (time.time() - 8 * DAY_S,) * 2)
    write(tmp_path / "later", "2")
    assert not theirs.exists()


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


def test_what_an_analysis_expects_is_what_it_does() -> None:
    work = Mock(spec=Progress)
    ranks = [SAMPLES / f"ddp-bucketed-rank{rank}.sqlite.xz" for rank in (0, 1)]
    analyze_reports(ranks, Options(), tables=tuple(ABOUT), progress=work)
    expected = sum(each.args[0] for each in work.expect.call_args_list)
    finished = sum((*each.args, 1)[0] for each in work.done.call_args_list)
    assert finished == expected > 2 * len(ABOUT)
    stages = [each.args[0] for each in work.stage.call_args_list]
    assert stages[:2] == ["loading ddp-bucketed-rank0", "analysing ddp-bucketed-rank0"]
