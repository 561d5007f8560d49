"""What is known of an nsys: its CUPTI, its options, and whether it can import."""

import shutil
from pathlib import Path

import pytest

from nsysflow.nsys import find, importer_problem, too_old_for
from tests.nsys.fakes import an_nsys, fake_nsys, places, real_elf, script


@pytest.mark.parametrize(
    ("libraries", "newest"),
    [
        (("libcupti.so.11.8", "libcupti.so.12.4", "libcupti.so.10.0"), (12, 4)),
        (("libcupti.so.9.9", "libcupti.so.12.10", "libcupti.so.12.4"), (12, 10)),
        (("libcupti.so.13.0", "libcupti.so.x", "libcupti-static.so.14.0"), (13, 0)),
        ((), None),
    ],
)
@pytest.mark.parametrize("started", ["target-linux-x64/nsys", "bin/nsys", "link", "launcher"])
def test_the_newest_cupti_counts_however_nsys_is_started(
    started: str, libraries: tuple[str, ...], newest: tuple[int, int] | None, tmp_path: Path
) -> None:
    real = fake_nsys(tmp_path / "target-linux-x64/nsys")
    fake_nsys(tmp_path / "bin/nsys")
    (tmp_path / "link").symlink_to(real)
    script(tmp_path / "launcher", f'LD_LIBRARY_PATH={tmp_path} exec {real} "$@"')
    for library in libraries:
        (real.parent / library).touch()
    assert find(tmp_path / started, places=places(tmp_path)).cupti == newest


def test_a_launcher_that_hides_what_it_starts_leaves_cupti_unknown(tmp_path: Path) -> None:
    hidden = script(tmp_path / "nsys", "echo NVIDIA Nsight Systems version 2023.4.4")
    assert find(hidden, places=places(tmp_path)).cupti is None


@pytest.mark.parametrize(
    ("cupti", "driver", "too_old"),
    [
        ((12, 4), (13, 0), True),
        ((13, 0), (13, 0), False),
        ((13, 0), (13, 1), False),
        ((13, 0), (12, 4), False),
        (None, (13, 0), False),
        ((12, 4), None, False),
    ],
)
def test_nsys_is_too_old_when_the_driver_is_of_a_later_cuda(
    cupti: tuple[int, int] | None, driver: tuple[int, int] | None, too_old: bool, tmp_path: Path
) -> None:
    version = f"libcupti.so.{cupti[0]}.{cupti[1]}" if cupti else "no-cupti"
    program = fake_nsys(tmp_path / "target-linux-x64/nsys")
    (program.parent / version).touch()
    assert too_old_for(find(program, places=places(tmp_path)), driver) == too_old


def test_the_options_are_those_its_help_names(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "nsys", body='echo "-f, --for-$1= Default is --none."')
    found = find(program, places=places(tmp_path))
    assert found.options == {"--for-profile", "--for-export", "--none"}
    assert found.offers("--for-export")
    assert not found.offers("--include-json")


def test_an_nsys_whose_help_is_not_known_is_thought_to_take_every_option(tmp_path: Path) -> None:
    silent = fake_nsys(tmp_path / "nsys", body="exit 1")
    assert find(silent, places=places(tmp_path)).offers("--include-json")


def test_libraries_in_the_cache_come_before_others_and_only_then(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "nsys")
    assert find(program, places=places(tmp_path)).environment({"LD_LIBRARY_PATH": "/x"}) == {}
    folder = tmp_path / "cache/lib"
    folder.mkdir(parents=True)
    found = find(program, places=places(tmp_path))
    assert found.environment({"LD_LIBRARY_PATH": "/x"}) == {"LD_LIBRARY_PATH": f"{folder}:/x"}
    assert found.environment({"HOME": "/h"}) == {"LD_LIBRARY_PATH": str(folder)}


def test_a_missing_importer_is_told(tmp_path: Path) -> None:
    nsys = an_nsys(real_elf(tmp_path / "target-linux-x64/nsys"))
    said = importer_problem(nsys)
    assert said is not None
    assert "QdstrmImporter" in said
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    assert importer_problem(nsys) is None


def test_libraries_that_the_importer_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = r"printf '\tlibdw.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n'"
    script(tmp_path / "bin/ldd", f'[ "$LD_LIBRARY_PATH" = "{tmp_path}" ] || {missing}')
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    program = real_elf(tmp_path / "target-linux-x64/nsys")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert importer_problem(an_nsys(program)) == "its importer lacks libraries: libdw.so.1"
    assert importer_problem(an_nsys(program, library_path=tmp_path)) is None


def test_what_a_launcher_s_importer_needs_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = real_elf(tmp_path / "target-linux-x64/nsys")
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    script(tmp_path / "bin/ldd", r"printf '\tlibssh.so.4 => not found\n'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert importer_problem(an_nsys(real)) == "its importer lacks libraries: libssh.so.4"
    launcher = script(tmp_path / "nsys", f'exec {real} "$@"')
    assert importer_problem(an_nsys(launcher)) is None
    shutil.rmtree(tmp_path / "host-linux-x64")
    assert importer_problem(an_nsys(launcher)) is not None
