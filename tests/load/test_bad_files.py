"""A file that cannot be read says what was seen, in which file, and what to type next."""

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.load import load
from nsysflow.cli import main
from nsysflow.errors import Busy, Damaged, Incomplete, NotAReport, ReportError
from tests.exports import Row, change, write_export
from tests.reports import sqlite_report
from tests.unprivileged import unprivileged


def message(path: Path, kind: type[ReportError]) -> str:
    """The message of the error that loading `path` raises; it names the file and a next step."""
    with pytest.raises(kind) as caught:
        load(path)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert str(path) in text
    assert "\n  " in text
    return text


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=[{"text": "a"}])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return sqlite_report(tmp_path_factory.mktemp("whole"), "h200-nvtx-domain").read_bytes()


@given(st.data())
def test_a_report_that_lost_any_bytes_at_its_end_is_refused(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "r.sqlite"
    path.write_bytes(whole[:size])
    assert f"{size}" in message(path, Damaged)


@pytest.mark.parametrize("lost", [1, 100, 4095, 4096])
def test_the_expected_and_the_actual_size_are_named(
    whole: bytes, tmp_path: Path, lost: int
) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(whole[:-lost])
    assert f"{len(whole) - lost} of {len(whole)} bytes" in message(path, Damaged)


def test_corrupt_pages_in_the_middle_are_damage(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(4096 * 5, size, 4096):
            file.seek(at)
            file.write(b"\xff" * 200)
    assert "corrupt" in message(path, Damaged)


@given(st.integers(1, 99), st.binary(min_size=1, max_size=64), st.integers(0, 2**20))
def test_no_overwritten_bytes_end_in_anything_but_a_report_error(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, share: int, junk: bytes, odd: int
) -> None:
    at = len(whole) * share // 100 + odd % 4096
    content = bytearray(whole)
    content[at : at + len(junk)] = junk
    content[odd % 8192] ^= 0xFF  # page 1 and 2 are the schema
    path = tmp_path_factory.mktemp("junk") / "r.sqlite"
    path.write_bytes(content)
    with suppress(ReportError):
        load(path)


@given(st.integers(2, 10_000), st.integers(1, 255))
def test_an_overwritten_sector_loses_no_rows_without_a_word(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, sector: int, junk: int
) -> None:
    """SQLite takes a wild rowid for the end of a range of them: sums of what is left look sound."""
    folder = tmp_path_factory.mktemp("sector")
    (folder / "whole.sqlite").write_bytes(whole)
    at = 512 * (16 + sector % (len(whole) // 512 - 16))  # after the schema
    content = bytearray(whole)
    content[at : at + 512] = bytes([junk]) * 512
    (folder / "r.sqlite").write_bytes(content)
    sound = load(folder / "whole.sqlite")
    try:
        found = load(folder / "r.sqlite")
    except ReportError:
        return
    left_out = sum(
        int(match[1])
        for note in found.notes
        if (match := re.match(r"(\d+) rows? without a time", note))
    )
    assert len(found.ops) + len(found.calls) + left_out >= len(sound.ops) + len(sound.calls)


def test_a_wild_rowid_that_hides_the_rest_of_a_table_is_damage(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        name = "CUPTI_ACTIVITY_KIND_RUNTIME"
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    # an interior page points to its children by their numbers and greatest rowids
    first_cell = (root - 1) * size + int.from_bytes(content[(root - 1) * size + 12 :][:2])
    assert content[(root - 1) * size] == 5
    child = int.from_bytes(content[first_cell : first_cell + 4])
    leaf = (child - 1) * size
    assert content[leaf] == 13
    cell = leaf + int.from_bytes(content[leaf + 8 + 2 * 40 :][:2])  # the 41st: length, then rowid
    content[cell + 1] = 0xFF
    path.write_bytes(content)
    assert re.search(r"holds \d+ rows, and \d+ can be read", message(path, Damaged))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("r.sqlite", "nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"),
        ("r.nsys-rep", "nsysflow profile -- COMMAND"),
        ("r.pt.trace.json", "nsysflow profile --collector kineto -- COMMAND"),
        ("r.json.gz", "nsysflow profile --collector kineto -- COMMAND"),
    ],
)
def test_an_empty_file_is_named_so_with_what_makes_it_again(
    tmp_path: Path, name: str, command: str
) -> None:
    path = tmp_path / name
    path.touch()
    said = message(path, Damaged)
    assert "is empty (0 bytes)" in said
    assert said.endswith(f"\n  {command}")


@pytest.mark.parametrize("content", [b"hello, world\n" * 99, bytes(range(256)) * 9, b"\0" * 4096])
def test_a_file_of_another_kind_is_no_sqlite_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    assert "is not an SQLite file" in message(path, NotAReport)


def test_a_database_of_something_else_is_no_export(tmp_path: Path) -> None:
    path = change(tmp_path / "songs.sqlite", "CREATE TABLE songs (title TEXT)")
    assert "not an Nsight Systems export" in message(path, NotAReport)


def test_a_database_without_tables_is_no_export(tmp_path: Path) -> None:
    path = change(tmp_path / "r.sqlite", "PRAGMA user_version = 1")
    assert "not an Nsight Systems export" in message(path, NotAReport)


def test_an_export_without_strings_is_incomplete(export: Path) -> None:
    change(export, "DROP TABLE StringIds")
    assert "has no StringIds table" in message(export, Incomplete)


def test_a_column_that_every_export_has_is_missed(export: Path) -> None:
    change(export, "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN nameId")
    assert "no column nameId" in message(export, Incomplete)


@pytest.mark.parametrize("value", ["'soon'", "1.5", "x'00ff'"])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "gridX"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("NVTX_EVENTS", "globalTid"),
    ],
)
def test_text_where_numbers_belong_is_damage(
    export: Path, table: str, column: str, value: str
) -> None:
    change(export, f"UPDATE {table} SET {column} = {value}")
    assert "text where numbers belong" in message(export, Damaged)


def test_text_far_below_numbers_is_found_too(tmp_path: Path) -> None:
    rows: list[Row] = [*({"start": n} for n in range(70_000)), {"start": "soon"}]
    path = write_export(tmp_path / "r.sqlite", calls=rows)
    assert "text where numbers belong" in message(path, Damaged)


def test_a_number_out_of_all_range_is_damage(export: Path) -> None:
    change(export, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = {2**40}")
    assert "too large" in message(export, Damaged)


def test_a_file_that_a_writer_has_locked_is_busy(export: Path) -> None:
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert "locked" in message(export, Busy)
        writer.execute("ROLLBACK")
    load(export)


def test_a_file_in_the_middle_of_a_transaction_is_busy(export: Path) -> None:
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("PRAGMA cache_spill = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("CREATE TABLE more AS SELECT randomblob(4096) FROM StringIds")
        for _ in range(20):
            writer.execute("INSERT INTO more SELECT randomblob(4096)")
        message(export, Busy)
        writer.execute("ROLLBACK")
    load(export)


def test_changes_that_are_only_in_the_write_ahead_log_are_busy(export: Path) -> None:
    with closing(sqlite3.connect(export)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE more (x)")
        writer.commit()
        assert "-wal" in message(export, Busy)


def test_a_write_ahead_file_at_rest_is_read(export: Path) -> None:
    change(export, "PRAGMA journal_mode = WAL")
    assert load(export).ops.height == 1


def test_a_path_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    assert "does not exist" in message(tmp_path / "no.sqlite", NotAReport)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert f"holds no report. See what is there:\n  ls {tmp_path}" in message(tmp_path, NotAReport)


@pytest.mark.parametrize("ending", [".sqlite", ".sqlite.xz", ".pt.trace.json.gz", ".nsys-rep"])
def test_a_folder_of_reports_names_them(tmp_path: Path, ending: str) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}{ending}").touch()
    typed = message(tmp_path, NotAReport).splitlines()[-1].split()
    assert typed[:2] == ["nsysflow", "analyze"]
    assert sorted(Path("/").glob(typed[2][1:])) == sorted(tmp_path.iterdir())


def test_a_pipe_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "pipe.sqlite"
    os.mkfifo(path)
    assert "regular file" in message(path, NotAReport)


def test_a_file_without_permission_says_so(export: Path) -> None:
    content = export.read_bytes()
    assert CliRunner().invoke(main, ["analyze", str(export), "--no-files"]).exit_code == 0
    with unprivileged() as folder:
        report = folder / "report.sqlite"
        report.write_bytes(content)
        report.chmod(0)
        assert "permission denied" in message(report, ReportError)
        done = CliRunner().invoke(main, ["analyze", str(report)])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "permission denied" in done.stderr
        assert [path.name for path in folder.iterdir()] == ["report.sqlite"]


def test_a_refused_permission_says_so(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert "permission denied" in message(export, ReportError)


def beside(folder: Path) -> dict[str, str]:
    """Every file below a folder with its checksum."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(params=["delete", "wal"])
def at_rest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = change(sqlite_report(tmp_path), f"PRAGMA journal_mode = {request.param}")
    before = beside(tmp_path)
    yield path
    assert beside(tmp_path) == before


def test_loading_changes_nothing_and_leaves_nothing_beside_the_report(at_rest: Path) -> None:
    load(at_rest)


def test_a_refused_report_is_not_changed_either(tmp_path: Path) -> None:
    path = change(sqlite_report(tmp_path), "DROP TABLE StringIds", "VACUUM")
    before = beside(tmp_path)
    message(path, Incomplete)
    assert beside(tmp_path) == before


@pytest.mark.parametrize("name", ["a?mode=rwc#b.sqlite", "50%25 of it.sqlite", "é ü.sqlite"])
def test_odd_letters_in_a_path_are_letters(tmp_path: Path, name: str) -> None:
    path = write_export(tmp_path / name, kernels=[{}])
    assert load(path).ops.height == 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_link_to_a_report_is_read_and_named_after_itself(export: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(export)
    assert load(link).report == "link"
