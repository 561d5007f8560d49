"""A program is the same with our hook as without it."""

import sys

import pytest

from nsysflow.runtime.inject.nsysflow_hook import NOT_ANNOTATED
from tests.runtime.inject.programs import Machine, code

PROGRAMS = {
    "a word": "print('done')",
    "an exception": "def f():\n    raise ValueError('no')\nf()",
    "an exit code": "import torch, sys; sys.exit(3)",
    "no clean end": "import torch, os; print('x', flush=True); os._exit(4)",
    "Ctrl-C": "import torch, os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "a signal": "import torch, os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "handlers": "import torch, signal; print([signal.getsignal(n) for n in (2, 15)])",
    "the path": "import sys; print(sys.path)",
    "the path with torch": "import torch, sys; print(sys.path)",
    "the modules": "import sys; print(sorted(sys.modules))",
    "the caches": "import sys; print(sorted(sys.path_importer_cache))",
    "the flags": "import sys; print(sys.flags, sys.warnoptions, sys.argv)",
    "no sitecustomize": "import sitecustomize",
    "threads": "import torch, threading; print(threading.active_count())",
    "torch is looked for": "import importlib.util as u; print(u.find_spec('torch').origin)",
    "torch's loader": "import torch; print(vars(torch.__loader__), torch.__spec__.origin)",
    "torch twice": "import sys, torch; del sys.modules['torch']; import torch; print(torch)",
    "torch again": "import importlib, torch; print(importlib.reload(torch).__file__)",
    "finders": "import sys, torch; print([*map(type, sys.meta_path)])",
    "no module": "import torch; from torch import nothing",
    "another module": "import nothing",
    "a pickle": (
        "import pickle, torch\nclass A: pass\n"
        "print(pickle.dumps([A(), torch.__name__]), type(pickle.loads(pickle.dumps(A()))))"
    ),
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_output_and_exit_code_are_those_of_the_program(machine: Machine, text: str) -> None:
    plain, hooked = machine.plain(*code(text)), machine.hooked(*code(text))
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    assert machine.is_hooked


@pytest.mark.parametrize(
    "broken",
    ["raise ValueError('broken torch')", "import nothing", "1 +", "import sys; sys.exit(5)"],
)
def test_a_torch_that_cannot_be_imported_fails_as_it_does(machine: Machine, broken: str) -> None:
    machine.write("lib/torch/__init__.py", f"from . import inner\n{broken}")
    machine.write("lib/torch/inner.py", "")
    plain, hooked = machine.plain(*code("import torch")), machine.hooked(*code("import torch"))
    assert plain.returncode != 0
    assert (hooked.returncode, hooked.stderr) == (plain.returncode, plain.stderr)
    assert not machine.saw_torch


def test_a_program_without_torch_goes_on_as_it_would(machine: Machine) -> None:
    text = "try:\n    import torch\nexcept ImportError as e:\n    print(repr(e), e.name, e.path)"
    (machine.lib / "torch" / "__init__.py").unlink()
    (machine.lib / "torch").rmdir()
    # -S: without the site-packages, in which there is a torch; the hook is called by hand
    by_hand = (sys.executable, "-S", "-c")
    plain = machine.plain(*by_hand, text)
    hooked = machine.hooked(*by_hand, f"import site; site.execsitecustomize()\n{text}")
    assert "No module named 'torch'" in plain.stdout
    assert hooked.stdout == plain.stdout
    assert machine.is_hooked
    assert not machine.saw_torch


def test_a_mere_folder_named_torch_is_no_torch(machine: Machine) -> None:
    (machine.lib / "torch" / "__init__.py").unlink()
    by_hand = (sys.executable, "-S", "-c")  # without the site-packages, in which there is a torch
    text = "import torch; print(torch.__file__, torch.__path__)"
    plain = machine.plain(*by_hand, text)
    hooked = machine.hooked(*by_hand, f"import site; site.execsitecustomize(); {text}")
    assert plain.stdout.startswith("None _NamespacePath")
    assert (hooked.stdout, hooked.stderr) == (plain.stdout, "")
    assert not machine.saw_torch


def test_a_run_folder_that_cannot_be_written_does_not_stop_the_program(machine: Machine) -> None:
    machine.run.rmdir()
    done = machine.hooked(*code("import torch; print('done')"))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("nsysflow: cannot save what this process did")
    assert done.stderr.endswith("The program goes on\n")


def test_an_annotation_that_fails_does_not_stop_the_program(machine: Machine) -> None:
    machine.write("lib/nsysflow/__init__.py", "raise RuntimeError('another nsysflow')")
    done = machine.hooked(*code("import torch; print('done')"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (machine.run / NOT_ANNOTATED).read_text() == "RuntimeError: another nsysflow"


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
    plain, hooked = machine.plain(*program), machine.hooked(*program)
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    assert machine.is_hooked
