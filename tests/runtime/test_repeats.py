"""Modules that are called again with the same input: what a look at some steps notes."""

from typing import Any, Final

import pytest

from tests.runtime.programs import ANNOTATED, SMALL, printed, run_profiled

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from nsysflow.runtime.regions import SEEN
from nsysflow.runtime.repeats import REPEATS
from torch.utils.checkpoint import checkpoint
class Encoder(nn.Module):
    def __init__(self, *more):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), *more, nn.Linear(8, 4))
    def forward(self, x, *others, **named): return self.net(x)
class Stateful(Encoder):
    count = 0
    def forward(self, x):
        self.count = self.count + 1
        return super().forward(x)
class Both(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.actor = encoder, nn.Linear(4, 2)
    def policy(self, x): return self.actor(self.encoder(x))
    def value(self, x): return self.encoder(x).mean()
    def forward(self, x): return self.policy(x).sum() + self.value(x)
both = Both(Encoder())
def trains(loss, model=both, steps=16, new=lambda: torch.randn(2, 4)):
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        opt.zero_grad(); loss(new()).backward(); opt.step()
def twice(model): trains(lambda x: (model(x) + model(x)).sum(), model)
def changed(x):
    loss = both.value(x).detach()
    return both.value(x.add_(1)) + loss
def written(x):
    loss = both.value(x).detach()
    for p in both.parameters(): p.data = p.data * 0.9
    return both.value(x) + loss
def without(x):
    with torch.no_grad(): target = both.value(x)
    return both.value(x) - target
def back(x):
    both.value(x).backward()
    return both.value(x)
def freed(x):
    made = [both.value(torch.full((2, 4), 1.0 + i)) for i in range(3)]
    return sum(made) + both.actor(x).sum()
def external(x):
    return both.value(external.memory) + both.value(external.memory)
"""

ROW: Final = ["Encoder", "Encoder", "forward", 76, 86, 2, 4, 2, 2]
WITHIN: Final = ["Encoder", "Both", "forward", 76, 86, 2, 4, 2, 2]
INNER: Final = ["Sequential", "Encoder", "forward", 76, 76, 2, 4, 2, 2]
PPO: Final = "trains(lambda x: both.policy(x).sum() + both.value(x))"

PROGRAMS: Final[dict[str, tuple[str, list[Any]]]] = {
    "two methods": (PPO, [ROW]),
    "within a model": ("trains(both)", [WITHIN]),
    "the whole model": ("twice(both.encoder)", [[*ROW[:4], 76, *ROW[5:]]]),
    "three times": (
        "trains(lambda x: sum(both.value(x) for _ in range(3)))",
        [["Encoder", "Encoder", "forward", 76, 76, 2, 6, 4, 4]],
    ),
    "parts of a tensor": (
        "trains(lambda x: both.value(x[:1]) + both.value(x[:1]))",
        [[*ROW[:4], 76, *ROW[5:]]],
    ),
    "numbers and lists": (
        "net = both.encoder\ntrains(lambda x: (net(x, [x, 1], a=2) + net(x, [x, 1], a=2)).sum())",
        [[*ROW[:4], 76, *ROW[5:]]],
    ),
    "other numbers, which the module inside does not get": (
        "net = both.encoder\ntrains(lambda x: (net(x, a=1) + net(x, a=2)).sum())",
        [INNER],
    ),
    "other objects, likewise": (
        "net = both.encoder\ntrains(lambda x: (net(x, print) + net(x, print)).sum())",
        [INNER],
    ),
    "gradients for other inputs": (
        "def loss(x):\n    x.requires_grad_()\n"
        "    (g,) = torch.autograd.grad(both.value(x), x, create_graph=True)\n"
        "    return g.square().sum() + both.value(x)\ntrains(loss)",
        [[*ROW[:4], 76, *ROW[5:]]],
    ),
    "no optimizer": (
        "for _ in range(16):\n    x = torch.randn(2, 4)\n    net(x)\n    both(x)",
        [[*WITHIN[:4], 162, *WITHIN[5:]]],
    ),
    "once a step": ("x = torch.ones(2, 4)\ntrains(both.value, new=lambda: x)", []),
    "a few steps": (PPO.replace("))", "), steps=4)"), []),
    "input that changes": ("trains(changed)", []),
    "weights that change": ("trains(written)", []),
    "one without gradients": ("trains(without)", []),
    "a backward pass between": ("trains(back)", []),
    "memory that is used again": ("trains(freed)", []),
    "memory of another library": (
        "import numpy; external.memory = torch.from_numpy(numpy.ones((2, 4), 'f'))\n"
        "trains(external)",
        [],
    ),
    "dropout": ("twice(Encoder(nn.Dropout(0.5)))", []),
    "dropout that is off": (
        "twice(Encoder(nn.Dropout(0.5)).eval())",
        [[*ROW[:2], "eval", 76, 76, *ROW[5:]]],
    ),
    "batch norm": ("twice(Encoder(nn.BatchNorm1d(8)))", []),
    "a state of its own": ("twice(Stateful())", []),
    "a checkpoint": (
        "trains(lambda x: checkpoint(both.encoder, x.requires_grad_(), use_reentrant=False).sum())",
        [],
    ),
    "an older checkpoint": (
        "trains(lambda x: checkpoint(both.encoder, x.requires_grad_(), use_reentrant=True).sum())",
        [],
    ),
    "compiled": (
        "net = torch.compile(both.encoder, backend='eager'); twice(net)",
        [[*ROW[:4], 76, *ROW[5:]]],
    ),
    "inference mode": (
        "with torch.inference_mode():\n"
        "    for _ in range(16):\n        x = torch.randn(2, 4)\n        net(x)\n        both(x)",
        [],
    ),
}


def noted_of(program: str) -> Any:
    return printed(f"{BEGIN}{program}\nassert REPEATS._torch", "SEEN['repeated_calls']")


@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_that_are_called_again_with_the_same_input_are_noted(name: str) -> None:
    program, noted = PROGRAMS[name]
    assert [[*row[:3], *row[4:-2]] for row in noted_of(program)] == noted


def test_the_lines_of_the_calls_and_where_their_ways_part_are_noted() -> None:
    ((_, _, _, [place], *_, lines, ways),) = noted_of(PROGRAMS["within a model"][0])
    source = (ANNOTATED + SMALL + BEGIN).splitlines()
    numbers = [int(line.rpartition(":")[2]) for line in lines]
    assert [source[number - 1].split()[1] for number in sorted(numbers)] == [
        "policy(self,",
        "value(self,",
    ]
    assert sorted(ways) == sorted(lines)
    assert "def forward(self, x, *others" in source[int(place.rpartition("-")[2]) - 1]


def test_a_module_of_torchs_is_where_it_is_called() -> None:
    program = "both.encoder = both.encoder.net\ndef run(x): return both.encoder(x).sum()\n"
    program += "trains(lambda x:\n    run(x)\n    + run(x))"
    ((name, _, _, places, *_, lines, ways),) = noted_of(program)
    source = (ANNOTATED + SMALL + BEGIN + program).splitlines()
    assert (name, places, len(lines), len(ways)) == ("Sequential", [], 1, 2)
    assert "def run(x)" in source[int(lines[0].rpartition(":")[2]) - 1]


def test_no_tensor_lives_longer() -> None:
    program = """
import weakref
dead = []
def loss(x):
    out = both(x)
    dead.append(weakref.ref(x))
    return out
trains(loss)
dead.pop()
assert not any(ref() is not None for ref in dead)
"""
    assert len(noted_of(program)) == 1


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    program = f"REPEATS._compares = None\n{PPO}\nassert REPEATS._torch is None"
    done = run_profiled(ANNOTATED + SMALL + BEGIN + program)
    assert done.returncode == 0, done.stderr
