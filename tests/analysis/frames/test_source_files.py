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


OWN = {
    "/home/me/code/train.py": "train.py",
    "C:\\Users\\me\\train.py": "train.py",
    "<string>": "<string>",
    "<ipython-input-3-1a2b>": "<ipython-input-3-1a2b>",
    "/var/ipykernel_12/34.py": "34.py",
    "/opt/x/site-packages/nsysflow/workloads/nan_check.py": "nan_check.py",
    "/opt/x/site-packages/nsysflow/workloads/policy/plain_step.py": "plain_step.py",
    "/usr/local/lib/python3.12/dist-packages/nsysflow/workloads/h2d.py": "h2d.py",
    "/home/me/code/nsysflow/train.py": "train.py",
}
"""Files of the program, by path, with the name that is shown."""

OF_LIBRARIES = {
    "/usr/lib/python3.12/threading.py": "lib/python3.12/threading.py",
    "/opt/py/python311.zip/threading.py": "python311.zip/threading.py",
    "/usr/lib/python3/dist-packages/torch/nn.py": "lib/python3/dist-packages/torch/nn.py",
    "/opt/x/site-packages/torch/nn.py": "site-packages/torch/nn.py",
    "C:\\py\\Lib\\site-packages\\torch\\nn.py": "site-packages/torch/nn.py",
    "/opt/x/site-packages/nsysflow/stepping.py": "site-packages/nsysflow/stepping.py",
    "/home/me/code/nsysflow/capturing.py": "nsysflow/capturing.py",
    "/home/me/code/nsysflow/runtime/steps.py": "nsysflow/runtime/steps.py",
    "/var/torchinductor_me/ab/cab.py": "torchinductor/ab/cab.py",
    "<frozen runpy>": "<frozen runpy>",
    "<eval_with_key>.5": "<eval_with_key>.5",
}
"""These keep the folders that identify them."""


@pytest.mark.parametrize(("path", "shown"), [*OWN.items(), *OF_LIBRARIES.items()])
def test_a_file_is_the_programs_or_a_librarys_and_has_a_short_name(path: str, shown: str) -> None:
    owned = path in OWN
    assert is_own(path) == oracle.is_own(path) == is_own(shown) == owned
    assert shown_files([path]) == {path: shown}


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


OF_ROOT = "/".join(("", "root", "b", "train.py"))


@pytest.mark.parametrize(
    "shown",
    [
        {
            "/home/me/p/model/utils.py": "model/utils.py",
            "/home/me/p/data/utils.py": "data/utils.py",
            "/x/train.py": "train.py",
        },
        {
            "/a/x/utils.py": "a/x/utils.py",
            "/b/x/utils.py": "b/x/utils.py",
            "/b/y/utils.py": "y/utils.py",
        },
        # the user is not named
        {"/home/me/train.py": "train.py", "/home/me/sub/train.py": "sub/train.py"},
        {"C:\\Users\\me\\a\\train.py": "a/train.py", OF_ROOT: "b/train.py"},
        {"/home/me/utils.py": "utils.py", "/opt/site-packages/utils.py": "site-packages/utils.py"},
    ],
)
def test_files_with_the_same_name_are_shown_with_just_enough_folders(shown: dict[str, str]) -> None:
    assert shown_files([*shown]) == shown


PACKAGED = "/opt/v/lib/python3.12/site-packages/my_lib/train/loop.py"
PACKED = "lib/python3.12/site-packages/my_lib/train/loop.py"
PACKAGE = ("my_lib", "my-lib")


ON_WINDOWS = "C:\\py\\Lib\\site-packages\\my_lib\\a.py"
FOLDER = "/opt/v/lib/python3.12/site-packages/my_lib"

NAMED = (FOLDER, f"{FOLDER}/", f"{FOLDER}/train/loop.py", "my_lib/train", "./my_lib", "loop.py")
"""Paths that a file lies at or below."""

NOT_NAMED = ("lib", "my_li", "train", "loop", "/opt/w/my_lib", "/v/lib", "./rain", "op.py", "./")
"""Parts of a name, and other folders."""


@pytest.mark.parametrize(
    ("file", "name", "named"),
    [
        *((file, name, True) for file in (PACKAGED, PACKED, ON_WINDOWS) for name in PACKAGE),
        *((file, name, True) for file in (PACKAGED, PACKED) for name in NAMED),
        *((file, name, False) for file in (PACKAGED, PACKED) for name in NOT_NAMED),
        ("lib/python3.12/threading.py", "/usr/lib/python3.12", True),
        ("lib/python3.12/threading.py", "/home/me/lib", False),  # a packed standard library
    ],
)
def test_packages_are_named_as_imported_or_by_their_path(file: str, name: str, named: bool) -> None:
    assert is_named(file, name) == oracle.is_named(file, name) == named


def test_a_line_shows_a_file_of_a_package_from_the_package_on() -> None:
    files = [PACKAGED, PACKED, "/home/me/loop.py", "/usr/lib/python3/dist-packages/six.py"]
    assert list(shown_lines(files).values()) == [
        *("my_lib/train/loop.py", "my_lib/train/loop.py", "loop.py", "six.py")
    ]


@given(st.lists(PATHS, max_size=6))
def test_shown_names_differ_where_paths_do_are_never_absolute_and_stay(paths: list[str]) -> None:
    shown = shown_files(paths)
    parts = {path: tuple(part for part in path.split("/") if part) for path in paths}
    for one in paths:
        assert not shown[one].startswith("/")
        assert parts[one][-len(shown[one].split("/")) :] == tuple(shown[one].split("/"))
        for other in paths:
            assert (shown[one] == shown[other]) == (parts[one] == parts[other])
    again = shown_files(shown.values())
    assert all(again[name] == name for name in shown.values())
