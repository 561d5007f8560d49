"""What is known about an nsys: its CUPTI, its options and its libraries."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import too_old_for
from tests.nsys.fakes import an_nsys, fake_nsys, places, script

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


def test_behind_a_launcher_that_names_no_nsys_cupti_is_unknown(tmp_path: Path) -> None:
    hidden = script(tmp_path / "nsys", "echo NVIDIA Nsight Systems version 2023.4.4")
    assert find_nsys(hidden, places=places(tmp_path)).cupti is None


def test_nsys_is_too_old_if_the_driver_has_a_later_major_cuda() -> None:
    old, new = (replace(an_nsys(Path("nsys")), cupti=cupti) for cupti in ((12, 4), (13, 0)))
    assert too_old_for(old, (13, 0))
    assert not any(too_old_for(new, driver) for driver in ((13, 0), (13, 1), (12, 4), None))
    assert not too_old_for(old, None)
    assert not too_old_for(replace(old, cupti=None), (13, 0))


def test_the_options_come_from_its_help_and_without_help_every_option_is_assumed(
    tmp_path: Path,
) -> None:
    program = fake_nsys(tmp_path / "nsys", body='echo "-f, --for-$1= Default is --none."')
    found = find_nsys(program, places=places(tmp_path))
    assert found.options == {"--for-profile", "--for-export", "--none"}
    assert found.offers("--for-export")
    assert not found.offers("--include-json")
    silent = fake_nsys(tmp_path / "silent", body="exit 1")
    assert find_nsys(silent, places=places(tmp_path)).offers("--include-json")


def test_how_rarely_it_can_sample_the_cpu_comes_from_its_help(tmp_path: Path) -> None:
    said = "Possible values are integers between 16000000 and 125000."
    tells = fake_nsys(tmp_path / "nsys", body=f'printf "\t--sampling-period=\n\n\t   {said}\n"')
    assert find_nsys(tells, places=places(tmp_path)).longest_period == 16_000_000
    silent = fake_nsys(tmp_path / "silent", body='echo "--sampling-period= Unknown."')
    assert find_nsys(silent, places=places(tmp_path)).longest_period is None


def test_libraries_in_the_cache_come_first_on_the_path(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "nsys")
    assert find_nsys(program, places=places(tmp_path)).environment({"LD_LIBRARY_PATH": "/x"}) == {}
    folder = tmp_path / "cache/lib"
    folder.mkdir(parents=True)
    found = find_nsys(program, places=places(tmp_path))
    assert found.environment({"LD_LIBRARY_PATH": "/x"}) == {"LD_LIBRARY_PATH": f"{folder}:/x"}
    assert found.environment({"HOME": "/h"}) == {"LD_LIBRARY_PATH": str(folder)}
