import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsysflow.base.atomic import remove_leftovers, staged, staged_file, staged_folder


def write(folder: Path, text: str) -> None:
    """Two files."""
    with staged_folder(folder, last="report.json") as scratch:
        for name in ("gaps.csv", "report.json"):
            (scratch / name).write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_replace_older_ones_of_their_names_and_others_stay(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    write(run, "old")
    assert (names(run.parent), names(run)) == (["run"], ["gaps.csv", "report.json"])
    (run / "report.sqlite").write_text("a capture")
    write(run, "new")
    assert texts(run) == {"gaps.csv": "new", "report.json": "new", "report.sqlite": "a capture"}


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    write(tmp_path / "out", "1")
    assert (tmp_path / "out").is_symlink()
    assert names(tmp_path / "real") == ["gaps.csv", "report.json"]


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


def test_a_new_folder_and_its_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write(tmp_path / "out", "1")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain.csv").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
    written = (tmp_path / "out" / "gaps.csv").stat().st_mode
    assert written == (tmp_path / "plain.csv").stat().st_mode


def test_a_single_file_is_complete_or_missing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), staged_file(tmp_path / "gaps.csv") as scratch:  # noqa: PT012
        scratch.write_text("half")
        raise OSError("disk full")
    assert names(tmp_path) == []
    with staged_file(tmp_path / "gaps.csv") as scratch:
        scratch.write_text("whole")
    assert texts(tmp_path) == {"gaps.csv": "whole"}


def test_temporary_files_beside_a_written_file_are_removed(tmp_path: Path) -> None:
    with staged_file(tmp_path / "report.sqlite") as scratch:
        scratch.write_text("rows")
        scratch.with_name("report.sqlite-journal").write_text("left")
    assert names(tmp_path) == ["report.sqlite"]


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


def test_a_link_itself_can_be_replaced(tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "old")
    with staged(link) as scratch:
        scratch.symlink_to(tmp_path / "new")
    assert link.readlink() == tmp_path / "new"
    assert names(tmp_path) == ["current"]


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


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from nsysflow.base.atomic import staged_file
with staged_file(Path(sys.argv[1])) as scratch:
    scratch.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_writing(file: Path) -> Path:
    """The scratch folder of a process that was killed before `file` was there."""
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = file.parent.iterdir()
    assert left != file
    return left


def test_what_a_killed_process_left_goes_when_the_next_one_writes_there(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "file")
    write(tmp_path / "out", "1")
    assert names(tmp_path) == ["out"]


def test_a_folder_that_a_process_still_writes_is_no_leftover(tmp_path: Path) -> None:
    with staged_file(tmp_path / "slow") as scratch:
        write(tmp_path / "out", "1")
        scratch.write_text("whole")
    assert (tmp_path / "slow").read_text() == "whole"


def test_only_scratch_folders_of_ours_are_leftovers(tmp_path: Path) -> None:
    for name in (".nsysflow-scratch", ".nsysflow-scratch-notes", "nsysflow-0a1b2c3d-x"):
        (tmp_path / name).mkdir()
    before = names(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == before


def test_another_machines_scratch_folder_goes_after_a_week(tmp_path: Path) -> None:
    theirs = tmp_path / ".nsysflow-scratch-00000000-x"
    theirs.mkdir()
    remove_leftovers(tmp_path)
    assert theirs.exists()
    os.utime(theirs, (0, 0))
    remove_leftovers(tmp_path)
    assert not theirs.exists()


def test_a_pipe_or_link_named_like_a_leftover_is_left_alone(tmp_path: Path) -> None:
    left = killed_while_writing(tmp_path / "file")
    shutil.rmtree(left)
    os.mkfifo(left)
    link = left.with_name(f"{left.name}x")
    link.symlink_to(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [left.name, link.name]
