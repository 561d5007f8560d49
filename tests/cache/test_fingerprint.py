"""A report is told from others, and from itself after a change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nsysflow
from nsysflow.cache.fingerprint import LOADER, fingerprint
from tests.reports import parquetdir_report


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


@pytest.mark.parametrize("at", [0, 1 << 19, (1 << 20) - 1])
def test_a_change_in_head_middle_or_tail_is_seen_at_equal_size_and_time(
    report: Path, at: int
) -> None:
    before, times = fingerprint(report, None), report.stat()
    content = bytearray(report.read_bytes())
    content[at] ^= 1
    report.write_bytes(content)
    os.utime(report, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(report, None) != before


def test_a_change_elsewhere_is_seen_by_its_time(report: Path) -> None:
    before, times = fingerprint(report, None), report.stat()
    os.utime(report, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert fingerprint(report, None) != before


@pytest.mark.parametrize("journal", ["-wal", "-journal"])
def test_a_report_that_is_being_written_has_none(report: Path, journal: str) -> None:
    beside = report.with_name(report.name + journal)
    beside.touch()
    assert fingerprint(report, None) is not None
    beside.write_text("changes")
    assert fingerprint(report, None) is None


def test_what_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "gone.sqlite", None) is None
    assert fingerprint(tmp_path, None) is None


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
    without_rows = {(root / "atomic.py").resolve()}
    assert imported - covered - without_rows == set()
