"""A file that cannot be read is an error of its kind that names the file and what to type next."""

import os
import re
import shlex
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.sqlite import read_sqlite
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Busy, Damaged, Incomplete, NotAReport, ReportError
from nsysflow.cli.main import main
from tests.analysis.load.test_folders import as_folder
from tests.exports import change, note_kinds, write_export
from tests.reports import sqlite_report
from tests.unprivileged import unprivileged

EXPORT = "nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"
HEADER = 100
"""Bytes that say how long an SQLite file is."""
PIECE_ROWS = "nsysflow.analysis.load.sqlite.PIECE_ROWS"
KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def error_of(path: Path, kind: type[ReportError]) -> ReportError:
    """The error that loading `path` raises: of exactly this class, with the file and a command."""
    with pytest.raises(kind) as caught:
        load(path)
    assert type(caught.value) is kind
    assert str(path) in caught.value.seen
    assert caught.value.advice
    assert caught.value.command
    return caught.value


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=[{"text": "a"}])


def test_a_schema_that_would_not_fit_into_memory_is_corrupt(export: Path) -> None:
    """SQLite says so of 128 bytes overwritten in its page (found by `make fuzz`)."""
    with patch("nsysflow.analysis.load.sqlite.sqlite3.connect") as connect:
        connect.return_value.execute.side_effect = MemoryError
        assert "its schema would not fit into memory" in error_of(export, Damaged).seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real report with only its large tables, so that each of many tries is short."""
    path = sqlite_report(tmp_path_factory.mktemp("whole"), "h200-nvtx-domain")
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
    others = {*names} - {"StringIds", "NVTX_EVENTS", KERNELS, CALLS}
    return change(path, *(f"DROP TABLE {name}" for name in others), "VACUUM").read_bytes()


@example(1)
@example(100)
@example(4095)
@example(4096)
@given(st.integers(1, 2**40))
def test_a_report_without_its_last_bytes_is_refused_with_both_sizes(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, lost: int
) -> None:
    size = len(whole) - 1 - (lost - 1) % (len(whole) - 1)
    path = tmp_path_factory.mktemp("cut") / "r.sqlite"
    path.write_bytes(whole[:size])
    error = error_of(path, Damaged)
    assert (f"{size} of {len(whole)} bytes" if size >= HEADER else f"{size}") in error.seen
    assert error.command == EXPORT


def test_corrupt_pages_in_the_middle_are_damage(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(4096 * 5, size, 4096):
            file.seek(at)
            file.write(b"\xff" * 200)
    assert error_of(path, Damaged).command == EXPORT


@given(st.integers(1, 99), st.binary(min_size=1, max_size=64), st.integers(0, 2**20))
def test_overwritten_bytes_raise_nothing_but_report_errors(
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


def rows_of(content: bytes | bytearray, path: Path) -> int:
    """The number of kernels and calls that are read or counted as unusable."""
    path.write_bytes(content)
    raw = read_sqlite(path, str(path), shapes=False)
    return len(raw.kernels) + len(raw.calls) + raw.unusable


@pytest.fixture(scope="module")
def whole_rows(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> int:
    return rows_of(whole, tmp_path_factory.mktemp("rows") / "r.sqlite")


@example(sector=55, junk=28, piece_rows=131_072)  # the first rowids of a table
@given(st.integers(2, 10_000), st.integers(1, 255), st.sampled_from([200, 131_072]))
def test_an_overwritten_sector_loses_no_rows_silently(
    whole: bytes,
    whole_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
    sector: int,
    junk: int,
    piece_rows: int,
) -> None:
    """SQLite may treat a wrong rowid as the end of a table and return fewer rows."""
    at = 512 * (16 + sector % (len(whole) // 512 - 16))  # after the schema
    content = bytearray(whole)
    content[at : at + 512] = bytes([junk]) * 512
    path = tmp_path_factory.mktemp("sector") / "r.sqlite"
    with suppress(ReportError), patch(PIECE_ROWS, piece_rows):
        assert rows_of(content, path) >= whole_rows


def test_a_wrong_rowid_that_hides_the_rest_of_a_piece_is_damage(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (CALLS,))
        (number,), (size,) = found.fetchone(), db.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    root = (number - 1) * size
    # an interior page has the number and the largest rowid of each child
    assert content[root] == 5
    first_cell = root + int.from_bytes(content[root + 12 :][:2])
    child = int.from_bytes(content[first_cell : first_cell + 4])
    leaf = (child - 1) * size
    assert content[leaf] == 13
    cell = leaf + int.from_bytes(content[leaf + 8 + 2 * 40 :][:2])  # the 41st: length, then rowid
    content[cell + 1] = 0xFF
    path.write_bytes(content)
    with patch(PIECE_ROWS, 200):  # the end of a piece; the wrong rowid lies beyond it
        assert re.search(rf"only \d+ of \d+ rows of {CALLS}", error_of(path, Damaged).seen)


def test_an_empty_file_is_damage_and_the_command_makes_it_again(tmp_path: Path) -> None:
    kineto = "nsysflow profile --collector kineto -- COMMAND"
    for name, command in (
        ("r.sqlite", EXPORT),
        ("r.nsys-rep", "nsysflow profile -- COMMAND"),
        ("r.pt.trace.json", kineto),
        ("r.json.gz", kineto),
    ):
        (tmp_path / name).touch()
        assert error_of(tmp_path / name, Damaged).command == command


def test_a_file_of_another_kind_is_not_a_report(tmp_path: Path) -> None:
    for content in (b"hello, world\n" * 99, bytes(range(256)) * 9, b"\0" * 4096):
        (tmp_path / "r.sqlite").write_bytes(content)
        error_of(tmp_path / "r.sqlite", NotAReport)
    os.mkfifo(tmp_path / "pipe.sqlite")
    error_of(tmp_path / "pipe.sqlite", NotAReport)


def test_an_export_without_strings_or_a_required_column_is_incomplete(export: Path) -> None:
    change(export, f"ALTER TABLE {CALLS} DROP COLUMN nameId")
    assert f"{CALLS} has no column nameId" in error_of(export, Incomplete).seen
    error = error_of(change(export, "DROP TABLE StringIds"), Incomplete)
    assert "StringIds" in error.seen
    assert error.command == EXPORT


@pytest.mark.parametrize("value", ["'soon'", "1.5", "x'00ff'"])
def test_text_where_numbers_belong_is_damage(export: Path, tmp_path: Path, value: str) -> None:
    for table, column in ((KERNELS, "start"), (KERNELS, "gridX"), (CALLS, "correlationId")):
        path = Path(shutil.copy(export, tmp_path / "changed.sqlite"))
        change(path, f"UPDATE {table} SET {column} = {value}")
        assert "text where numbers belong" in error_of(path, Damaged).seen


def test_a_file_that_a_writer_has_locked_is_busy(export: Path) -> None:
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert error_of(export, Busy).command == f"cp {export} copy.sqlite"
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
        error_of(export, Busy)
        writer.execute("ROLLBACK")
    load(export)


def test_an_export_with_changes_in_the_write_ahead_log_is_busy(export: Path) -> None:
    with closing(sqlite3.connect(export)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE more (x)")
        writer.commit()
        assert "-wal" in error_of(export, Busy).seen


def test_a_path_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    for path in (tmp_path / "no.sqlite", tmp_path / "no" / "no.sqlite"):
        assert error_of(path, NotAReport).command == f"ls {tmp_path}"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").touch()  # nor is a folder of something else a report
    assert error_of(tmp_path, NotAReport).command == f"ls {tmp_path}"


@pytest.mark.parametrize("ending", [".sqlite", ".sqlite.xz", ".pt.trace.json.gz", ".nsys-rep"])
def test_the_command_for_a_folder_names_its_reports(tmp_path: Path, ending: str) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}{ending}").touch()
    typed = error_of(tmp_path, NotAReport).command.split()
    assert typed[:2] == ["nsysflow", "analyze"]
    assert sorted(Path("/").glob(typed[2][1:])) == sorted(tmp_path.iterdir())


def test_a_file_without_permission_is_an_error_that_says_so(export: Path) -> None:
    content = export.read_bytes()
    # imports what the command needs: the user below may not read Python's own modules
    assert CliRunner().invoke(main, ["analyze", str(export)]).exit_code == 0
    with unprivileged() as folder:
        report = folder / "report.sqlite"
        report.write_bytes(content)
        report.chmod(0)
        assert error_of(report, ReportError).command == f"chmod u+rX {report}"
        done = CliRunner().invoke(main, ["analyze", str(report)])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "permission denied" in done.stderr
        assert [path.name for path in folder.iterdir()] == ["report.sqlite"]


def test_a_refused_permission_can_be_allowed(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert error_of(export, ReportError).command == f"chmod u+rX {export}"


def beside(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "sql", ["PRAGMA journal_mode = delete", "PRAGMA journal_mode = wal", "DROP TABLE StringIds"]
)
def test_loading_changes_nothing_and_leaves_nothing(tmp_path: Path, sql: str) -> None:
    path = change(sqlite_report(tmp_path), sql)
    before = beside(tmp_path)
    with suppress(Incomplete):
        load(path)
    assert beside(tmp_path) == before


@pytest.mark.parametrize("name", ["a?mode=rwc#b.sqlite", "50%25 of it.sqlite", "é ü.sqlite"])
def test_a_path_may_have_letters_that_mean_something_in_a_uri(tmp_path: Path, name: str) -> None:
    path = write_export(tmp_path / name, kernels=[{}])
    assert load(path).ops.height == 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["my run.sqlite", "a;b.sqlite", "it's.sqlite"])
def test_a_command_can_be_pasted_whatever_the_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    path.with_suffix(".nsys-rep").touch()
    assert shlex.split(error_of(path, Damaged).command) == [
        *("nsys", "export", "--type", "sqlite", "--force-overwrite=true"),
        *(f"--output={path}", str(path.with_suffix(".nsys-rep"))),
    ]


def test_a_link_to_a_report_is_read_under_its_own_name(export: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(export)
    assert load(link).report == "link"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("ALTER TABLE NVTX_EVENTS DROP COLUMN eventType", "NVTX_EVENTS has no column eventType"),
        ("ALTER TABLE NVTX_EVENTS DROP COLUMN globalTid", "NVTX_EVENTS has no column globalTid"),
        (
            "UPDATE NVTX_EVENTS SET start = 'soon'",
            "NVTX_EVENTS.start holds text where numbers belong",
        ),
        ("UPDATE NVTX_EVENTS SET textId = -1", "NVTX_EVENTS holds numbers that are too large"),
        (
            "UPDATE TARGET_INFO_GPU SET id = 1.5",
            "TARGET_INFO_GPU.id holds text where numbers belong",
        ),
    ],
)
def test_a_table_of_details_that_cannot_be_used_is_left_out_with_a_note(
    tmp_path: Path, statement: str, why: str
) -> None:
    path = tmp_path / "r.sqlite"
    write_export(path, kernels=[{}], calls=[{}], nvtx=[{"text": "a"}], gpus=[{}])
    change(path, statement)
    trace = load(path)
    (note,) = [note for note in trace.notes if note.kind is NoteKind.UNREAD_TABLES]
    assert note.text.endswith(f"left out: {why}")
    assert (len(trace.ops), len(trace.calls)) == (1, 1)
    pack(path, tmp_path / "packed.sqlite")
    assert load(tmp_path / "packed.sqlite").ops.equals(trace.ops)
    folder = as_folder(path, tmp_path / "folder", "parquetdir")
    assert NoteKind.UNREAD_TABLES in note_kinds(load(folder))
