"""Programs without any range of their own, run with and without automatic ones."""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from nsysflow.runtime.protocol import COLLECTOR
from tests.runtime.programs import environment
from tests.torch_programs import run_with_torch

ANNOTATED = """
import atexit, json, torch
from nsysflow.runtime.auto import annotate, steps

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
steps.find_recorder = lambda collector, domain: tree
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
    """The ranges of the small model's `program`: `forward generate(token token)`."""
    done = run(ANNOTATED + SMALL + program)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RANGES "))
    return _words(json.loads(line.removeprefix("RANGES ")))


def run(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run code that has torch imported already, as if a profiler were attached."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        return run_with_torch(code, folder, environment(folder, {COLLECTOR: "nsys"} | variables))


def _words(tree: list[tuple[str, list[object]]]) -> str:
    return " ".join(name + (f"({_words(inside)})" if inside else "") for name, inside in tree)  # type: ignore[arg-type]
