"""The store stays within its limit, and no state of its folder stops an analysis."""

import os
import threading
from pathlib import Path

import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.cache.frames import about, frames_of
from nsysflow.cache.store import VARIABLE, Store
from tests.reports import PACKED
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


def test_the_longest_unused_make_room(trace: Trace, tmp_path: Path) -> None:
    size = size_of(trace, tmp_path / "one")
    store = Store(tmp_path / "few", most_bytes=3 * size)
    keep(store, trace, 1, 2, 3)
    assert store.get(f"{1:032x}", True) is not None  # used now
    keep(store, trace, 4)
    assert sorted(keys(store)) == [1, 3, 4]


def test_what_is_larger_than_the_limit_is_not_kept_and_costs_nothing_else(
    trace: Trace, tmp_path: Path
) -> None:
    size = size_of(trace, tmp_path)
    keep(Store(tmp_path, most_bytes=size - 1), trace, 2)
    assert keys(Store(tmp_path)) == [1]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_trace_with_more_replaces_those_with_less(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path)
    levels: tuple[Shapes, ...] = (False, "grid", True)
    for shapes in levels:
        keep(store, trace, 1, shapes=shapes)
        assert keys(store) == [1]
    keep(Store(tmp_path / "less"), trace, 1, shapes="grid")
    assert Store(tmp_path / "less").get(f"{1:032x}", True) is None


def test_prune_removes_what_is_outdated_damaged_or_too_much(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, trace, 1, 2, 3, 4)
    newest, newer, older, oldest = (each.file for each in store.held())
    newest.rename(newest.with_name(f"{9:032x}-00000000-all.kept"))
    newer.write_bytes(b"")
    (tmp_path / "not ours").touch()
    removed = Store(tmp_path, most_bytes=older.stat().st_size).prune()
    assert len(removed) == 3
    assert not oldest.exists()
    assert sorted(tmp_path.iterdir()) == sorted([older, tmp_path / "not ours"])


def test_clear_removes_all_that_is_ours(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, trace, 1, 2)
    (tmp_path / "not ours").touch()
    assert len(store.clear()) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["not ours"]


def test_only_its_user_can_read_what_is_kept(trace: Trace, tmp_path: Path) -> None:
    keep(Store(tmp_path), trace, 1)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.get(f"{1:032x}", True) is None
    assert (store.held(), store.prune(), store.clear()) == ([], [], [])
    assert not store.folder.exists()


def test_a_file_in_the_place_of_the_folder_keeps_nothing(trace: Trace, tmp_path: Path) -> None:
    store = Store(tmp_path / "file")
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
    failed: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 8):
                keep(store, trace, number % 4)
                found = store.get(f"{number % 4:032x}", True)
                assert found is None or found.ops.equals(trace.ops)
                if number % 5 == 0:
                    store.prune()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {each.suffix for each in tmp_path.iterdir()} <= {".kept"}


def test_the_environment_names_the_folder_or_switches_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert Store.here() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert Store.here() == Store(tmp_path)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store.here() == Store(tmp_path / "nsysflow" / "reports")
