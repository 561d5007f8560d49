"""A full disk and a read-only one: a message that says what to do, and nothing half written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.analysis.load import load
from nsysflow.base.atomic import remove_leftovers
from nsysflow.base.errors import OutputError
from nsysflow.cli.main import main
from tests.disks import full_disk, mounted, names, read_only_disk
from tests.reports import PACKED
from tests.runs.keeping import kept_in, wait
from tests.runs.keeping import load as keep

REPORT = str(PACKED["nan_check-sync"])

WRITING = {
    "files": ["analyze", REPORT, "-o", "{disk}/out", "--html"],
    "gaps": ["analyze", REPORT, "--gaps-csv", "{disk}/gaps.csv"],
    "perfetto": ["analyze", REPORT, "--no-files", "--perfetto", "{disk}/run.pftrace"],
    "packed": ["pack", REPORT, "-o", "{disk}/small.sqlite.xz"],
    "plain": ["pack", REPORT, "-o", "{disk}/small.sqlite"],
    "baseline": ["check", REPORT, "--baseline", "{disk}/baseline.json", "--update-baseline"],
}
every_output = pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with full_disk(tmp_path / "full") as disk:
        yield disk


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    with read_only_disk(tmp_path / "read-only") as disk:
        yield disk


def run(words: list[str], disk: Path) -> Result:
    return CliRunner().invoke(main, [word.format(disk=disk) for word in words])


@every_output
def test_a_full_disk_is_one_message_that_says_what_to_do(words: list[str], full: Path) -> None:
    done = run(words, full)
    assert done.exit_code == 1, done.output
    message = done.stderr[done.stderr.index("nsysflow: ") :]
    assert str(full) in message
    assert "no space" in message.lower()
    assert "Make room" in message or "See where" in message
    assert names(full) == ["filler"]


@every_output
def test_a_read_only_disk_is_one_message_that_says_what_to_do(
    words: list[str], read_only: Path
) -> None:
    done = run(words, read_only)
    assert done.exit_code == 1, done.output
    message = done.stderr[done.stderr.index("nsysflow: ") :]
    assert str(read_only) in message
    assert "Read-only" in message or "may write" in message
    assert "another" in message or "ls -ld" in message
    assert names(read_only) == []


@pytest.mark.parametrize("disk", ["full", "read_only"])
def test_a_cache_that_cannot_be_written_is_no_matter(
    disk: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(disk)
    expected = run(["analyze", REPORT, "--no-files"], folder)
    kept_in(folder, monkeypatch)
    before = names(folder)
    done = run(["analyze", REPORT, "--no-files"], folder)
    wait()
    assert (done.exit_code, done.output) == (0, expected.output)
    assert names(folder) == before
    for words in ([], ["--prune"], ["--clear"]):
        assert run(["cache", *words], folder).exit_code == 0


@pytest.mark.parametrize("disk", ["full", "read_only"])
def test_temporary_files_without_a_place_are_a_message(
    disk: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(disk)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = names(folder)
    with pytest.raises(OutputError, match="cannot be unpacked: the folder for temporary") as raised:
        load(REPORT)
    assert raised.value.command == "export TMPDIR=FOLDER"
    remove_leftovers(folder)
    assert names(folder) == before


def test_a_disk_that_fills_while_a_report_is_kept_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "small") as disk:
        kept_in(disk, monkeypatch)
        (disk / "filler").write_bytes(bytes(200_000))
        keep(PACKED["h200-train"])
        assert names(disk) == ["filler"]
