"""An output folder is there whole or not at all, and nothing that is not ours is lost."""

import os
from pathlib import Path

import pytest

from nsysflow.errors import OutputError
from nsysflow.report.folder import check_folder, staged, staged_file
from tests.unprivileged import unprivileged


def write(folder: Path, text: str) -> None:
    """Two files of ours."""
    with staged(folder) as scratch:
        for name in ("gaps.csv", "report.json"):
            (scratch / name).write_text(text)


def test_a_new_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a" / "out", "1")
    assert {path.name for path in (tmp_path / "a" / "out").iterdir()} == {"gaps.csv", "report.json"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


def test_our_own_folder_is_replaced_without_asking(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    check_folder(tmp_path / "out", force=False)
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "gaps.csv").read_text() == "new"
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_what_is_not_ours_in_our_folder_stays(tmp_path: Path) -> None:
    write(tmp_path / "run", "old")
    (tmp_path / "run" / "report.sqlite").write_text("a capture")
    write(tmp_path / "run", "new")
    assert (tmp_path / "run" / "report.sqlite").read_text() == "a capture"


def test_a_table_that_is_not_written_this_time_is_not_left_from_the_last(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "mfu.csv").write_text("of other options")
    with staged(tmp_path / "out", optional=["mfu.csv", "ranks.csv"]) as scratch:
        (scratch / "report.json").write_text("new")
        (scratch / "ranks.csv").write_text("new")
    assert not (tmp_path / "out" / "mfu.csv").exists()
    assert (tmp_path / "out" / "ranks.csv").read_text() == "new"


def test_a_folder_that_is_not_ours_keeps_a_file_that_only_has_the_name_of_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "mfu.csv").write_text("mine")
    with staged(tmp_path, optional=["mfu.csv"]) as scratch:
        (scratch / "report.json").write_text("new")
    assert (tmp_path / "mfu.csv").read_text() == "mine"


@pytest.mark.parametrize("held", [[], ["thesis.tex"]])
def test_another_folder_is_refused_unless_forced(tmp_path: Path, held: list[str]) -> None:
    for name in held:
        (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="--force"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == held


def test_a_file_in_the_place_of_the_folder_is_refused_even_if_forced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        check_folder(tmp_path / "out", force=True)


def test_a_full_disk_leaves_no_new_folder(tmp_path: Path) -> None:
    said = "No space left on device.*nothing was written"
    with pytest.raises(OutputError, match=said), staged(tmp_path / "out") as scratch:  # noqa: PT012
        (scratch / "gaps.csv").write_text("half")
        raise OSError("No space left on device (os error 28)")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(OutputError), staged(tmp_path / "out") as scratch:  # noqa: PT012
        (scratch / "gaps.csv").write_text("half")
        raise OSError(28, os.strerror(28))
    held = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert held == {"gaps.csv": "old", "report.json": "old"}


def test_an_interrupt_leaves_nothing_either(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "out"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_one_of_the_files_leaves_all_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    (out / "report.json").unlink()
    (out / "report.json").mkdir()
    with pytest.raises(OutputError, match=r"report\.json there is a folder; nothing was written"):
        write(out, "new")
    assert (out / "gaps.csv").read_text() == "old"


def test_a_folder_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write(tmp_path / "file" / "out", "1")


def test_a_read_only_place_is_named_with_a_way_out() -> None:
    with unprivileged() as folder:
        folder.chmod(0o555)
        with pytest.raises(OutputError, match=r"Permission denied.*-o DIR"):
            write(folder / "out", "1")


def test_a_new_folder_is_as_open_as_any_other(tmp_path: Path) -> None:
    write(tmp_path / "out", "1")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_single_file_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError), staged_file(tmp_path / "gaps.csv") as scratch:  # noqa: PT012
        scratch.write_text("half")
        raise OSError(28, os.strerror(28))
    assert list(tmp_path.iterdir()) == []
    with staged_file(tmp_path / "gaps.csv") as scratch:
        scratch.write_text("whole")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "gaps.csv", tmp_path / "elsewhere" / "real.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    with staged_file(link) as scratch:
        scratch.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["real.csv"]


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


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file is no folder"):
        check_folder(tmp_path / "file" / "out", force=False)
    with unprivileged() as folder:
        check_folder(folder / "new" / "out", force=False)
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=f"{folder} is no folder"):
            check_folder(folder / "new" / "out", force=False)
        with pytest.raises(OutputError, match="--no-files"):
            check_folder(folder, force=True)
        folder.chmod(0)
        with pytest.raises(OutputError, match=f"{folder} is no folder"):
            check_folder(folder / "new" / "out", force=False)
