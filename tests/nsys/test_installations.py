"""Which nsys is used, and what is known about it: its CUPTI, its options and its libraries."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.installations import Places, find_nsys
from nsysflow.nsys.program import too_old_for
from tests.nsys.fakes import an_nsys, broken_nsys, fake_nsys, nsight_compute, places, script
from tests.unprivileged import unprivileged


@pytest.fixture
def everywhere(tmp_path: Path) -> Path:
    """A machine with an nsys in every place, each with its own version."""
    fake_nsys(tmp_path / "asked/nsys", "2021.1.1")
    fake_nsys(tmp_path / "named/nsys", "2021.1.2")
    fake_nsys(tmp_path / "path/nsys", "2021.1.3")
    fake_nsys(tmp_path / "opt/nvidia/nsight-systems/2022.1.1/bin/nsys", "2022.1.1")
    nsight_compute(tmp_path, "2030.1.1", nsys="2030.1.1")
    return tmp_path


def test_the_order_is_asked_for_then_named_then_path_then_installed(everywhere: Path) -> None:
    asked, named = everywhere / "asked/nsys", everywhere / "named/nsys"
    machine = places(everywhere, named=str(named))
    assert find_nsys(asked, places=machine).version == (2021, 1, 1)
    assert find_nsys(places=machine).version == (2021, 1, 2)
    assert find_nsys(places=places(everywhere)).version == (2021, 1, 3)
    (everywhere / "path/nsys").unlink()
    assert find_nsys(places=places(everywhere)).version == (2022, 1, 1)
    (everywhere / "opt/nvidia/nsight-systems/2022.1.1/bin/nsys").unlink()
    assert find_nsys(places=places(everywhere)).version == (2030, 1, 1)


@pytest.mark.parametrize(
    "where",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems/2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/target-linux-sbsa-armv8/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "usr/local/cuda/nsight-systems-2025.3.1/bin/nsys",
        "cuda home/bin/nsys",
    ],
)
def test_an_installed_nsys_is_found(where: str, tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / where)
    machine = Places(cuda_home=tmp_path / "cuda home", root=tmp_path, cache=tmp_path / "cache")
    assert find_nsys(places=machine).path == program


def test_the_newest_installed_is_found_by_its_version_and_not_by_its_folder(tmp_path: Path) -> None:
    fake_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin/nsys", "2025.3.1")
    newest = fake_nsys(tmp_path / "usr/local/cuda-13.1/bin/nsys", "2025.10.1.7-3v0")
    found = find_nsys(places=places(tmp_path))
    assert (found.path, found.version) == (newest, (2025, 10, 1))
    assert found.version_text == "2025.10.1.7-3v0"


def test_one_that_does_not_start_is_skipped(tmp_path: Path) -> None:
    broken_nsys(tmp_path / "path/nsys")
    broken_nsys(tmp_path / "usr/local/cuda-13.0/bin/nsys")
    script(tmp_path / "usr/local/cuda-12.4/bin/nsys", "echo something else")
    good = fake_nsys(tmp_path / "usr/local/cuda-12.0/bin/nsys")
    assert find_nsys(places=places(tmp_path)).path == good


def test_without_any_the_error_says_where_it_looked_and_what_to_type(tmp_path: Path) -> None:
    broken_nsys(tmp_path / "path/nsys")
    with pytest.raises(NsysMissing) as caught:
        find_nsys(places=places(tmp_path))
    for words in ("PATH", "nsight-systems*", "cuda*", "nsight-compute", "--nsys", "$NSYSFLOW_NSYS"):
        assert words in str(caught.value)
    assert caught.value.command == "sudo apt install nsight-systems"


def test_a_broken_one_that_was_asked_for_is_an_error_that_quotes_it(everywhere: Path) -> None:
    broken = broken_nsys(everywhere / "broken/nsys")
    here, named = places(everywhere), places(everywhere, named=str(broken))
    for asked, machine in ((broken, here), (None, named)):
        with pytest.raises(CaptureError, match="it said: Nsight Systems has not been") as caught:
            find_nsys(asked, places=machine)
        assert not isinstance(caught.value, NsysMissing)


def test_the_one_inside_nsight_compute_can_import_as_a_copy(tmp_path: Path) -> None:
    host = nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1.90-1v0")
    found = find_nsys(places=places(tmp_path))
    folder = tmp_path / "cache/nsys-2025.3.1.90"
    assert found.path == folder / "target-linux-x64/nsys"
    assert found.cupti == (13, 0)
    assert (folder / "host-linux-x64").readlink() == host / "linux-desktop-glibc_2_11_3-x64"
    assert (folder / "target-linux-x64/libnvlog.so").is_symlink()
    # it resolves links to itself, so it must be a copy
    here, there = (
        subprocess.run([program, "profile"], capture_output=True, text=True)
        for program in (found.path, host / "target-linux-x64/nsys")
    )
    assert "imported" in here.stdout
    assert there.returncode != 0


def test_the_copy_is_kept_and_linked_to_where_nsight_compute_is_now(tmp_path: Path) -> None:
    host = nsight_compute(tmp_path, "2025.3.1", nsys="2025.3.1")
    found = find_nsys(places=places(tmp_path))
    kept = found.path.stat().st_mtime_ns
    moved = host.parent.rename(host.parent.with_name("2025.3.2"))
    assert find_nsys(places=places(tmp_path)).path == found.path
    link = tmp_path / "cache/nsys-2025.3.1/host-linux-x64"
    assert link.readlink().is_relative_to(moved)
    assert found.path.stat().st_mtime_ns == kept
    assert {path.name for path in link.parent.iterdir()} == {"host-linux-x64", "target-linux-x64"}


def test_a_cache_that_cannot_be_written_is_named() -> None:
    with unprivileged() as folder:
        nsight_compute(folder, "2025.3.1", nsys="2025.3.1")
        (folder / "cache").mkdir(mode=0o500)
        said = r"cannot be written: .*Permission denied.*Set XDG_CACHE_HOME"
        with pytest.raises(CaptureError, match=said):
            find_nsys(places=places(folder))


NEWER_AND_OLDER = ("libcupti.so.11.8", "libcupti.so.12.4", "libcupti.so.10.0")


@pytest.mark.parametrize(
    ("started", "libraries", "newest"),
    [
        ("target-linux-x64/nsys", NEWER_AND_OLDER, (12, 4)),
        ("target-linux-x64/nsys", ("libcupti.so.9.9", "libcupti.so.12.10"), (12, 10)),
        ("target-linux-x64/nsys", ("libcupti.so.x", "libcupti-static.so.14.0"), None),
        ("bin/nsys", NEWER_AND_OLDER, (12, 4)),
        ("link", NEWER_AND_OLDER, (12, 4)),
        ("launcher", NEWER_AND_OLDER, (12, 4)),
    ],
)
def test_the_newest_cupti_is_found_however_nsys_is_started(
    started: str, libraries: tuple[str, ...], newest: tuple[int, int] | None, tmp_path: Path
) -> None:
    real = fake_nsys(tmp_path / "target-linux-x64/nsys")
    fake_nsys(tmp_path / "bin/nsys")
    (tmp_path / "link").symlink_to(real)
    script(tmp_path / "launcher", f'LD_LIBRARY_PATH={tmp_path} exec {real} "$@"')
    for library in libraries:
        (real.parent / library).touch()
    assert find_nsys(tmp_path / started, places=places(tmp_path)).cupti == newest


def test_nsys_is_too_old_if_the_driver_has_a_later_major_cuda() -> None:
    old, new = (replace(an_nsys(Path("nsys")), cupti=cupti) for cupti in ((12, 4), (13, 0)))
    assert too_old_for(old, (13, 0))
    assert not any(too_old_for(new, driver) for driver in ((13, 0), (13, 1), (12, 4), None))
    assert not too_old_for(old, None)
    assert not too_old_for(replace(old, cupti=None), (13, 0))


def test_options_come_from_its_help_and_without_help_all_are_assumed(tmp_path: Path) -> None:
    program = fake_nsys(
        tmp_path / "nsys", body='echo "-f, --for-$1= Default is --none. --in-[a|b]="'
    )
    found = find_nsys(program, places=places(tmp_path))
    assert found.options == {"--for-profile", "--for-export", "--none", "--in-a", "--in-b"}
    assert found.offers("--for-export")
    assert not found.offers("--include-json")
    assert found.traces_gil  # it does not say what it traces
    silent = fake_nsys(tmp_path / "silent", body="exit 1")
    assert find_nsys(silent, places=places(tmp_path)).offers("--include-json")


@pytest.mark.parametrize(("more", "traces"), [("'python-gil' ", True), ("", False)])
def test_its_help_says_whether_it_traces_pythons_lock(
    more: str, traces: bool, tmp_path: Path
) -> None:
    """As 2023.4 writes it."""
    said = f"-t, --trace=\n Possible values are 'cuda', 'nvtx', \n {more}or 'none'.\n Select 'x'"
    program = fake_nsys(tmp_path / "nsys", body=f'cat << "END"\n{said}\nEND')
    assert find_nsys(program, places=places(tmp_path)).traces_gil == traces
