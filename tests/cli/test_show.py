"""`nsysflow show`: which page it opens, when it writes one, and what it says without a browser."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from nsysflow.report.html.document import GENERATOR
from tests.reports import SAMPLES

SAMPLE = SAMPLES / "h2d-pinned.sqlite.xz"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report in an empty folder, on a machine with a browser."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", OPENED.append)
    OPENED.clear()
    shutil.copy(SAMPLE, "run.sqlite.xz")
    return Path("run.sqlite.xz")


OPENED: list[str] = []
"""The addresses that were opened."""

FOLDER = Path("run.sqlite.xz.nsysflow")
PAGE = FOLDER / "report.html"


def show(*words: str) -> Result:
    return CliRunner().invoke(main, ["show", *words])


def written_anew(*words: str) -> bool:
    """Whether `show` replaces the page."""
    before = PAGE.stat().st_ino
    assert show(*words).exit_code == 0
    return PAGE.stat().st_ino != before


def test_the_page_of_a_report_is_written_beside_it_and_opened(report: Path) -> None:
    shown = show(str(report))
    assert (shown.exit_code, shown.stdout) == (0, f"{PAGE}\n")
    assert PAGE.is_file()
    assert (FOLDER / "report.json").is_file()
    assert OPENED.pop() == PAGE.absolute().as_uri()


def test_a_page_that_is_there_is_opened_as_it_is(report: Path) -> None:
    show(str(report))
    assert not written_anew(str(report))
    assert not written_anew(str(FOLDER))


def test_a_page_older_than_its_report_is_written_anew(report: Path) -> None:
    show(str(report))
    os.utime(PAGE, ns=(0, report.stat().st_mtime_ns - 1))
    assert written_anew(str(FOLDER))


def test_a_page_of_another_version_is_written_anew(report: Path) -> None:
    show(str(report))
    text = PAGE.read_text(encoding="utf-8").replace(GENERATOR, "nsysflow 0.0.1")
    PAGE.write_text(text, encoding="utf-8")
    assert written_anew(str(report))


def test_the_folder_alone_is_enough_while_it_holds_a_page(report: Path) -> None:
    show(str(report))
    report.unlink()
    assert show(str(FOLDER)).stdout == f"{PAGE}\n"


def test_a_folder_without_page_and_report_says_what_to_type(report: Path) -> None:
    show(str(report))
    report.unlink()
    PAGE.unlink()
    shown = show(str(FOLDER))
    assert shown.exit_code == 1
    assert "nsysflow show REPORT" in shown.stderr


def test_the_folder_may_be_the_current_one(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show(str(report))
    monkeypatch.chdir(FOLDER)
    os.utime("report.html", ns=(0, 0))
    assert show(".").stdout == "report.html\n"
    assert Path("report.html").stat().st_mtime_ns > 0


@pytest.mark.usefixtures("report")
def test_without_a_run_here_it_says_what_else_there_is() -> None:
    shown = show()
    assert shown.exit_code == 1
    assert "nsysflow demo" in shown.stderr


def test_no_browser_opens_nothing(report: Path) -> None:
    assert show(str(report), "--no-browser").stderr == ""
    assert OPENED == []


def test_without_a_screen_it_says_how_to_copy_the_page(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    shown = show(str(report))
    assert shown.exit_code == 0
    assert shown.stdout == f"{PAGE}\n"
    assert f":{PAGE.absolute()} ." in shown.stderr
    assert OPENED == []


def test_a_folder_that_nsysflow_did_not_make_is_left_alone(report: Path) -> None:
    FOLDER.mkdir()
    (FOLDER / "mine.txt").write_text("mine", encoding="utf-8")
    shown = show(str(report))
    assert shown.exit_code == 1
    assert [each.name for each in FOLDER.iterdir()] == ["mine.txt"]
