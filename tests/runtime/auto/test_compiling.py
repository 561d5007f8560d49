"""torch.compile makes the same graphs with automatic ranges as without them."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nsysflow.runtime.protocol import COLLECTOR
from tests.runtime.programs import ANNOTATED, ended, environment

pytestmark = pytest.mark.long

WAYS = {
    "function": "torch.compile(lambda x: net(x), backend=backend, fullgraph=True), opt.step",
    "in place": "[net.compile(backend=backend), net][1], opt.step",
    "function with step": "net, torch.compile(lambda: opt.step(), backend=backend)",
    "hooks": "torch.compile(hooked(net), backend=backend), opt.step",
}
"""How programs compile: what is called in place of the model, and of the optimizer's step."""

COMPILED = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))
def hooked(net):
    net.register_forward_hook(lambda module, args, out: out * 1)
    return net
backend = "aot_eager"
def graphs(make):
    global net, opt
    torch._dynamo.reset(); counters.clear(); torch.manual_seed(0)
    net = nn.Sequential(Block(), Block())
    opt = torch.optim.SGD(net.parameters(), 0.1)
    model, step = eval(make)
    for _ in range(3):
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward(); step(); opt.zero_grad()
    counted = {key: dict(counters[key]) for key in ("stats", "graph_break", "recompiles", "frames")}
    return loss.item(), counted
"""


def run_file(code: str, folder: Path) -> str:
    """What a program prints that is a file, as Dynamo wants it."""
    file = folder / "program.py"
    file.write_text(code)
    done = ended([sys.executable, str(file)], folder, environment(folder, {COLLECTOR: "nsys"}))
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def graphs(folder: Path, prelude: str) -> dict[str, Any]:
    """Per way, the loss and what Dynamo counted."""
    counted = f"{{way: graphs(make) for way, make in {WAYS}.items()}}"
    said = run_file(f"{prelude}{COMPILED}\nprint(json.dumps({counted}))", folder)
    found: dict[str, Any] = json.loads(said.partition("RANGES")[0])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.parametrize("way", WAYS)
def test_graphs_breaks_recompiles_and_results_are_the_same(folder: Path, way: str) -> None:
    annotated, plain = graphs(folder, ANNOTATED)[way], graphs(folder, "")[way]
    assert annotated == plain
    assert plain[1]["stats"]["unique_graphs"] > 0


def test_compiling_is_a_phase_and_its_own_runs_of_the_engine_are_none(folder: Path) -> None:
    program = """
import torch
net = torch.nn.Linear(4, 4)
model = torch.compile(net, backend="aot_eager")
torch._dynamo.reset()
for _ in range(2): model(torch.randn(2, 4)).sum().backward()
"""
    tree = json.loads(run_file(ANNOTATED + program, folder).partition("RANGES ")[2])
    assert [(name, {inner for inner, _ in inside}) for name, inside in tree if name != "call"] == [
        ("forward", {"compile"}),
        ("backward", {"compile"}),
        ("forward", set()),
        ("backward", set()),
    ]
