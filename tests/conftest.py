"""Settings that every test shares."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from tests.reports import PACKED, RULES
from tests.slowest import ALWAYS, slow_tests

# One thread per process: `make test` runs one process per core. The threads of OpenMP and OpenBLAS
# spin while they wait: 20 % of the CPU time of the kernels' largest test files on two busy cores.
# Two threads of polars take a third more CPU time for frames of a few rows than one, which is what
# nsysflow gives a small report, too.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")

# The user's cache folder is not ours to fill. A test that wants a cache names a folder.
os.environ["NSYSFLOW_CACHE"] = "off"

# GNU readline, which pytest loads, sets these for every program that a test starts.
for variable in ("COLUMNS", "LINES"):
    os.unsetenv(variable)

# No deadline: the first example of a test pays for polars warming up. The random examples are the
# same in every run and on every machine, so that a change is judged by what it changes. `make hunt`
# draws new ones. `make mutants` only asks whether a test fails, not for the smallest example.
settings.register_profile("same everywhere", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, derandomize=False, print_blob=True)
settings.register_profile(
    "mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("hunt" if "NSYSFLOW_HUNT" in os.environ else "same everywhere")


# The collector of garbage looks at all objects again and again, and those of imported modules and
# collected tests stay: it starts after them, and less often.
gc.disable()
GARBAGE: Final = 50_000, 20, 20
"""How many new objects the collector waits for; its default is a first generation of 700."""


def pytest_collection_finish() -> None:
    """What is there now stays."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` on a machine without a CUDA GPU."""
    if item.get_closest_marker("gpu") is not None:
        from torch.cuda import is_available  # takes a second

        if not is_available():
            pytest.skip("no CUDA device")


SLOW_TESTS: Final = 50
"""A test marked slow or long, or in each run however long it takes, takes as long as so many
others."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests that look at pages, which `make pages` runs, those that are slow, which `make
    long` runs, and those that share work. Put long groups first, so that at the end no process
    waits for another."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        report = shared_by(item)
        if function_of(item) in slow_tests() or (report in PACKED and report not in RULES):
            item.add_marker("slow")
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(shared_by(item)))
    yield  # `-m` chooses
    if "PYTEST_XDIST_WORKER" in os.environ:
        lengths: Counter[str] = Counter()
        for item in items:
            marked = any(map(item.get_closest_marker, ("slow", "long")))
            slow = marked or function_of(item) in ALWAYS
            lengths[group_of(item)] += SLOW_TESTS if slow else 1
        items.sort(key=lambda item: -lengths[group_of(item)])


def function_of(item: pytest.Item) -> str:
    """The test without its parameters, and without the group that pytest-xdist adds."""
    return item.nodeid.partition("[")[0].partition("@")[0]


def group_of(item: pytest.Item) -> str:
    """The tests that run in one process, one after the other."""
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    return str(marker.args[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Refuse to run without groups: all that tests share would be made once in each process."""
    if node.config.option.dist == "loadgroup" and not all("@" in name for name in ids):
        pytest.exit("this pytest-xdist does not group tests: install pytest<9.2", returncode=4)


def shared_by(item: pytest.Item) -> str:
    """What a test shares with others: the analysis of the one report that it is of, else the
    fixtures of its file. A group runs in one process, so that nothing is made twice; a test file
    may name its own."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    reports = [each for each in given.values() if isinstance(each, str) and each in PACKED]
    return reports[0] if len(reports) == 1 else item.nodeid.partition("::")[0]


MEMORY_DISK: Final = Path("/dev/shm")  # of Linux
MEMORY_DISK_BYTES: Final = 1 << 30


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fast_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder for thousands of small files: in memory where there is such a disk with room. On a
    real disk, half of the time of such a test is the file system's."""
    if not MEMORY_DISK.is_dir() or disk_usage(MEMORY_DISK).free < MEMORY_DISK_BYTES:
        yield tmp_path
        return
    with TemporaryDirectory(prefix="nsysflow-test-", dir=MEMORY_DISK) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[None]:
    """Commands on a real report or a copy of it share its analysis."""
    from tests.sharing import shared_analyses  # polars starts after its threads are set above

    with shared_analyses():
        yield
