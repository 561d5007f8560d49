"""Low-rank adapters that are merged at each call: what a look at some steps notes."""

from typing import Any, Final

import pytest

from nsysflow.analysis.observed import MergedAdapter
from tests.runtime.programs import assert_stops_watching, code_at, looked_at

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from torch.nn import functional as F
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.regions import SEEN
class Adapted(nn.Module):
    def __init__(self, use, rank=4, learns=True, frozen=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 128), requires_grad=not frozen)
        self.up = nn.Parameter(torch.randn(64, rank), requires_grad=learns)
        self.down = nn.Parameter(torch.randn(rank, 128), requires_grad=learns)
        self.bias = nn.Parameter(torch.randn(64))
        self.use = use
    def forward(self, x): return self.use(self, x)
x = torch.randn(32, 128)
def trains(use, **more):
    model = Adapted(use, **more)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-4)
    for i in range(16):
        opt.zero_grad(); model(x).sum().backward(); opt.step()
def serves(use, mode=torch.no_grad, **more):
    model = Adapted(use, **more)
    with mode():
        for i in range(16): model(x)
def merged(m, x):
    return F.linear(x, m.weight + 0.5 * (m.up @ m.down), m.bias)
def merged_first(m, x):
    m.kept = m.weight + m.up @ m.down if PRODUCTS._step < 2 else m.kept
    return F.linear(x, m.kept)
def summed(m, x):
    return F.linear(x, torch.addmm(m.weight, m.up, m.down, alpha=0.5))
def from_left(m, x):
    return x @ (m.weight + m.up @ m.down).t()
def branch(m, x):
    return F.linear(x, m.weight) + 0.5 * F.linear(F.linear(x, m.down), m.up)
def twice(m, x):
    weight = m.weight + m.up @ m.down
    return F.linear(x, weight) + F.linear(x, weight)
def normed(m, x):
    weight = m.weight + m.up @ m.down
    return F.linear(x, weight / weight.norm(dim=1, keepdim=True))
def mixed(m, x):
    with torch.autocast('cpu', torch.bfloat16): return merged(m, x)
def position(m, x):
    return (x[:, :4] @ m.down + m.weight[:32]) @ m.weight.t()
def changes(m, x):
    m.up.mul_(0.9)
    return merged(m, x)
"""

MERGE: Final = 2 * 2 * 64 * 4 * 128
USE: Final = 2 * 2 * 32 * 64 * 128
BRANCH: Final = 2 * 2 * 32 * 4 * (64 + 128)
LEARNS: Final = [2, 2, 2, [64, 4, 128], MERGE, USE, BRANCH]
SERVES: Final = [2, 2, 0, *LEARNS[3:]]

BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "it trains": ("trains(merged)", LEARNS),
    "torch.addmm": ("trains(summed)", LEARNS),
    "transposed": ("trains(from_left)", LEARNS),
    "autocast": ("trains(mixed)", LEARNS),
    "used twice": ("trains(twice)", [2, 4, 4, [64, 4, 128], MERGE, 2 * USE, 2 * BRANCH]),
    "it serves": ("serves(merged)", SERVES),
    "inference mode": ("serves(merged, mode=torch.inference_mode)", SERVES),
    "a frozen model": ("serves(merged, learns=False)", SERVES),
}

GOOD: Final[dict[str, str]] = {
    "a branch": "trains(branch)",
    "a weight that learns": "trains(merged, frozen=False)",
    "merged once": "serves(merged_first)",
    "a higher rank": "trains(merged, rank=16)",
    "normalized": "trains(normed)",
    "an embedding of positions": "trains(position)",
    "an adapter that changes in each step": "serves(changes)",
    "a linear layer": "net = nn.Linear(8, 64)\nfor _ in range(16): net(torch.randn(64, 8))",
}


def noted_of(program: str) -> list[MergedAdapter]:
    return looked_at("merged_adapters", BEGIN + program, MergedAdapter)


@pytest.mark.parametrize("name", BAD)
def test_adapters_that_are_merged_at_each_call_are_noted(name: str) -> None:
    program, expected = BAD[name]
    (seen,) = noted_of(program)
    counts = [seen.steps, seen.calls, seen.learning, [*seen.sizes]]
    assert [*counts, seen.operations, seen.used, seen.branch] == expected
    assert seen.operations <= seen.of_lines <= seen.of_operations


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_noted_of_other_sums(name: str) -> None:
    assert noted_of(GOOD[name]) == []


def test_the_line_of_the_adapter_is_noted() -> None:
    (seen,) = noted_of("trains(merged)")
    (code,) = code_at(seen.lines, BEGIN)
    assert "return F.linear(x, m.weight + 0.5" in code


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    breaks = "PRODUCTS._adapters.__class__._merge = None"
    assert_stops_watching(f"{BEGIN}{breaks}\ntrains(merged)")
