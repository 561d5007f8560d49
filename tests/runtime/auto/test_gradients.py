"""Gradients that no optimizer uses: what a look at some steps of a program notes."""

from typing import Any, Final

import pytest

from tests.runtime.programs import ANNOTATED, SMALL, printed, run_profiled

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from nsysflow.runtime.auto.gradients import GRADIENTS
from nsysflow.runtime.regions import SEEN
UNUSED = SEEN['unused_gradients']
class Other(nn.Sequential): pass
class PairLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = other
    def forward(self, one, two):
        return (self.net(one) - self.net(two)).square().mean()
def sgd(*modules): return torch.optim.SGD([p for m in modules for p in m.parameters()], 0.01)
other = Other(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
opt = sgd(net)
def trains(loss, steps=16, clear=lambda: opt.zero_grad(), before=lambda i: None):
    for i in range(steps):
        clear(); loss().backward(); before(i); opt.step()
def plays(detach=True, clear=lambda optimizer, module: optimizer.zero_grad()):
    judge = sgd(other)
    for i in range(20):
        clear(judge, other)
        made = net(x)
        (other(x).mean() - other(made.detach() if detach else made).mean()).backward()
        judge.step()
        clear(opt, net); other(net(x)).mean().backward(); opt.step()
def no_gradients(optimizer, module):
    for p in module.parameters(): p.grad = None
def itself(data):  # an optimizer of its own
    with torch.no_grad():
        for p in other.parameters(): (p.data if data else p).sub_(p.grad)
        if data: no_gradients(None, other)
"""

PAIR: Final = "pair = PairLoss()\ntrains(lambda: pair(net(x), x)"
TEACHER: Final = "(net(x) - other(x)).square().mean()"
ONE_OF_TWO: Final = ["Other", "PairLoss", "PairLoss", [], 76, 76, 2, 4, 2, 2, 0]
HALF: Final = ["Other", "Other", "forward", [], 76, 152, 2, 2, 2, 0, 0]
ALL_BUT_ONE: Final = ["Sequential, Linear", "Net", "forward", [], 48, 60, 2, 2, 2, 0, 0]
BEHIND_ONE: Final = ["Linear", "Sequential", "forward", [], 36, 76, 2, 2, 0, 2, 0]
NET: Final = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))])
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 4)
    def forward(self, x):
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x))
model = Net()
"""

PROGRAMS: Final[dict[str, tuple[str, list[Any]]]] = {
    "a call of two needs the gradient of its input": (f"{PAIR})", [ONE_OF_TWO]),
    "a teacher": (f"trains(lambda: {TEACHER})", [HALF]),
    "a teacher that is frozen": (f"other.requires_grad_(False); trains(lambda: {TEACHER})", []),
    "a teacher without gradients": (
        "def loss():\n    with torch.no_grad(): y = other(x)\n    return (net(x) - y).mean()\n"
        "trains(loss)",
        [],
    ),
    "gradients that the program clears": (
        f"{PAIR}, clear=lambda: (net.zero_grad(), other.zero_grad()))",
        [],
    ),
    "gradients that are clipped": (
        f"{PAIR}, before=lambda i: nn.utils.clip_grad_norm_(other.parameters(), 1e-3))",
        [],
    ),
    "an own optimizer": (f"{PAIR}, before=lambda i: itself(False))", []),
    "an own optimizer that changes data": (f"{PAIR}, before=lambda i: itself(True))", []),
    "an optimizer that steps later": (f"late = sgd(other)\n{PAIR})", []),
    "an optimizer that is made later": (
        f"late = []\n{PAIR}, steps=9, before=lambda i: i == 7 and late.append(sgd(other)))",
        [],
    ),
    "no optimizer of torch": (
        "for _ in range(9):\n    other(x).sum().backward()\n    itself(True)",
        [],
    ),
    "accumulated gradients": (
        f"for i in range(32):\n    {TEACHER}.backward()\n    if i % 2: opt.step(); opt.zero_grad()",
        [[*HALF[:7], 4, 4, 0, 0]],
    ),
    "all but the head": (
        f"{NET}opt = torch.optim.SGD(model.head.parameters(), 0.1)\ntrains(lambda: model(x).sum())",
        [["Linear, Sequential, LayerNorm", "Net", "forward", [], 48, 68, 2, 2, 2, 0, 0]],
    ),
    "behind what trains": ("opt = sgd(net[0])\ntrains(lambda: net(x).sum())", [BEHIND_ONE]),
    "a few steps": (f"{PAIR}, steps=3)", []),
    "a judge": ("plays()", [["Other", "Other", "forward", [], 76, 152, 4, 12, 0, 4, 4]]),
    "a judge that modules clear": (
        "plays(clear=lambda optimizer, module: module.zero_grad())",
        [["Other", "Other", "forward", [], 76, 152, 4, 12, 0, 4, 4]],
    ),
    "a judge with gradients for what it judges": (
        "plays(detach=False)",
        [
            ["Other", "Other", "forward", [], 76, 152, 4, 12, 0, 4, 4],
            ["Sequential", "Sequential", "forward", [], 76, 152, 4, 8, 4, 0, 4],
        ],
    ),
    "a judge that the program clears": ("plays(clear=no_gradients)", []),
    "gradients of two losses that are read": (
        """
both = sgd(other)
for _ in range(16):
    read = []
    for loss in (lambda: net(x).sum(), lambda: other(net(x)).mean()):
        opt.zero_grad(); both.zero_grad(); loss().backward()
        read.append([p.grad.clone() for p in net.parameters()])
    for p, *g in zip(net.parameters(), *read): p.grad = sum(g)
    opt.step(); both.step()
""",
        [],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_with_gradients_that_no_optimizer_uses_are_noted(name: str) -> None:
    program, noted = PROGRAMS[name]
    assert sorted(row for *row, _ in noted_of(program)) == sorted(noted)


def noted_of(program: str) -> Any:
    return printed(f"{BEGIN}{program}\nassert not GRADIENTS._over", "UNUSED")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a call of two needs the gradient of its input", "return (self.net(one) - self.net(two))"),
        ("a teacher", TEACHER),
        ("a judge", "clear(opt, net); other(net(x))"),  # and not where it trains
    ],
)
def test_the_lines_of_calls_whose_gradients_are_for_nothing_are_noted(name: str, line: str) -> None:
    program, _ = PROGRAMS[name]
    ((*_, lines),) = noted_of(program)
    numbers = [int(one.rpartition(":")[2]) for one in lines]
    source = (ANNOTATED + SMALL + BEGIN + program).splitlines()
    assert numbers
    assert all(line in source[number - 1] for number in numbers), lines


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    program = f"GRADIENTS._begin = None\n{PAIR})\nassert GRADIENTS._over and not UNUSED"
    done = run_profiled(ANNOTATED + SMALL + BEGIN + program)
    assert done.returncode == 0, done.stderr
