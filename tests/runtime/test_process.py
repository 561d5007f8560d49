"""The status file says what a process did, however it ended, in any Python that we support."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import nsysflow.runtime
from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR, RANK, RUN_FOLDER
from tests.runtime.programs import LOOP, PROFILED, run, statuses_of


def test_a_status_says_what_the_program_did(tmp_path: Path) -> None:
    asked = {CAPTURE: "1:2:3", RANK: "4"} | PROFILED
    (status,) = statuses_of(LOOP, tmp_path, **asked)
    assert (status.steps, status.window, status.rank, status.gpu) == (6, "closed", 4, None)
    # step, data and forward of each step; after the window only the body
    assert status.ranges == 3 * 6 + 3
    assert set(status.versions) == {"python", "nvtx"}
    assert (status.unprofiled_step_ns or 0) > 0


def test_without_a_profiler_or_any_step_there_is_no_status(tmp_path: Path) -> None:
    assert statuses_of(LOOP, tmp_path) == []
    assert statuses_of("import nsysflow", tmp_path, **PROFILED) == []


def test_a_program_that_fails_inside_the_window_leaves_a_status(tmp_path: Path) -> None:
    code = LOOP.replace("pass", "raise SystemExit(5)").replace("(9)", "(9), wait=0, warmup=0")
    assert run(code, tmp_path, **PROFILED).returncode == 5
    (status,) = take_statuses(tmp_path)
    assert (status.steps, status.captured, status.window) == (1, 1, "open")
    assert status.at_end


@pytest.mark.parametrize("folder", ["gone", "a file"])
def test_an_unusable_folder_does_not_stop_the_program(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").touch()
    unusable = {RUN_FOLDER: str(tmp_path / folder)} | PROFILED
    done = run(f"{LOOP}print('trained')", tmp_path, **unusable, **{CAPTURE: "1:2:3"})
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()  # one for four attempts
    assert line.startswith("nsysflow: cannot save what this process did")


ENDS = ["import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
"""Ways to end a program without Python's exit handlers."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("at", "window", "steps"), [(0, "never", 0), (4, "open", 3)])
def test_a_program_killed_before_or_in_its_window_has_reported_what_it_knew(
    tmp_path: Path, end: str, at: int, window: str, steps: int
) -> None:
    code = LOOP.replace("for _", "for i").replace("pass", f"if i == {at}:\n            {end}")
    run(code, tmp_path, **PROFILED, **{CAPTURE: "1:2:3"})
    (status,) = take_statuses(tmp_path)
    # as of when the window opened; the two steps that followed are not counted
    assert (status.window, status.steps, status.captured) == (window, steps, 0)
    assert not status.at_end
    assert (status.unprofiled_step_ns is not None) == (window == "open")


FORKS = """
import os, sys
child = os.fork()
if child == 0: sys.exit()
os.waitpid(child, 0)
print(os.getpid())
"""


def test_a_forked_worker_does_not_write_its_parents_status(tmp_path: Path) -> None:
    done = run(LOOP + FORKS, tmp_path, **PROFILED)
    assert [str(status.pid) for status in take_statuses(tmp_path)] == done.stdout.split()


TORCH = """
from types import SimpleNamespace
__version__ = "9.9"
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(is_initialized=lambda: False)
autograd = SimpleNamespace(_profiler_enabled=lambda: True)
"""
"""A torch whose profiler records already, so that ours is not started."""


def test_torch_is_in_the_status_although_only_the_window_imports_it(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    records_nothing = "from contextlib import nullcontext as record_function"
    (tmp_path / "torch/profiler.py").write_text(records_nothing)
    code = f"{LOOP}import os; os._exit(0)"
    (status,) = statuses_of(code, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "0:0:20"})
    assert (status.window, status.at_end) == ("open", False)
    assert status.versions["torch"] == "9.9"


RUNTIME: Final = Path(nsysflow.runtime.__file__).parent
FILES: Final = sorted(RUNTIME.rglob("*.py"))

NEWER: Final = frozenset(
    {"StrEnum", "Self", "ParamSpec", "TypeAlias", "TypeGuard", "override", "kw_only", "slots"}
    | {"strict", "pairwise", "orig_argv", "aclosing", "chdir", "batched", "NoneType", "UnionType"}
    | {"total", "bit_count", "co_qualname"}
)
"""Names and keywords that 3.9 does not have, of those that one would use here."""


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.alias | ast.keyword):
            yield str(node.name if isinstance(node, ast.alias) else node.arg)
        elif isinstance(node, ast.Attribute):
            yield node.attr


def is_union_of_types(node: ast.AST) -> bool:
    """`A | B` or `A | None`, where `A` and `B` look like classes."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    return is_type(node.left) and is_type(node.right)


def is_type(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id[0].isupper() and not node.id.isupper()
    return isinstance(node, ast.Constant) and node.value is None


def evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that run; annotations do not where the file postpones them."""
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    )
    annotations = (
        getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")
    )
    skipped = {inner for each in annotations if postponed and each for inner in ast.walk(each)}
    return (node for node in ast.walk(tree) if node not in skipped)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(RUNTIME)))
def test_a_file_of_the_runtime_uses_nothing_newer_than_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
    assert NEWER.isdisjoint(names_in(tree))
    assert [ast.unparse(node) for node in evaluated(tree) if is_union_of_types(node)] == []
