"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.report.pictures import DrawnFigures
from nsysflow.runs.files import check_figures, check_folder, write_figures, writing
from tests.cli.running import run
from tests.exports import write_export
from tests.unprivileged import unprivileged


def write(folder: Path, text: str = "1") -> None:
    """Files as an analysis writes them."""
    with writing(folder) as scratch:
        for name in ("gaps.csv", "report.json"):
            (scratch / name).write_text(text)


def test_a_folder_of_ours_is_replaced_without_asking(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "mfu.csv").write_text("a table that is empty with other options")
    check_folder(tmp_path / "out", force=False)
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "gaps.csv").read_text() == "new"
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.parametrize("held", ["", "thesis.tex", "mfu.csv"])
def test_another_folder_is_refused_unless_forced(tmp_path: Path, held: str) -> None:
    if held:
        (tmp_path / held).write_text("mine")
    with pytest.raises(OutputError, match="--force"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    write(tmp_path)
    assert not held or (tmp_path / held).read_text() == "mine"


@pytest.mark.parametrize(
    "error", [OSError(28, os.strerror(28)), OSError("No space left on device (os error 28)")]
)
def test_a_full_disk_leaves_nothing_and_is_named(tmp_path: Path, error: OSError) -> None:
    said = r"No space left on device.*nothing was written.*-o DIR"
    with pytest.raises(OutputError, match=said), writing(tmp_path / "out") as scratch:  # noqa: PT012
        (scratch / "gaps.csv").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file"):
        check_folder(tmp_path / "file", force=True)
    with pytest.raises(OutputError, match="file is not a folder"):
        check_folder(tmp_path / "file" / "out", force=False)
    with unprivileged() as folder:
        new = folder / "new" / "out"
        check_folder(new, force=False)
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=f"{folder} is not a folder that you may write"):
            check_folder(new, force=False)
        with pytest.raises(OutputError, match="--no-files"):
            check_folder(folder, force=True)
        with pytest.raises(OutputError, match=r"Permission denied.*-o DIR"):
            write(folder / "out")
        folder.chmod(0)
        with pytest.raises(OutputError, match=f"{folder} is not a folder"):
            check_folder(new, force=False)


OURS = b"<svg><metadata>nsysflow</metadata></svg>"
NAMES = ["breakdown.svg", "breakdown.png", "ranks.svg", "ranks.png"]
BREAKDOWN = DrawnFigures(files={"breakdown.svg": OURS}, empty={"ranks": "one rank"})


def test_our_figures_are_replaced_or_go_and_other_files_stay(tmp_path: Path) -> None:
    mine = {"paper.tex": b"mine", "ranks.png": b"mine"}
    for name, content in (mine | {"breakdown.svg": OURS + b"old", "ranks.svg": OURS}).items():
        (tmp_path / name).write_bytes(content)
    check_figures(tmp_path, ["breakdown.svg", "ranks.svg"])
    write_figures(BREAKDOWN, tmp_path)
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found == mine | {"breakdown.svg": OURS}


def test_a_file_that_is_not_ours_is_refused_and_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "breakdown.png").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"breakdown\.png was not made by nsysflow"):
        check_figures(tmp_path, NAMES)
    for inside in ("breakdown.png", "breakdown.png/deeper"):
        with pytest.raises(OutputError, match="is a file"):
            check_figures(tmp_path / inside, NAMES)


def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "breakdown.svg").mkdir()
    with pytest.raises(OutputError, match="nothing was written"):
        write_figures(DrawnFigures(files={"breakdown.png": OURS, "breakdown.svg": OURS}), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["breakdown.svg"]


def test_links_and_special_files_in_a_folder_of_ours_are_replaced_and_not_written_through(
    tmp_path: Path,
) -> None:
    folder, outside = tmp_path / "out", tmp_path / "outside"
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}])
    outside.write_text("kept")
    folder.mkdir()
    (folder / "summary.md").symlink_to(outside)
    (folder / "gaps.csv").symlink_to("/dev/full")
    (folder / "comm.csv").symlink_to(outside)
    (folder / "kernels.csv").symlink_to(tmp_path / "missing")
    os.mkfifo(folder / "phases.csv")
    os.mkfifo(folder / "report.json")
    os.link(outside, folder / "gap-report.md")
    run("analyze", report, "-o", folder, "--force")
    run("analyze", report, "-o", folder)
    assert all(file.is_file() and not file.is_symlink() for file in folder.glob("[!c]*"))
    assert outside.read_text() == "kept"
    assert {each.name for each in tmp_path.iterdir()} == {"out", "outside", "r.sqlite"}


def test_a_link_to_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}])
    (tmp_path / "elsewhere").mkdir()
    folder.mkdir()
    (folder / "summary.md").symlink_to(tmp_path / "elsewhere")
    said = run("analyze", report, "-o", folder, "--force", code=1).stderr
    assert "summary.md there is a folder" in said
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    assert [each.name for each in folder.iterdir()] == ["summary.md"]
