import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsysflow.report.html.document import GENERATOR
from tests.cli.running import refused, run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

REPORT = Path("run.sqlite.xz")
FOLDER = Path("run.sqlite.xz.nsysflow")
PAGE = FOLDER / "report.html"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report and its page, made once."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(SAMPLES / "h2d-pinned.sqlite.xz", folder / REPORT)
    run("show", "--no-browser", folder / REPORT)
    return folder


@pytest.fixture
def opened(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What opens a browser; the working folder is such a folder."""
    opens = Mock(return_value=True)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", opens)
    return opens


def written_anew(*words: str | Path) -> bool:
    """Whether `show` replaces the page."""
    before = PAGE.stat().st_ino
    run("show", *words)
    return PAGE.stat().st_ino != before


def test_the_page_of_a_report_is_written_beside_it_and_opened(opened: Mock) -> None:
    shutil.rmtree(FOLDER)
    assert run("show", REPORT).stdout == f"{PAGE}\n"
    assert (FOLDER / "report.json").is_file()
    opened.assert_called_once_with(PAGE.absolute().as_uri())


@pytest.mark.usefixtures("opened")
def test_a_page_is_written_anew_if_it_is_older_or_of_another_version() -> None:
    assert not written_anew(REPORT)
    assert not written_anew(FOLDER)
    os.utime(PAGE, ns=(0, REPORT.stat().st_mtime_ns - 1))
    assert written_anew(FOLDER)
    text = PAGE.read_text(encoding="utf-8").replace(GENERATOR, "nsysflow 0.0.1")
    PAGE.write_text(text, encoding="utf-8")
    assert written_anew(REPORT)


@pytest.mark.usefixtures("opened")
def test_the_folder_alone_is_enough_while_it_holds_a_page() -> None:
    REPORT.unlink()
    assert run("show", FOLDER).stdout == f"{PAGE}\n"
    PAGE.unlink()
    assert "nsysflow show REPORT" in refused("show", FOLDER, code=1)


def test_without_a_screen_copying_is_said(opened: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    shown = run("show", REPORT)
    assert shown.stdout == f"{PAGE}\n"
    assert f":{PAGE.absolute()} ." in shown.stderr
    opened.assert_not_called()


@pytest.mark.usefixtures("opened")
def test_a_folder_that_nsysflow_did_not_make_is_left_alone() -> None:
    shutil.rmtree(FOLDER)
    FOLDER.mkdir()
    (FOLDER / "mine.txt").write_text("mine", encoding="utf-8")
    run("show", REPORT, code=1)
    assert [each.name for each in FOLDER.iterdir()] == ["mine.txt"]
