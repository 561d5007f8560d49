"""Which nsys is used, on machines made of folders and shell scripts."""

from pathlib import Path

import pytest

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys import Places, find
from tests.nsys.fakes import broken_nsys, fake_nsys, nsight_compute, places, script


@pytest.fixture
def everywhere(tmp_path: Path) -> Path:
    """A machine with an nsys in every place, each with its own version."""
    fake_nsys(tmp_path / "asked/nsys", "2021.1.1")
    fake_nsys(tmp_path / "named/nsys", "2021.1.2")
    fake_nsys(tmp_path / "path/nsys", "2021.1.3")
    fake_nsys(tmp_path / "opt/nvidia/nsight-systems/2022.1.1/bin/nsys", "2022.1.1")
    nsight_compute(tmp_path, "2030.1.1", nsys="2030.1.1")
    return tmp_path


def test_the_order_is_asked_for_then_named_then_path_then_installed(
    everywhere: Path,
) -> None:
    asked, named = everywhere / "asked/nsys", everywhere / "named/nsys"
    machine = places(everywhere, named=str(named))
    assert find(asked, places=machine).version == (2021, 1, 1)
    assert find(places=machine).version == (2021, 1, 2)
    assert find(places=places(everywhere)).version == (2021, 1, 3)
    (everywhere / "path/nsys").unlink()
    assert find(places=places(everywhere)).version == (2022, 1, 1)
    (everywhere / "opt/nvidia/nsight-systems/2022.1.1/bin/nsys").unlink()
    assert find(places=places(everywhere)).version == (2030, 1, 1)


@pytest.mark.parametrize(
    "where",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems/2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/target-linux-sbsa-armv8/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "usr/local/cuda/nsight-systems-2025.3.1/bin/nsys",
    ],
)
def test_an_installed_nsys_is_found(where: str, tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / where)
    assert find(places=places(tmp_path)).path == program


def test_the_toolkit_in_cuda_home_is_searched(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "mine/bin/nsys")
    machine = Places(cuda_home=tmp_path / "mine", root=tmp_path, cache=tmp_path / "cache")
    assert find(places=machine).path == program


def test_the_newest_installed_is_found_by_its_version_and_not_by_its_folder(
    tmp_path: Path,
) -> None:
    fake_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin/nsys", "2025.3.1")
    fake_nsys(tmp_path / "opt/nvidia/nsight-systems/2023.4.4/bin/nsys", "2023.4.4")
    newest = fake_nsys(tmp_path / "usr/local/cuda-13.1/bin/nsys", "2025.10.1.7-3v0")
    found = find(places=places(tmp_path))
    assert (found.path, found.version) == (newest, (2025, 10, 1))
    assert found.version_text == "2025.10.1.7-3v0"


def test_one_that_does_not_start_is_skipped(tmp_path: Path) -> None:
    broken_nsys(tmp_path / "path/nsys")
    broken_nsys(tmp_path / "usr/local/cuda-13.0/bin/nsys")
    script(tmp_path / "usr/local/cuda-12.4/bin/nsys", "echo something else")
    good = fake_nsys(tmp_path / "usr/local/cuda-12.0/bin/nsys")
    assert find(places=places(tmp_path)).path == good


def test_without_any_the_error_says_where_it_looked_and_what_to_type(tmp_path: Path) -> None:
    broken_nsys(tmp_path / "path/nsys")
    with pytest.raises(NsysMissing) as caught:
        find(places=places(tmp_path))
    for words in ("PATH", "nsight-systems*", "cuda*", "nsight-compute", "--nsys", "$NSYSFLOW_NSYS"):
        assert words in str(caught.value)
    assert caught.value.command == "sudo apt install nsight-systems"


def test_a_broken_one_that_was_asked_for_is_an_error_that_quotes_it(everywhere: Path) -> None:
    broken = broken_nsys(everywhere / "broken/nsys")
    for asked, machine in (
        (broken, places(everywhere)),
        (None, places(everywhere, named=str(broken))),
    ):
        with pytest.raises(CaptureError, match="it said: Nsight Systems has not been") as caught:
            find(asked, places=machine)
        assert not isinstance(caught.value, NsysMissing)


def test_a_missing_one_that_was_asked_for_is_not_replaced_by_another(everywhere: Path) -> None:
    with pytest.raises(CaptureError, match=r"the nsys that --nsys names, is not a program"):
        find(everywhere / "nowhere/nsys", places=places(everywhere))
    with pytest.raises(CaptureError, match="is not a program"):
        find(everywhere / "asked", places=places(everywhere))


def test_a_name_on_path_may_be_asked_for(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "path/nsys-next", "2026.1.1")
    assert find(Path("nsys-next"), places=places(tmp_path)).path == program
