"""Our hook comes to every Python of a program, keeps out where it should, and changes nothing."""

import os
import shutil
import sys
import venv
from pathlib import Path
from shlex import quote
from typing import Final

import pytest

from nsysflow.runtime.inject import FOLDER
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.process import FILES
from nsysflow.runtime.protocol import ANNOTATE, RUN_FOLDER
from tests.nsys.fakes import script
from tests.runtime.programs import Done, ended

TORCH: Final = """
__version__ = "0"
class version:
    cuda = None
class cuda:
    is_initialized = staticmethod(lambda: False)
"""
"""A torch that imports in no time."""


class Machine:
    """The programs' working folder: `lib` in it is on PYTHONPATH and holds such a torch, `run` is
    the run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lib, self.run = folder, folder / "lib", folder / "run"
        self.run.mkdir()
        self.write("lib/torch/__init__.py", TORCH)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plain(self, *argv: str) -> Done:
        """The program as it is."""
        return self._done(argv, PYTHONPATH=str(self.lib))

    def hooked(self, *argv: str, **variables: str) -> Done:
        """The program as `nsysflow profile` starts it."""
        path = f"{FOLDER}{os.pathsep}{self.lib}"
        ours = {"PYTHONPATH": path, ANNOTATE: "1", RUN_FOLDER: str(self.run)}
        return self._done(argv, **ours | variables)

    def _done(self, argv: tuple[str, ...], **variables: str) -> Done:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NSYS", "NVTX", "PYTHON"))}
        return ended(argv, self.folder, kept | variables)

    @property
    def is_hooked(self) -> bool:
        """Whether any Python process had our hook."""
        return (self.run / HOOKED).exists()

    @property
    def saw_torch(self) -> bool:
        """Whether torch was annotated, or that was tried."""
        return any((self.run / name).exists() for name in (ANNOTATED, NOT_ANNOTATED))

    def assert_unchanged(self, *argv: str) -> Done:
        """Run the program as it is and hooked; both print the same and end alike."""
        plain, hooked = self.plain(*argv), self.hooked(*argv)
        outcomes = [(done.returncode, done.stdout, done.stderr) for done in (plain, hooked)]
        assert outcomes[0] == outcomes[1]
        assert self.is_hooked
        return hooked


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def code(text: str) -> tuple[str, ...]:
    """This code, run by our Python."""
    return (sys.executable, "-c", text)


HERE = "import sys, torch; print('nsysflow.runtime.auto' in sys.modules)"
"""Prints whether our runtime came to this process with torch."""
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HERE!r}])"
COPIES = f"import os, {CHILD[7:-1]}, env=os.environ.copy())"
GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
POOL = """
import multiprocessing, sys
def here(_):
    import torch
    return 'nsysflow.runtime.auto' in sys.modules
if __name__ == '__main__':
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(here, [0])[0])
"""


@pytest.mark.parametrize("text", [HERE, COPIES, GRANDCHILD])
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


def test_it_comes_to_the_processes_of_multiprocessing(machine: Machine) -> None:
    machine.write("train.py", POOL)
    done = machine.hooked(sys.executable, "train.py")
    assert (done.stdout, done.stderr) == ("True\n" * 3, "")


@pytest.mark.parametrize("flag", ["-I", "-S", "-E", None])
def test_it_does_nothing_unless_asked_and_possible(machine: Machine, flag: str | None) -> None:
    find = f"import sys; sys.path.insert(0, {str(machine.lib)!r}); {HERE}"
    flags, asked = ([flag], "1") if flag else ([], "")
    done = machine.hooked(sys.executable, *flags, "-c", find, NSYSFLOW_ANNOTATE=asked)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not machine.is_hooked


def test_it_keeps_out_of_processes_that_compile_for_inductor(machine: Machine) -> None:
    path = machine.write("torch/_inductor/compile_worker/__main__.py", HERE)
    assert machine.hooked(sys.executable, str(path), "--workers=2").stdout == "False\n"


LOADER = """
import sys, torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    loaders = [
        DataLoader([1, 2], num_workers=1, multiprocessing_context=method)
        for method in ("spawn", "fork")
    ]
    print(*[sum(batch.item() for batch in loader) for loader in loaders])
"""


@pytest.mark.long
def test_workers_of_a_dataloader_leave_nothing(machine: Machine) -> None:
    path = machine.write("train.py", LOADER)
    shutil.rmtree(machine.lib / "torch")  # the real one is in the site-packages
    done = machine.hooked(sys.executable, str(path))
    assert (done.stdout, done.stderr) == ("3 3\n", "")
    assert len(list(machine.run.glob(FILES))) == 1


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without nsysflow or any other package."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


COUNTS = """
import torch
from nsysflow import region, steps
from nsysflow.runtime import auto
from nsysflow.runtime.process import THIS_PROCESS
with region("forward"):
    pass
