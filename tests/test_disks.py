"""A full disk and a read-only one: a message that says what to do, and nothing half written."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.analysis.load import load
from nsysflow.base.atomic import remove_leftovers
from nsysflow.base.errors import OutputError
from nsysflow.cli.main import main
from nsysflow.runs.cache import VARIABLE
from tests.disks import full_disk, names, read_only_disk
from tests.reports import PACKED
from tests.runs.keeping import kept_in

pytestmark = pytest.mark.usefixtures("shared")

REPORT = str(PACKED["nan_check-sync"])

WRITING = {
    "files": ["analyze", REPORT, "-o", "{disk}/out", "--html"],
    "gaps": ["analyze", REPORT, "--gaps-csv", "{disk}/gaps.csv"],
    "perfetto": ["analyze", REPORT, "--no-files", "--perfetto", "{disk}/run.pftrace"],
    "packed": ["pack", REPORT, "-o", "{disk}/small.sqlite.xz"],
    "plain": ["pack", REPORT, "-o", "{disk}/small.sqlite"],
    "baseline": ["check", REPORT, "--baseline", "{disk}/baseline.json", "--update-baseline"],
}
REFUSALS = {
    "full": ("no space", "Make room|See where"),
    "read_only": ("read-only|may write", "another|ls -ld"),
}
"""What is said of each kind of disk, and what to do."""


@pytest.fixture(params=REFUSALS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    made = full_disk if request.param == "full" else read_only_disk
    with made(tmp_path / request.param) as disk:
        yield disk


def run(words: list[str], disk: Path) -> Result:
    return CliRunner().invoke(main, [word.format(disk=disk) for word in words])


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_a_full_or_read_only_disk_is_one_message_with_advice(words: list[str], disk: Path) -> None:
    before = names(disk)
    done = run(words, disk)
    assert done.exit_code == 1, done.output
    message = done.stderr[done.stderr.index("nsysflow: ") :]
    assert str(disk) in message
    seen, advice = REFUSALS[disk.name]
    assert re.search(seen, message, re.IGNORECASE)
    assert re.search(advice, message)
    assert names(disk) == before


def test_a_cache_without_room_is_no_matter(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(disk)
    expected = run(["analyze", REPORT, "--no-files"], disk)
    kept_in(disk, monkeypatch)
    done = run(["analyze", REPORT, "--no-files"], disk)
    assert (done.exit_code, done.output) == (0, expected.output)
    assert names(disk) == before
    for words in ([], ["--prune"], ["--clear"]):
        assert run(["cache", *words], disk).exit_code == 0


def test_a_home_that_cannot_be_written_is_no_matter(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(["analyze", REPORT, "--no-files"], disk)
    kept_in(disk, monkeypatch)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(disk))
    for words in (["analyze", REPORT, "--no-files"], ["cache"]):
        done = run(words, disk)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == expected.stdout or words == ["cache"]
    assert not [*disk.glob(".cache/nsysflow/**/*.*")]


def test_no_place_for_temporary_files_is_said(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(disk)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    with pytest.raises(OutputError, match="cannot be unpacked: the folder for temporary") as raised:
        load(REPORT)
    assert raised.value.command == "export TMPDIR=FOLDER"
    remove_leftovers(disk)
    assert names(disk) == before
