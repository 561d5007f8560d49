"""Whether an nsys can import what it records."""

import shutil
from pathlib import Path

import pytest

from nsysflow.nsys import ImporterProblem, importer_problem
from tests.nsys.fakes import an_nsys, real_elf, script


def test_a_missing_importer_is_a_problem(tmp_path: Path) -> None:
    nsys = an_nsys(real_elf(tmp_path / "target-linux-x64/nsys"))
    problem = importer_problem(nsys)
    assert problem is not None
    assert "QdstrmImporter" in problem.text
    assert problem.libraries == ()
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    assert importer_problem(nsys) is None


def test_libraries_that_the_importer_lacks_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = r"printf '\tlibdw.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n'"
    script(tmp_path / "bin/ldd", f'[ "$LD_LIBRARY_PATH" = "{tmp_path}" ] || {missing}')
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    program = real_elf(tmp_path / "target-linux-x64/nsys")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert importer_problem(an_nsys(program)) == ImporterProblem(
        text="its importer lacks libraries: libdw.so.1", libraries=("libdw.so.1",)
    )
    assert importer_problem(an_nsys(program, library_path=tmp_path)) is None


def test_the_libraries_behind_a_launcher_are_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = real_elf(tmp_path / "target-linux-x64/nsys")
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    script(tmp_path / "bin/ldd", r"printf '\tlibssh.so.4 => not found\n'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    problem = importer_problem(an_nsys(real))
    assert problem is not None
    assert problem.libraries == ("libssh.so.4",)
    launcher = script(tmp_path / "nsys", f'exec {real} "$@"')
    assert importer_problem(an_nsys(launcher)) is None
    shutil.rmtree(tmp_path / "host-linux-x64")
    assert importer_problem(an_nsys(launcher)) is not None
