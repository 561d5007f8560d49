"""The nsys inside Nsight Compute works as a copy in the user's cache."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys import find
from tests.nsys.fakes import broken_nsys, nsight_compute, places
from tests.unprivileged import unprivileged


def test_the_one_inside_nsight_compute_can_import_as_a_copy(tmp_path: Path) -> None:
    host = nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1.90-1v0")
    found = find(places=places(tmp_path))
    folder = tmp_path / "cache/nsys-2025.3.1.90"
    assert found.path == folder / "target-linux-x64/nsys"
    assert found.cupti == (13, 0)
    assert (folder / "host-linux-x64").readlink() == host / "linux-desktop-glibc_2_11_3-x64"
    assert (folder / "target-linux-x64/libnvlog.so").is_symlink()
    # it resolves links to itself, so it must be a copy
    assert (
        "imported" in subprocess.run([found.path, "profile"], capture_output=True, text=True).stdout
    )
    there = subprocess.run([host / "target-linux-x64/nsys", "profile"], capture_output=True)
    assert there.returncode != 0


def test_the_copy_is_kept_and_linked_to_where_nsight_compute_is_now(tmp_path: Path) -> None:
    host = nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1")
    found = find(places=places(tmp_path))
    kept = found.path.stat().st_mtime_ns
    moved = host.parent.rename(host.parent.with_name("2025.3.2"))
    assert find(places=places(tmp_path)).path == found.path
    link = tmp_path / "cache/nsys-2025.3.1/host-linux-x64"
    assert link.readlink().is_relative_to(moved)
    assert found.path.stat().st_mtime_ns == kept
    assert sorted(path.name for path in link.parent.iterdir()) == [
        "host-linux-x64",
        "target-linux-x64",
    ]


def test_several_processes_make_one_copy_and_leave_nothing_else(tmp_path: Path) -> None:
    nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: find(places=places(tmp_path)), range(8)))
    assert len({nsys.path for nsys in found}) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["nsys-2025.3.1"]


def test_the_newest_nsight_compute_whose_nsys_starts_is_used(tmp_path: Path) -> None:
    nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1")
    nsight_compute(tmp_path, "2025.10.1", nsys="2025.5.2")
    broken_nsys(nsight_compute(tmp_path, "2026.1.1", nsys="x") / "target-linux-x64/nsys")
    assert find(places=places(tmp_path)).version == (2025, 5, 2)


def test_a_toolkits_version_does_not_make_its_nsight_compute_newer(tmp_path: Path) -> None:
    nsight_compute(tmp_path, "2024.1.0", nsys="2023.4.1")
    inside = tmp_path / "usr/local/cuda-13.0/nsight-compute-2025.3.0/host"
    inside.parent.mkdir(parents=True)
    nsight_compute(tmp_path / "made", "2025.3.0", nsys="2025.3.1").rename(inside)
    assert find(places=places(tmp_path)).version == (2025, 3, 1)


def test_on_an_arm_server_the_folders_have_other_names(tmp_path: Path) -> None:
    nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1", machine="aarch64")
    found = find(places=places(tmp_path, machine="aarch64"))
    assert found.path == tmp_path / "cache/nsys-2025.3.1/target-linux-sbsa-armv8/nsys"
    assert (found.path.parent.parent / "host-linux-armv8").is_dir()
    with pytest.raises(NsysMissing):
        find(places=places(tmp_path, machine="riscv64"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CaptureError, match="Set XDG_CACHE_HOME"):
        find(places=places(tmp_path))


def test_a_read_only_cache_is_named() -> None:
    with unprivileged() as folder:
        nsight_compute(folder, "2025.3.1", nsys="2025.3.1")
        (folder / "cache").mkdir(mode=0o500)
        with pytest.raises(CaptureError, match=r"cannot be written: .*Permission denied"):
            find(places=places(folder))
