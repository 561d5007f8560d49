"""Programs with ranges and steps of ours, or with automatic ones, and how to run them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

import nsysflow
from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import COLLECTOR, LOOK, RANK, RUN_FOLDER
from tests.torch_programs import run_with_torch

Seen = TypeVar("Seen")

Tree = list[tuple[str, list[Any]]]
"""Ranges, each a name and the ranges inside."""

LOOP = """
from nsysflow import region, steps
for _ in steps(range(9)):
    with region("forward"):
        pass
"""


PROFILED = {"NSYS_PROFILING_SESSION_ID": "1"}
"""The environment as nsys sets it. Without an nsys, ranges are only counted."""


def environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NSYS", "NVTX", RANK))}
    return kept | {RUN_FOLDER: str(folder)} | variables


Done = subprocess.CompletedProcess[str]


def ended(argv: Sequence[str], folder: Path, env: dict[str, str]) -> Done:
    """What a program in a folder printed, and how it ended."""
    none, out = subprocess.DEVNULL, subprocess.PIPE
    streams: dict[str, Any] = {"stdin": none, "stdout": out, "stderr": out, "text": True}
    return subprocess.run(argv, env=env, cwd=folder, check=False, **streams)


def run(code: str, folder: Path, **variables: str) -> Done:
    return ended([sys.executable, "-c", code], folder, environment(folder, variables))


def run_torch(code: str, folder: Path, **variables: str) -> Done:
    return run_with_torch(code, folder, environment(folder, variables))


def statuses_of(code: str, folder: Path, **variables: str) -> list[ChildStatus]:
    done = run(code, folder, **variables)
    assert done.returncode == 0, done.stderr
    return take_statuses(folder)


def instances(report: Path) -> dict[str, int]:
    """How often each phase ran."""
    phases = nsysflow.analyze(nsysflow.load(report)).phases
    return dict(phases.select("path", "instances").rows())


TRAINS = """
import torch
from nsysflow import region, steps
weight = torch.ones(8, 8)
for _ in steps(range(9)):
    with region("forward"):
        weight = weight @ weight.softmax(0)
"""

ANNOTATED = """
import atexit, json, torch
from nsysflow.runtime.auto import annotate, ranges

class Tree:
    def __init__(self):
        self.top = []
        self.open_lists = [self.top]

    def open(self, name, payload):
        inside = []
        self.open_lists[-1].append([name, inside])
        self.open_lists.append(inside)
        return self.open_lists.pop

tree = Tree()
ranges.find_recorder = lambda collector, domain: tree
annotate(torch)
atexit.register(lambda: print("RANGES", json.dumps(tree.top)))
"""
"""Automatic ranges, on a recorder that prints them at the end."""

SMALL = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
x = torch.randn(2, 4)
"""
"""A model of five modules, and a batch for it."""


def ranges_of(program: str) -> str:
    """The ranges of the small model's `program`, and no looks: `forward generate(token token)`."""
    return _words(_without_looks(tree_of(program)))


def tree_of(program: str) -> Tree:
    """All of its ranges."""
    done = run_profiled(ANNOTATED + SMALL + program)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RANGES "))
    tree: Tree = json.loads(line.removeprefix("RANGES "))
    return tree


def run_profiled(code: str, **variables: str) -> Done:
    """Run code that has torch imported already, as if a profiler were attached."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        return run_with_torch(code, folder, environment(folder, {COLLECTOR: "nsys"} | variables))


def printed(code: str, what: str) -> Any:
    """What an annotated program on small tensors has there at its end, an expression."""
    done = run_profiled(f"{ANNOTATED}{SMALL}{code}\nprint('NOTED', json.dumps({what}))")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("NOTED "))
    return json.loads(line.removeprefix("NOTED "))


def looked_at(kind: str, code: str, of: type[Seen]) -> list[Seen]:
    """What the looks at products note of a kind in a program, which they watch to its end."""
    rows = printed(f"{code}\nassert PRODUCTS._torch", f"SEEN['{kind}']")
    return msgspec.convert(rows, list[of])  # type: ignore[valid-type]


def code_at(lines: Sequence[str], code: str) -> list[str]:
    """The lines of a program that the looks note, as code."""
    source = (ANNOTATED + SMALL + code).splitlines()
    return [source[int(line.rpartition(":")[2]) - 1] for line in lines]


def assert_stops_watching(code: str) -> None:
    """A program, in which looks at products meet an error of their own, runs on without them."""
    ends = "assert PRODUCTS._torch is None and not torch._C._len_torch_dispatch_stack()"
    done = run_profiled(f"{ANNOTATED}{SMALL}{code}\n{ends}")
    assert done.returncode == 0, done.stderr


def _without_looks(tree: Tree) -> Tree:
    return [(name, _without_looks(inside)) for name, inside in tree if name != LOOK]


def _words(tree: list[tuple[str, list[object]]]) -> str:
    return " ".join(name + (f"({_words(inside)})" if inside else "") for name, inside in tree)  # type: ignore[arg-type]
