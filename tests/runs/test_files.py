"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.report.pictures import DrawnFigures
from nsysflow.report.tables import GAPS_CSV, GAPS_PARQUET, GapsFormat
from nsysflow.runs.files import (
    check_figures,
    check_folder,
    output_folder,
    write_figures,
    write_folder,
    writing,
)
from nsysflow.runs.manifest import FILE
from tests.report.handmade import Results, training
from tests.unprivileged import unprivileged


def write(folder: Path, text: str = "1") -> None:
    """Files as an analysis writes them."""
    with writing(folder) as scratch:
        for name in ("gaps.csv", "report.json"):
            (scratch / name).write_text(text)


def test_a_folder_of_ours_is_replaced_without_asking(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    check_folder(tmp_path / "out", force=False)
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "gaps.csv").read_text() == "new"
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_an_empty_table_leaves_no_file_of_an_earlier_analysis(tmp_path: Path) -> None:
    write(tmp_path / "out")
    (tmp_path / "out" / "mfu.csv").write_text("from other options")
    write(tmp_path / "out")
    assert not (tmp_path / "out" / "mfu.csv").exists()


def test_the_gaps_of_another_format_are_not_left_from_the_last_time(tmp_path: Path) -> None:
    results = Results([training()])
    wanted: dict[GapsFormat, str] = {"csv": GAPS_CSV, "parquet": GAPS_PARQUET, "auto": GAPS_CSV}
    for form, name in wanted.items():
        write_folder(results, tmp_path / "out", top=None, at_least_ns=0, gaps_format=form)
        made = {file.name for file in (tmp_path / "out").iterdir()}
        assert made & {GAPS_CSV, GAPS_PARQUET} == {name}


def test_the_gap_report_is_among_the_files(tmp_path: Path) -> None:
    write_folder(Results([training()]), tmp_path / "out", top=None, at_least_ns=0)
    made = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"gap-report.csv", "gap-report.md"} <= made


def test_a_folder_that_is_not_ours_keeps_a_file_with_the_name_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "mfu.csv").write_text("mine")
    write(tmp_path)
    assert (tmp_path / "mfu.csv").read_text() == "mine"


@pytest.mark.parametrize("held", [[], ["thesis.tex"]])
def test_another_folder_is_refused_unless_forced(tmp_path: Path, held: list[str]) -> None:
    for name in held:
        (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="--force"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == held


def test_a_run_of_any_version_may_be_analysed_in_place(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"tool": "nsysflow", "schema": 99}')
    assert output_folder([tmp_path], None, force=False) == tmp_path


def test_a_file_in_the_place_of_the_folder_is_refused_even_if_forced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        check_folder(tmp_path / "out", force=True)


@pytest.mark.parametrize(
    "error", [OSError(28, os.strerror(28)), OSError("No space left on device (os error 28)")]
)
def test_a_full_disk_leaves_nothing_and_is_named_with_a_way_out(
    tmp_path: Path, error: OSError
) -> None:
    said = r"No space left on device.*nothing was written.*-o DIR"
    with pytest.raises(OutputError, match=said), writing(tmp_path / "out") as scratch:  # noqa: PT012
        (scratch / "gaps.csv").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_one_of_the_files_is_named(tmp_path: Path) -> None:
    write(tmp_path / "out")
    (tmp_path / "out/gaps.csv").unlink()
    (tmp_path / "out/gaps.csv").mkdir()
    with pytest.raises(OutputError, match=r"gaps\.csv there is a folder; nothing was written"):
        write(tmp_path / "out")


def test_a_read_only_place_is_named_with_a_way_out() -> None:
    with unprivileged() as folder:
        folder.chmod(0o555)
        with pytest.raises(OutputError, match=r"Permission denied.*-o DIR"):
            write(folder / "out")


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file is not a folder"):
        check_folder(tmp_path / "file" / "out", force=False)
    with unprivileged() as folder:
        check_folder(folder / "new" / "out", force=False)
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=f"{folder} is not a folder that you may write"):
            check_folder(folder / "new" / "out", force=False)
        with pytest.raises(OutputError, match="--no-files"):
            check_folder(folder, force=True)
        folder.chmod(0)
        with pytest.raises(OutputError, match=f"{folder} is not a folder"):
            check_folder(folder / "new" / "out", force=False)


def test_there_is_no_place_beside_a_pattern(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no one place beside"):
        output_folder([tmp_path / "rank*.sqlite"], None, force=False)
    assert output_folder([tmp_path / "rank*.sqlite"], tmp_path / "out", force=False)


OURS = b"<svg><metadata>nsysflow</metadata></svg>"
NAMES = ["breakdown.svg", "breakdown.png", "ranks.svg", "ranks.png"]


def test_figures_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "paper" / "figures"
    check_figures(folder, NAMES)
    write_figures(DrawnFigures(files={"breakdown.svg": OURS}), folder)
    assert [each.name for each in folder.iterdir()] == ["breakdown.svg"]


def test_other_files_stay_and_ours_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "paper.tex").write_bytes(b"mine")
    (tmp_path / "breakdown.svg").write_bytes(OURS + b"old")
    check_figures(tmp_path, NAMES)
    write_figures(DrawnFigures(files={"breakdown.svg": OURS}), tmp_path)
    assert (tmp_path / "paper.tex").read_bytes() == b"mine"
    assert (tmp_path / "breakdown.svg").read_bytes() == OURS


def test_a_file_of_the_same_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "breakdown.png").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"breakdown\.png was not made by nsysflow"):
        check_figures(tmp_path, NAMES)


def test_a_figure_of_an_earlier_run_that_is_empty_now_goes_if_it_is_ours(tmp_path: Path) -> None:
    (tmp_path / "ranks.svg").write_bytes(OURS)
    (tmp_path / "ranks.png").write_bytes(b"mine")
    write_figures(
        DrawnFigures(files={"breakdown.svg": OURS}, empty={"ranks": "one rank"}), tmp_path
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["breakdown.svg", "ranks.png"]


@pytest.mark.parametrize("inside", [Path(), Path("deeper")])
def test_a_file_is_no_folder(tmp_path: Path, inside: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="is a file"):
        check_figures(tmp_path / "file" / inside, NAMES)


def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "breakdown.svg").mkdir()
    with pytest.raises(OutputError, match="nothing was written"):
        write_figures(DrawnFigures(files={"breakdown.png": OURS, "breakdown.svg": OURS}), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["breakdown.svg"]
