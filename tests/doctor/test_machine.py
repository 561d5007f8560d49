"""What the doctor sees on a machine."""

import re
from pathlib import Path

import pytest

from nsysflow.base.errors import NsysMissing
from nsysflow.doctor import machine
from nsysflow.nsys import Nsys
from tests.doctor.machines import MISSING


def test_the_files_of_linux_and_the_driver_are_understood(tmp_path: Path) -> None:
    status, options = tmp_path / "status", tmp_path / "params"
    status.write_text("Name:\tx\nCapInh:\t0000000000000001\nCapEff:\t0000004000200000\n")
    assert machine._capabilities(status) == {21, 38}
    for line, admin_only in (
        ("RmProfilingAdminOnly: 1", True),
        ("RmProfilingAdminOnly: 0", False),
        ("NVreg_RestrictProfilingToAdminUsers: 0", False),
        ("EnableMSI: 1", None),
    ):
        options.write_text(f"ResmanDebugLevel: 4294967295\n{line}\nMemoryPoolSize: 0\n")
        assert machine._admin_only(options) is admin_only
    (tmp_path / "paranoid").write_text("-1\n")
    assert machine._paranoid(tmp_path / "paranoid") == -1


def test_without_those_files_nothing_is_known(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert machine._capabilities(gone) == frozenset()
    assert machine._admin_only(gone) is None
    assert machine._paranoid(gone) is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\nhip = None", "13.0"),
        ('cuda = "12.4"', "12.4"),
        ("cuda: Optional[str] = None\nxpu = '1.0'", None),
        ("debug = False\ncudart = '13.0'", None),
    ],
)
def test_the_cuda_of_torch_is_read_from_its_version_file(text: str, cuda: str | None) -> None:
    found = machine._CUDA_BUILD.search(f"__version__ = '2.13.0'\n{text}\n")
    assert (found[1] if found else None) == cuda


def test_looking_at_this_machine_imports_neither_torch_nor_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr("nsysflow.doctor.machine.find", _no_nsys)
    before = set(sys.modules)
    seen = machine.look()
    assert isinstance(seen.nsys, NsysMissing)
    assert not {"torch", "triton"} & (set(sys.modules) - before)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", seen.python)
    assert seen.temp_free_bytes > 0


def _no_nsys() -> Nsys:
    raise MISSING
