"""A compressed report loads like the plain one, and damage to it is an error."""

import errno
import gzip
import lzma
import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.analysis.load.unpacking import pack_into
from nsysflow.base.errors import Damaged, NotAReport, OutputError
from tests.exports import write_export
from tests.reports import DATA, sqlite_report

SUFFIXES = (".xz", ".gz", ".zst")
each_suffix = pytest.mark.parametrize("suffix", SUFFIXES)


@cache
def packed(content: bytes, suffix: str) -> bytes:
    target = BytesIO()
    pack_into(BytesIO(content), target, suffix)
    return target.getvalue()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write_export(tmp_path_factory.mktemp("r") / "r.sqlite", kernels=[{}] * 50, calls=[{}])
    return path.read_bytes()


@each_suffix
def test_a_compressed_report_loads_the_same(content: bytes, tmp_path: Path, suffix: str) -> None:
    plain, small, nameless = (tmp_path / name for name in ("r.sqlite", f"r.sqlite{suffix}", "r"))
    plain.write_bytes(content)
    for path in (small, nameless):
        path.write_bytes(packed(content, suffix))
        assert load(path).report == load(plain).report == "r"
        assert_frame_equal(load(path).ops, load(plain).ops)


@each_suffix
def test_packing_twice_gives_the_same_bytes(content: bytes, suffix: str) -> None:
    assert packed(content, suffix) == packed.__wrapped__(content, suffix)


@given(st.sampled_from(SUFFIXES), st.data())
def test_a_compressed_report_without_its_last_bytes_is_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    small = packed(content, suffix)
    path = tmp_path_factory.mktemp("cut") / f"r.sqlite{suffix}"
    path.write_bytes(small[: data.draw(st.integers(1, len(small) - 1))])
    with pytest.raises(Damaged) as caught:
        load(path)
    assert str(path) in caught.value.seen
    assert caught.value.command == f"sha256sum {path}"


@each_suffix
def test_a_wrong_or_empty_archive_is_refused(content: bytes, tmp_path: Path, suffix: str) -> None:
    small = bytearray(packed(content, suffix))
    small[len(small) // 2] ^= 0xFF
    path = tmp_path / f"r.sqlite{suffix}"
    for damaged, said in ((small, "corrupt"), (packed(b"", suffix), "is empty")):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=said):
            load(path)


def test_several_zstd_frames_are_one_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite.zst"
    half = len(content) // 2
    path.write_bytes(packed(content[:half], ".zst") + packed(content[half:], ".zst"))
    assert load(path).ops.height == 50


def test_the_error_for_a_truncated_report_names_the_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite.gz"
    path.write_bytes(gzip.compress(sqlite_report(tmp_path).read_bytes()[:-1]))
    with pytest.raises(Damaged, match=r"r\.sqlite\.gz is truncated"):
        load(path)


def test_no_temporary_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = DATA / "h200-parquetdir.tar.xz"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    load(DATA / "synthetic-1.sqlite.xz")
    with pytest.raises(NotAReport) as caught:
        load(archive)
    assert caught.value.command == f"tar -xf {archive}"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_where_to_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: IO[bytes], target: IO[bytes], length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OutputError) as caught:
        load(DATA / "synthetic-1.sqlite.xz")
    assert caught.value.command == "export TMPDIR=FOLDER"


def test_other_programs_can_unpack_what_is_packed(content: bytes) -> None:
    assert lzma.decompress(packed(content, ".xz")) == content
    assert gzip.decompress(packed(content, ".gz")) == content
