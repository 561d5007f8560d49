"""Which files are the program's own, and their short names."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.frames.source_files import is_named, is_own, shown_files, shown_lines
from tests.oracle import sources as oracle

FOLDERS = st.sampled_from(("", "a", "b", "c"))
PATHS = st.lists(FOLDERS, max_size=4).map(lambda folders: "/".join([*folders, "utils.py"]))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/me/code/train.py", "train.py"),
        ("C:\\Users\\me\\train.py", "train.py"),
        ("<string>", "<string>"),
        ("<stdin>", "<stdin>"),
        ("<ipython-input-3-1a2b>", "<ipython-input-3-1a2b>"),
        ("/var/ipykernel_12/34.py", "34.py"),
        ("/opt/x/site-packages/nsysflow/workloads/nan_check.py", "nan_check.py"),
        ("/usr/lib/python3.12/site-packages/nsysflow/workloads/h2d.py", "h2d.py"),
        ("/opt/x/site-packages/nsysflow/workloads/policy/plain_step.py", "plain_step.py"),
        ("/usr/local/lib/python3.12/dist-packages/nsysflow/workloads/h2d.py", "h2d.py"),
        ("/home/me/code/nsysflow/train.py", "train.py"),
    ],
)
def test_a_file_of_the_program_is_shown_by_its_name(path: str, shown: str) -> None:
    assert is_own(path)
    assert oracle.is_own(path)
    assert shown_files([path]) == {path: shown}
    assert is_own(shown)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/usr/lib/python3.12/threading.py", "lib/python3.12/threading.py"),
        ("/usr/lib64/python3.9/threading.py", "lib64/python3.9/threading.py"),
        ("/opt/py/python311.zip/threading.py", "python311.zip/threading.py"),
        ("/usr/lib/python3/dist-packages/torch/nn.py", "lib/python3/dist-packages/torch/nn.py"),
        ("/opt/x/site-packages/torch/nn.py", "site-packages/torch/nn.py"),
        ("C:\\py\\Lib\\site-packages\\torch\\nn.py", "site-packages/torch/nn.py"),
        ("/opt/x/site-packages/nsysflow/stepping.py", "site-packages/nsysflow/stepping.py"),
        ("/home/me/code/nsysflow/capturing.py", "nsysflow/capturing.py"),
        ("/home/me/code/nsysflow/runtime/steps.py", "nsysflow/runtime/steps.py"),
        ("/var/torchinductor_me/ab/cab.py", "torchinductor/ab/cab.py"),
        ("<frozen runpy>", "<frozen runpy>"),
        ("<eval_with_key>.5", "<eval_with_key>.5"),
    ],
)
def test_a_file_of_a_library_keeps_the_folders_that_identify_it(path: str, shown: str) -> None:
    assert not is_own(path)
    assert not oracle.is_own(path)
    assert shown_files([path]) == {path: shown}
    assert not is_own(shown)


def test_what_region_and_steps_import_does_not_belong_to_the_program() -> None:
    code = (
        "import sys, nsysflow.runtime.regions, nsysflow.runtime.steps\n"
        "for name, module in sys.modules.items():\n"
        "    if name.startswith('nsysflow.'): print(module.__file__)"
    )
    listed = subprocess.run([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, check=True)
    files = listed.stdout.decode().splitlines()
    assert len(files) > 5
    for file in files:
        assert not is_own(f"/home/me/code/nsysflow/{file.rpartition('/nsysflow/')[2]}"), file


def test_files_with_the_same_name_are_shown_with_just_enough_folders() -> None:
    model, data, other = "/home/me/p/model/utils.py", "/home/me/p/data/utils.py", "/x/train.py"
    assert shown_files([model, data, other]) == {
        model: "model/utils.py",
        data: "data/utils.py",
        other: "train.py",
    }
    deep, deeper, flat = "/a/x/utils.py", "/b/x/utils.py", "/b/y/utils.py"
    assert shown_files([deep, deeper, flat]) == {
        deep: "a/x/utils.py",
        deeper: "b/x/utils.py",
        flat: "y/utils.py",
    }


def test_shown_folders_do_not_name_the_user() -> None:
    assert shown_files(["/home/me/train.py", "/home/me/sub/train.py"]) == {
        "/home/me/train.py": "train.py",
        "/home/me/sub/train.py": "sub/train.py",
    }
    windows, root = "C:\\Users\\me\\a\\train.py", "/".join(("", "root", "b", "train.py"))
    assert shown_files([windows, root]) == {windows: "a/train.py", root: "b/train.py"}


def test_a_library_file_of_the_same_name_adds_no_folders() -> None:
    own, library = "/home/me/utils.py", "/opt/site-packages/utils.py"
    assert shown_files([own, library])[own] == "utils.py"


PACKAGED = "/opt/v/lib/python3.12/site-packages/my_lib/train/loop.py"
PACKED = "lib/python3.12/site-packages/my_lib/train/loop.py"


@pytest.mark.parametrize("file", [PACKAGED, PACKED, "C:\\py\\Lib\\site-packages\\my_lib\\a.py"])
@pytest.mark.parametrize("name", ["my_lib", "my-lib"])
def test_a_package_is_named_as_it_is_imported_or_installed(file: str, name: str) -> None:
    assert is_named(file, name)
    assert oracle.is_named(file, name)


@pytest.mark.parametrize(
    "name",
    [
        "/opt/v/lib/python3.12/site-packages/my_lib",
        "/opt/v/lib/python3.12/site-packages/my_lib/",
        "/opt/v/lib/python3.12/site-packages/my_lib/train/loop.py",
        "my_lib/train",
        "./my_lib",
        "loop.py",
    ],
)
@pytest.mark.parametrize("file", [PACKAGED, PACKED])
def test_a_path_names_what_lies_at_or_below_it(file: str, name: str) -> None:
    assert is_named(file, name)
    assert oracle.is_named(file, name)


@pytest.mark.parametrize(
    "name", ["lib", "my_li", "train", "loop", "/opt/w/my_lib", "/v/lib", "./rain", "op.py", "./"]
)
@pytest.mark.parametrize("file", [PACKAGED, PACKED])
def test_a_part_of_a_name_or_another_folder_names_nothing(file: str, name: str) -> None:
    assert not is_named(file, name)
    assert not oracle.is_named(file, name)


def test_a_folder_called_lib_does_not_name_the_standard_library_of_a_packed_report() -> None:
    assert not is_named("lib/python3.12/threading.py", "/home/me/lib")


def test_a_line_shows_a_file_of_a_package_from_the_package_on() -> None:
    files = [PACKAGED, PACKED, "/home/me/loop.py", "/usr/lib/python3/dist-packages/six.py"]
    assert list(shown_lines(files).values()) == [
        *("my_lib/train/loop.py", "my_lib/train/loop.py", "loop.py", "six.py")
    ]


@given(st.lists(PATHS, max_size=6))
def test_shown_names_differ_where_paths_do_and_are_never_absolute(paths: list[str]) -> None:
    shown = shown_files(paths)
    parts = {path: tuple(part for part in path.split("/") if part) for path in paths}
    for one in paths:
        assert not shown[one].startswith("/")
        assert parts[one][-len(shown[one].split("/")) :] == tuple(shown[one].split("/"))
        for other in paths:
            assert (shown[one] == shown[other]) == (parts[one] == parts[other])


@given(st.lists(PATHS, max_size=6))
def test_short_names_of_short_names_are_the_same(paths: list[str]) -> None:
    shown = shown_files(paths)
    again = shown_files(shown.values())
    assert all(again[name] == name for name in shown.values())
