"""Figures go into a folder, and what is not ours there stays."""

from pathlib import Path

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.report.figures.drawing import Drawn
from nsysflow.runs.figures import check_figures, write_figures

OURS = b"<svg><metadata>nsysflow</metadata></svg>"
NAMES = ["breakdown.svg", "breakdown.png", "ranks.svg", "ranks.png"]


def test_figures_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "paper" / "figures"
    check_figures(folder, NAMES)
    write_figures(Drawn(files={"breakdown.svg": OURS}), folder)
    assert [each.name for each in folder.iterdir()] == ["breakdown.svg"]


def test_other_files_stay_and_ours_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "paper.tex").write_bytes(b"mine")
    (tmp_path / "breakdown.svg").write_bytes(OURS + b"old")
    check_figures(tmp_path, NAMES)
    write_figures(Drawn(files={"breakdown.svg": OURS}), tmp_path)
    assert (tmp_path / "paper.tex").read_bytes() == b"mine"
    assert (tmp_path / "breakdown.svg").read_bytes() == OURS


def test_a_file_of_the_same_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "breakdown.png").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"breakdown\.png was not made by nsysflow"):
        check_figures(tmp_path, NAMES)


def test_a_figure_of_an_earlier_run_that_is_empty_now_goes_if_it_is_ours(tmp_path: Path) -> None:
    (tmp_path / "ranks.svg").write_bytes(OURS)
    (tmp_path / "ranks.png").write_bytes(b"mine")
    write_figures(Drawn(files={"breakdown.svg": OURS}, empty={"ranks": "one rank"}), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["breakdown.svg", "ranks.png"]


@pytest.mark.parametrize("inside", [Path(), Path("deeper")])
def test_a_file_is_no_folder(tmp_path: Path, inside: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="is a file"):
        check_figures(tmp_path / "file" / inside, NAMES)


def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "breakdown.svg").mkdir()
    with pytest.raises(OutputError, match="nothing was written"):
        write_figures(Drawn(files={"breakdown.png": OURS, "breakdown.svg": OURS}), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["breakdown.svg"]
