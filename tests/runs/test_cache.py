"""Reports and pages that are kept."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.text import Text

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.report.terminal import page
from nsysflow.runs.cache import (
    LOADER,
    VARIABLE,
    KeptPage,
    Store,
    fingerprint,
    lines_of,
    packed,
    page_key,
    page_of,
    unpacked,
)
from nsysflow.runs.kept_frames import about, frames_of
from tests.analyses import run_of
from tests.reports import PACKED, parquetdir_report
from tests.unprivileged import unprivileged


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load(PACKED["h200-ddp-rank0"])


def keep(store: Store, trace: Trace, *keys: int, shapes: Shapes = True) -> None:
    """Keep a trace under these keys, each used a second after the one before it."""
    said = about(trace, Path("report.sqlite"))
    assert said is not None
    for key in keys:
        store.put(f"{key:032x}", shapes, frames_of(trace), said)
        for each in store.held():
            if each.file.name.startswith(f"{key:032x}"):
                os.utime(each.file, (key, key))


def keys(store: Store) -> list[int]:
    """What is kept, the one that was used last first."""
    return [int(each.file.name[:32], 16) for each in store.held()]


def size_of(trace: Trace, folder: Path) -> int:
    store = Store(folder)
    keep(store, trace, 1)
    (held,) = store.held()
    return held.size


def test_the_longest_unused_make_room_and_what_is_larger_than_the_limit_is_not_kept(
    trace: Trace, tmp_path: Path
) -> None:
    size = size_of(trace, tmp_path)
    store = Store(tmp_path, most_bytes=3 * size)
    keep(store, trace, 2, 3)
    assert store.get(f"{1:032x}", True) is not None  # used now
    keep(store, trace, 4)
    assert sorted(keys(store)) == [1, 3, 4]
    keep(Store(tmp_path, most_bytes=size - 1), trace, 5)
    assert sorted(keys(store)) == [1, 3, 4]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_trace_with_more_replaces_those_with_less(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path)
    levels: tuple[Shapes, ...] = (False, "grid", True)
    for shapes in levels:
        keep(store, trace, 1, shapes=shapes)
        assert keys(store) == [1]
    keep(Store(tmp_path / "less"), trace, 1, shapes="grid")
    assert Store(tmp_path / "less").get(f"{1:032x}", True) is None


def test_prune_removes_what_is_outdated_damaged_or_too_much_and_clear_all_that_is_ours(
    trace: Trace, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    keep(store, trace, 1, 2, 3, 4)
    assert {each.file.stat().st_mode & 0o777 for each in store.held()} == {0o600}
    newest, newer, older, oldest = (each.file for each in store.held())
    newest.rename(newest.with_name(f"{9:032x}-00000000-all.kept"))
    newer.write_bytes(b"")
    (tmp_path / "not ours").touch()
    removed = Store(tmp_path, most_bytes=older.stat().st_size).prune()
    assert len(removed) == 3
    assert not oldest.exists()
    assert {*tmp_path.iterdir()} == {older, tmp_path / "not ours"}
    assert len(store.clear()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["not ours"]


def test_a_missing_folder_or_a_file_holds_nothing(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.get(f"{1:032x}", True) is None
    assert (store.held(), store.prune(), store.clear()) == ([], [], [])
    assert not store.folder.exists()
    store.folder.touch()
    keep(store, trace, 1)
    assert store.get(f"{1:032x}", True) is None


def test_a_read_only_folder_is_read_and_never_changed(trace: Trace) -> None:
    with unprivileged() as folder:
        store = Store(folder)
        keep(store, trace, 1)
        folder.chmod(0o555)
        keep(store, trace, 2)
        assert keys(store) == [1]
        assert store.get(f"{1:032x}", True) is not None


def test_many_threads_read_write_and_remove_at_once(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path, most_bytes=2 * size_of(trace, tmp_path))

    def work(first: int) -> None:
        for number in range(first, first + 8):
            keep(store, trace, number % 4)
            found = store.get(f"{number % 4:032x}", True)
            assert found is None or found.ops.equals(trace.ops)
            if number % 5 == 0:
                store.prune()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert {each.suffix for each in tmp_path.iterdir()} <= {".kept"}


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert Store.here() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert Store.here() == Store(tmp_path)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store.here() == Store(tmp_path / "nsysflow" / "reports")


KEY = "0" * 32


def test_a_page_comes_back_with_its_styles() -> None:
    made = [*page(run_of("nan_check-sync"), width=100, length="full", top=None)]
    back = lines_of(unpacked(packed(page_of([], made))))
    assert [line.plain for line in back] == [line.plain for line in made]
    assert [line.markup for line in back] == [line.markup for line in made]
    assert any(line.spans for line in back)


@pytest.mark.parametrize("at", [0, 16, 100, -1])
def test_a_damaged_page_is_refused(at: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = KeptPage(reports=("report.sqlite",), lines=page_of([], [Text("waits " * 40)]).lines)
    store.put_page(KEY, kept)
    assert store.page(KEY) == kept
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    assert store.page(KEY) is None
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_of_the_reports_their_order_and_all_that_was_asked(tmp_path: Path) -> None:
    first, second = tmp_path / "1.sqlite", tmp_path / "2.sqlite"
    first.write_text("1")
    second.write_text("2")
    orders = [[first], [second], [first, second], [second, first]]
    keys = {page_key(reports, [words]) for reports in orders for words in ("--top 3", "--top 4")}
    assert len(keys) == 2 * len(orders)
    assert page_key([first, tmp_path / "gone.sqlite"], []) is None


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "report.sqlite"
    file.write_bytes(bytes(range(256)) * 4096)
    return file


def test_a_link_and_a_moved_report_are_the_same_report(report: Path) -> None:
    before = fingerprint(report, None)
    link = report.with_name("link.sqlite")
    link.symlink_to(report)
    assert before is not None
    assert fingerprint(link, None) == before
    assert fingerprint(report.rename(report.with_name("moved.sqlite")), None) == before


@pytest.mark.parametrize("at", [0, 1 << 19, (1 << 20) - 1, None])
def test_a_change_anywhere_or_of_the_time_is_seen(report: Path, at: int | None) -> None:
    before, times = fingerprint(report, None), report.stat()
    content = bytearray(report.read_bytes())
    content[at or 0] ^= at is not None
    report.write_bytes(content)
    os.utime(report, ns=(times.st_atime_ns, times.st_mtime_ns + (at is None)))
    assert fingerprint(report, None) != before


@pytest.mark.parametrize("journal", ["-wal", "-journal"])
def test_a_report_that_is_being_written_or_gone_has_none(report: Path, journal: str) -> None:
    beside = report.with_name(report.name + journal)
    beside.touch()
    assert fingerprint(report, None) is not None
    beside.write_text("changes")
    assert fingerprint(report, None) is None
    assert fingerprint(report.with_name("gone.sqlite"), None) is None
    assert fingerprint(report.parent, None) is None


def test_a_folder_changes_with_each_of_its_files(tmp_path: Path) -> None:
    folder = parquetdir_report(tmp_path)
    before = fingerprint(folder, None)
    (folder / "StringIds.parquet").touch()
    assert None not in (before, fingerprint(folder, None))
    assert fingerprint(folder, None) != before


def test_the_nsys_that_exports_counts_only_for_what_it_exports(report: Path) -> None:
    other = Path("/opt/nsys")
    assert fingerprint(report, other) == fingerprint(report, None)
    rep = report.rename(report.with_suffix(".nsys-rep"))
    assert fingerprint(rep, other) != fingerprint(rep, None)


def test_the_version_covers_every_module_that_loading_imports() -> None:
    program = (
        "import json, sys, nsysflow.analysis.load.dispatch; "
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n[:8] == 'nsysflow']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    root = Path(nsysflow.__file__).parent.resolve()
    covered = {file.resolve() for pattern in LOADER for file in root.glob(pattern)}
    imported = {Path(file).resolve() for file in json.loads(done.stdout)}
    assert imported - covered == set()
