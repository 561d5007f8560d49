"""Our hook comes to every Python of a program, and keeps out where it should."""

import os
import shutil
import sys
import venv
from pathlib import Path
from shlex import quote

import pytest

from nsysflow.runtime.inject.nsysflow_hook import NOT_ANNOTATED
from nsysflow.runtime.process import FILES
from tests.nsys.fakes import script
from tests.runtime.inject.programs import HERE, Machine, code

CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HERE!r}])"
COPIES = f"import os, {CHILD[7:-1]}, env=os.environ.copy())"
GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
POOL = """
import multiprocessing, sys
def here(_):
    import torch
    return 'nsysflow.runtime.auto' in sys.modules
if __name__ == '__main__':
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        print(pool.map(here, [0])[0])
"""


@pytest.mark.parametrize("text", [HERE, CHILD, COPIES, GRANDCHILD])
def test_it_comes_to_a_process_and_to_those_it_starts(machine: Machine, text: str) -> None:
    done = machine.hooked(*code(text))
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_it_comes_to_scripts_modules_programs_and_shells(machine: Machine) -> None:
    path = str(machine.write("train.py", HERE))
    program = script(machine.folder / "train", HERE)
    program.write_text(f"#!{sys.executable}\n{HERE}\n")
    shell = script(machine.folder / "run.sh", f"exec {quote(sys.executable)} {quote(path)}")
    for argv in ([sys.executable, path], [sys.executable, "-m", "train"], [program], [shell]):
        assert machine.hooked(*map(str, argv)).stdout == "True\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_it_comes_to_the_processes_of_multiprocessing(machine: Machine, method: str) -> None:
    machine.write("train.py", POOL.format(method=method))
    done = machine.hooked(sys.executable, "train.py")
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_it_does_nothing_where_python_ignores_pythonpath_or_site(
    machine: Machine, flag: str
) -> None:
    find = f"import sys; sys.path.append({str(machine.lib)!r}); {HERE}"
    done = machine.hooked(sys.executable, flag, "-c", find)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not machine.is_hooked


def test_it_does_nothing_unless_asked(machine: Machine) -> None:
    done = machine.hooked(*code(HERE), NSYSFLOW_ANNOTATE="")
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not machine.is_hooked


def test_it_keeps_out_of_processes_that_compile_for_inductor(machine: Machine) -> None:
    path = machine.write("torch/_inductor/compile_worker/__main__.py", HERE)
    assert machine.hooked(sys.executable, str(path), "--workers=2").stdout == "False\n"


def test_nsysflow_is_not_imported_before_torch(machine: Machine) -> None:
    text = "import sys; print([name for name in sys.modules if name.startswith('nsysflow')])"
    assert machine.hooked(*code(text)).stdout == "[]\n"


LOADER = """
import sys, torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    loader = DataLoader([1, 2], num_workers=1, multiprocessing_context=sys.argv[1])
    print(sum(batch.item() for batch in loader))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_of_a_dataloader_leave_nothing(machine: Machine, method: str) -> None:
    path = machine.write("train.py", LOADER)
    shutil.rmtree(machine.lib / "torch")  # the real one is in the site-packages
    done = machine.hooked(sys.executable, str(path), method)
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert len(list(machine.run.glob(FILES))) == 1


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without nsysflow or any other package."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


COUNTS = """
import torch
from nsysflow import region, steps
from nsysflow.runtime import auto
from nsysflow.runtime.process import THIS_PROCESS
with region("forward"):
    pass
print(THIS_PROCESS.ranges, len([s for s in steps(range(3))]), THIS_PROCESS.steps)
"""


def test_a_python_without_nsysflow_gets_ours_and_one_state(
    machine: Machine, other_python: Path
) -> None:
    machine.write("lib/nvtx.py", "push_range = pop_range = mark = lambda *_, **__: None")
    python = str(other_python)
    assert machine.plain(python, "-c", "import nsysflow").returncode == 1
    done = machine.hooked(python, "-c", COUNTS, NSYS_PROFILING_SESSION_ID="1")
    assert (done.stdout, done.stderr) == ("1 3 3\n", "")
    assert machine.saw_torch


def test_an_nsysflow_of_the_programs_own_is_the_one_it_keeps(
    machine: Machine, other_python: Path
) -> None:
    machine.write("lib/nsysflow/__init__.py", "region = 'of the program'")
    text = "import torch, nsysflow; print(nsysflow.region)"
    done = machine.hooked(str(other_python), "-c", text)
    assert (done.stdout, done.stderr) == ("of the program\n", "")
    said = (machine.run / NOT_ANNOTATED).read_text()
    assert said == "ModuleNotFoundError: No module named 'nsysflow.runtime'"


def test_the_environment_that_children_get_begins_with_our_folder(machine: Machine) -> None:
    done = machine.hooked(*code("import os; print(os.environ['PYTHONPATH'])"))
    assert done.stdout.strip().endswith(f"{os.pathsep}{machine.lib}")