print(THIS_PROCESS.ranges, len([s for s in steps(range(3))]), THIS_PROCESS.steps)
"""


def test_a_python_without_nsysflow_gets_ours_once(machine: Machine, other_python: str) -> None:
    machine.write("lib/nvtx.py", "push_range = pop_range = mark = lambda *_, **__: None")
    assert machine.plain(other_python, "-c", "import nsysflow").returncode == 1
    done = machine.hooked(other_python, "-c", COUNTS, NSYS_PROFILING_SESSION_ID="1")
    assert (done.stdout, done.stderr) == ("1 3 3\n", "")
    assert machine.saw_torch


@pytest.mark.parametrize(
    ("of_the_program", "said"),
    [
        ("region = 'mine'", "ModuleNotFoundError: No module named 'nsysflow.runtime'"),
        ("raise RuntimeError('another nsysflow')", "RuntimeError: another nsysflow"),
    ],
)
def test_an_nsysflow_of_the_programs_own_is_the_one_it_keeps(
    machine: Machine, other_python: str, of_the_program: str, said: str
) -> None:
    machine.write("lib/nsysflow/__init__.py", of_the_program)
    text = "import torch, nsysflow; print(nsysflow.region)"
    done, alone = (machine.hooked(other_python, "-c", each) for each in (text, "import torch"))
    assert done.stdout == ("mine\n" if "mine" in of_the_program else "")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert (machine.run / NOT_ANNOTATED).read_text() == said


PROGRAMS = {
    "an exception": "def f():\n    raise ValueError('no')\nf()",
    "an exit code": "import torch, sys; sys.exit(3)",
    "no clean end": "import torch, os; print('x', flush=True); os._exit(4)",
    "Ctrl-C": "import torch, os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "a signal": "import torch, os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "the state": """
import sys
print(sys.path, sorted(sys.modules), sorted(sys.path_importer_cache))
print(sys.flags, sys.warnoptions, sys.argv)
""",
    "the state with torch": """
import torch, signal, sys, threading
print(sys.path, [*map(type, sys.meta_path)], vars(torch.__loader__), torch.__spec__.origin)
print([signal.getsignal(number) for number in (2, 15)], threading.active_count())
""",
    "no sitecustomize": "import sitecustomize",
    "torch is looked for": "import importlib.util as u; print(u.find_spec('torch').origin)",
    "torch twice": "import sys, torch; del sys.modules['torch']; import torch; print(torch)",
    "no module": "import torch; from torch import nothing",
    "a pickle": (
        "import pickle, torch\nclass A: pass\n"
        "print(pickle.dumps([A(), torch.__name__]), type(pickle.loads(pickle.dumps(A()))))"
    ),
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_output_and_exit_code_are_those_of_the_program(machine: Machine, text: str) -> None:
    machine.assert_unchanged(*code(text))


@pytest.mark.parametrize(
    "broken",
    ["raise ValueError('broken torch')", "import nothing", "1 +", "import sys; sys.exit(5)"],
)
def test_a_torch_that_cannot_be_imported_fails_as_it_does(machine: Machine, broken: str) -> None:
    machine.write("lib/torch/__init__.py", f"from . import inner\n{broken}")
    machine.write("lib/torch/inner.py", "")
    assert machine.assert_unchanged(*code("import torch")).returncode != 0
    assert not machine.saw_torch


@pytest.mark.parametrize("mere_folder", [False, True])
def test_a_program_without_torch_goes_on(machine: Machine, mere_folder: bool) -> None:
    (machine.lib / "torch" / "__init__.py").unlink()
    if not mere_folder:
        (machine.lib / "torch").rmdir()
    text = (
        "try:\n    import torch; print(torch.__file__, torch.__path__)\n"
        "except ImportError as e:\n    print(repr(e), e.name, e.path)"
    )
    # -S: without the site-packages, in which there is a torch; the hook is called by hand
    by_hand = (sys.executable, "-S", "-c")
    plain = machine.plain(*by_hand, text)
    hooked = machine.hooked(*by_hand, f"import site; site.execsitecustomize()\n{text}")
    assert plain.stdout.startswith("None _Namesp" if mere_folder else 'ModuleNotFoundError("No')
    assert (hooked.stdout, hooked.stderr) == (plain.stdout, "")
    assert machine.is_hooked
    assert not machine.saw_torch


@pytest.mark.parametrize(
    "users",
    [
        "print('mine', __name__, __file__)\nimport sys\nsys.mine = 1",
        "raise ImportError('mine failed')",
        "import nothing",
        "1 +",
    ],
)
def test_the_users_own_sitecustomize_runs_as_it_would(machine: Machine, users: str) -> None:
    machine.write("lib/sitecustomize.py", users)
    program = code("import sys, sitecustomize; print(sys.mine, sitecustomize.__file__)")
    machine.assert_unchanged(*program)
