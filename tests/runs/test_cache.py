"""Answers that are kept."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from rich.text import Text

from nsysflow.report.text import page_lines
from nsysflow.runs.cache import Answer, Store, answer_key, fingerprint
from tests.analyses import run_of

REPORT: Final = Path("report.sqlite")
SHORT: Final = Answer.of([Text("a line")], ["a remark"])


def key_of(number: int) -> str:
    return f"{number:032x}"


def keep(store: Store, *numbers: int, answer: Answer = SHORT) -> None:
    """Keep an answer under each of these keys, used a second after the one before it."""
    for number in numbers:
        store.keep(key_of(number), [REPORT], {"page": answer})
        for entry in store.entries():
            if entry.file.name.startswith(key_of(number)):
                os.utime(entry.file, (number, number))


def kept(store: Store) -> list[int]:
    """What is kept, the one that was used last first."""
    return [int(entry.file.name[:32], 16) for entry in store.entries()]


def size_of_one(folder: Path) -> int:
    store = Store(folder)
    keep(store, 1)
    (entry,) = store.entries()
    return entry.size


def test_an_answer_comes_back_with_its_styles_and_remarks(tmp_path: Path) -> None:
    lines = [*page_lines(run_of("nan_check-sync"), width=100, length="full", top=None)]
    store = Store(tmp_path)
    store.keep(key_of(1), [REPORT], {"page": Answer.of(lines, ["said"])})
    back = store.answer(key_of(1), "page")
    assert back is not None
    assert back.remarks == ("said",)
    assert [line.plain for line in back.texts] == [line.plain for line in lines]
    assert [line.markup for line in back.texts] == [line.markup for line in lines]
    assert any(line.spans for line in back.texts)


def test_answers_to_several_questions_on_a_report_are_one_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Answer.of([Text("other")])
    store.keep(key_of(1), [REPORT], {"page": SHORT, "explain 1": SHORT})
    store.keep(key_of(1), [REPORT], {"explain 1": other})
    assert len(store.entries()) == 1
    assert store.answer(key_of(1), "page") == SHORT
    assert store.answer(key_of(1), "explain 1") == other
    assert store.answer(key_of(1), "explain 2") is None
    assert store.answer(key_of(2), "page") is None


@pytest.mark.parametrize("at", [0, 16, 100, -1])
def test_a_damaged_answer_is_refused_and_removed(at: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, 1, answer=Answer.of([Text("row")] * 20))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    assert store.answer(key_of(1), "page") is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_used_in_the_future_and_then_the_longest_unused_make_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "few", most_bytes=3 * size_of_one(tmp_path / "one"))
    keep(store, 1, 2, 3)
    assert store.answer(key_of(1), "page") is not None  # used now
    ahead = next(entry.file for entry in store.entries() if entry.used_s == 3)
    os.utime(ahead, (time.time() + 400 * 24 * 3600,) * 2)
    keep(store, 4)
    assert sorted(kept(store)) == [1, 2, 4]
    keep(store, 5)
    assert sorted(kept(store)) == [1, 4, 5]


def test_prune_removes_what_is_outdated_damaged_or_too_much(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, 1, 2, 3, 4)
    newest, newer, older, oldest = (entry.file for entry in store.entries())
    newest.rename(newest.with_name(f"{key_of(9)}-00000000-all.kept"))  # of an older version
    newer.write_bytes(b"")
    (tmp_path / "not ours").touch()
    removed = Store(tmp_path, most_bytes=older.stat().st_size).prune()
    assert len(removed) == 3
    assert not oldest.exists()
    assert sorted(tmp_path.iterdir()) == sorted([older, tmp_path / "not ours"])


def test_clear_removes_all_that_is_ours_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, 1, 2)
    assert {entry.file.stat().st_mode & 0o777 for entry in store.entries()} == {0o600}
    (tmp_path / "not ours").touch()
    assert len(store.clear()) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["not ours"]


def test_many_threads_read_write_and_remove_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path, most_bytes=2 * size_of_one(tmp_path))

    def work(first: int) -> None:
        for number in range(first, first + 8):
            store.keep(key_of(number % 4), [REPORT], {"page": SHORT})
            assert store.answer(key_of(number % 4), "page") in (None, SHORT)
            if number % 5 == 0:
                store.prune()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert {file.suffix for file in tmp_path.iterdir()} <= {".kept"}


def test_a_key_is_of_the_reports_their_order_and_all_that_was_asked(tmp_path: Path) -> None:
    first, second = tmp_path / "1.sqlite", tmp_path / "2.sqlite"
    first.write_text("1")
    second.write_text("2")
    asked = [
        ([first], ["--top 3"]),
        ([first], ["--top 4"]),
        ([second], ["--top 3"]),
        ([first, second], ["--top 3"]),
        ([second, first], ["--top 3"]),
    ]
    assert len({answer_key(reports, words) for reports, words in asked}) == len(asked)
    assert answer_key([first, tmp_path / "gone.sqlite"], []) is None


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "report.sqlite"
    file.write_bytes(bytes(range(256)) * 4096)
    return file


def test_a_link_and_a_moved_report_are_the_same_report(report: Path) -> None:
    before = fingerprint(report)
    link = report.with_name("link.sqlite")
    link.symlink_to(report)
    assert before is not None
    assert fingerprint(link) == before
    assert fingerprint(report.rename(report.with_name("moved.sqlite"))) == before


@pytest.mark.parametrize("at", [0, 1 << 19, (1 << 20) - 1, None])
def test_any_change_of_bytes_or_time_is_seen(report: Path, at: int | None) -> None:
    before, times = fingerprint(report), report.stat()
    content = bytearray(report.read_bytes())
    content[at or 0] ^= at is not None
    report.write_bytes(content)
    os.utime(report, ns=(times.st_atime_ns, times.st_mtime_ns + (at is None)))
    assert fingerprint(report) != before


@pytest.mark.parametrize("journal", ["-wal", "-journal"])
def test_a_report_that_is_being_written_has_none(report: Path, journal: str) -> None:
    beside = report.with_name(report.name + journal)
    beside.touch()
    assert fingerprint(report) is not None
    beside.write_text("changes")
    assert fingerprint(report) is None
    assert fingerprint(report.with_name("gone.sqlite")) is None
    assert fingerprint(report.parent) is None


def test_nsys_counts_only_where_it_exports(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rep = report.with_suffix(".nsys-rep")
    rep.write_bytes(report.read_bytes())
    before = [fingerprint(report), fingerprint(rep)]
    monkeypatch.setenv("NSYSFLOW_NSYS", "/opt/nsys")
    assert [fingerprint(report) == before[0], fingerprint(rep) == before[1]] == [True, False]
