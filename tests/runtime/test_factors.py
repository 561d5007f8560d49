"""Factors of products, mostly zeros or with a merged adapter: what a look at some steps notes."""

from typing import Any, Final

import pytest

from nsysflow.analysis.observed import MergedAdapter, SparseProducts
from tests.runtime.programs import assert_stops_watching, code_at, looked_at

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

GRAPH_BEGIN: Final = """
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.regions import SEEN
torch.set_num_threads(1)
class Graph(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.inner, self.mix = nn.Linear(8, 8), mix
    def forward(self, x, *more): return self.mix(self.inner(x), *more)
def serves(mix, *more, rows=512, steps=16, mode=torch.no_grad):
    global model
    model = Graph(mix)
    with mode():
        for i in range(steps):
            model(torch.randn(rows, 8), *(one(i) if callable(one) else one for one in more))
def trains(mix, *more):
    global model
    model = Graph(mix)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for i in range(16):
        opt.zero_grad(); model(torch.randn(512, 8), *more).sum().backward(); opt.step()
def blocks(count=8): return [torch.rand(512 // count, 512 // count) for _ in range(count)]
def sparse(share, rows=512, columns=512):
    return (torch.rand(rows, columns) > share).float()
diagonal = torch.block_diag(*blocks())
mask = torch.ones(512, 512).tril().triu(-8)
weight = nn.Parameter(torch.randn(512, 512))
"""

OPERATIONS: Final = 2 * 2 * 512 * 512 * 8
OF_ZEROS: Final = OPERATIONS * 7 // 8
ONE: Final = [2, 2, 0, [512, 512], OPERATIONS, OF_ZEROS]
"""In each of two steps a product has seven of eight blocks of zeros. The last are operations."""

GRAPH_BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "blocks": ("serves(lambda x: torch.block_diag(*blocks()) @ x)", ONE),
    "it trains": ("trains(lambda x: torch.block_diag(*blocks()) @ x)", [2, 2, 2, *ONE[3:]]),
    "given to the model": ("serves(lambda x, a: a @ x, diagonal)", ONE),
    "new in each step": ("serves(lambda x, a: a @ x, lambda i: diagonal * i)", ONE),
    "from the right": ("serves(lambda x, a: x.T @ a, diagonal)", ONE),
    "half": ("serves(lambda x, a: a.bfloat16() @ x.bfloat16(), diagonal)", ONE),
    "inference mode": ("serves(lambda x, a: a @ x, diagonal, mode=torch.inference_mode)", ONE),
    "divided by degrees": ("serves(lambda x, a: (a / a.sum(1, keepdim=True)) @ x, diagonal)", ONE),
    "one for a batch": (
        "serves(lambda x, a: torch.bmm(a.expand(3, -1, -1), x.expand(3, -1, -1)), diagonal)",
        [2, 2, 0, [512, 512], 3 * OPERATIONS, 3 * OF_ZEROS],
    ),
    "several layers": (
        "serves(lambda x, a: [x := a @ x for _ in range(3)][-1], diagonal)",
        [2, 6, 0, [512, 512], 3 * OPERATIONS, 3 * OF_ZEROS],
    ),
}

GRAPH_GOOD: Final[dict[str, str]] = {
    "a dense graph": "serves(lambda x, a: a @ x, sparse(0.6))",
    "few blocks": "serves(lambda x: torch.block_diag(*blocks(2)) @ x)",
    "a small graph": "serves(lambda x, a: a @ x, sparse(0.9, 256, 256), rows=256)",
    "dense in a step": "serves(lambda x, a: a @ x, lambda i: diagonal + (i in (2, 3, 11)))",
    "a sliding mask": "serves(lambda x: ((x @ x.T) * mask) @ x)",
    "a sliding mask before a softmax": "serves(lambda x: "
    "(x @ x.T).masked_fill(mask == 0, -1e9).softmax(-1) @ x)",
    "a causal mask": "serves(lambda x: ((x @ x.T).tril()) @ x)",
    "a causal mean": "serves(lambda x, a: (a / a.sum(1, keepdim=True)) @ x,"
    " torch.ones(512, 512).tril())",
    "an activation": "serves(lambda x: (x @ x.T).relu().sub(9).relu() @ x)",
    "pruned weights": "serves(lambda x: (weight * mask) @ x)",
    "weights": "with torch.no_grad(): weight.mul_(mask)\nserves(lambda x: weight @ x)",
    "images": "serves(lambda x, a: a @ torch.ones(784, 8), sparse(0.81, 512, 784))",
    "features that learn": "serves(lambda x, a: a @ x, diagonal.requires_grad_(),"
    " mode=torch.enable_grad)",
    "a convolution as a product": "serves(lambda x: torch.ones(8, 27) @"
    " nn.functional.unfold(x.view(1, 1, 64, 64).expand(1, 3, -1, -1), 3)[0])",
    "a sparse matrix": "serves(lambda x, a: torch.sparse.mm(a, x), diagonal.to_sparse())",
    "blocks by torch.bmm": "serves(lambda x: torch.bmm(torch.stack(blocks()), x.view(8, 64, 8)))",
    "a few steps": "serves(lambda x, a: a @ x, diagonal, steps=3)",
}


ADAPTER_BEGIN: Final = """
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

ADAPTER_BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "it trains": ("trains(merged)", LEARNS),
    "torch.addmm": ("trains(summed)", LEARNS),
    "transposed": ("trains(from_left)", LEARNS),
    "autocast": ("trains(mixed)", LEARNS),
    "used twice": ("trains(twice)", [2, 4, 4, [64, 4, 128], MERGE, 2 * USE, 2 * BRANCH]),
    "it serves": ("serves(merged)", SERVES),
    "inference mode": ("serves(merged, mode=torch.inference_mode)", SERVES),
    "a frozen model": ("serves(merged, learns=False)", SERVES),
}

ADAPTER_GOOD: Final[dict[str, str]] = {
    "a branch": "trains(branch)",
    "a weight that learns": "trains(merged, frozen=False)",
    "merged once": "serves(merged_first)",
    "a higher rank": "trains(merged, rank=16)",
    "normalized": "trains(normed)",
    "an embedding of positions": "trains(position)",
    "an adapter that changes in each step": "serves(changes)",
    "a linear layer": "net = nn.Linear(8, 64)\nfor _ in range(16): net(torch.randn(64, 8))",
}


COUNTS: Final = ("steps", "calls", "learning", "sizes", "operations")
ZEROS: Final = "zeros_in_products", GRAPH_BEGIN, SparseProducts, (*COUNTS, "of_zeros")
ADAPTERS: Final = "merged_adapters", ADAPTER_BEGIN, MergedAdapter, (*COUNTS, "used", "branch")
"""The key of the list, the programs, what it has, and what of that is compared."""

Look = tuple[str, str, type[SparseProducts] | type[MergedAdapter], tuple[str, ...]]


def noted_of(look: Look, program: str) -> list[Any]:
    kind, begin, of, _ = look
    return looked_at(kind, begin + program, of)


@pytest.mark.parametrize(
    ("look", "program", "expected"),
    [
        *(pytest.param(ZEROS, *case, id=name) for name, case in GRAPH_BAD.items()),
        *(pytest.param(ADAPTERS, *case, id=name) for name, case in ADAPTER_BAD.items()),
    ],
)
def test_such_factors_are_noted(look: Look, program: str, expected: list[Any]) -> None:
    (seen,) = noted_of(look, program)
    values = [getattr(seen, name) for name in look[3]]
    assert [[*value] if isinstance(value, tuple) else value for value in values] == expected
    assert seen.operations <= seen.of_lines <= seen.of_operations


@pytest.mark.parametrize(
    ("look", "program"),
    [
        *(pytest.param(ZEROS, program, id=name) for name, program in GRAPH_GOOD.items()),
        *(pytest.param(ADAPTERS, program, id=name) for name, program in ADAPTER_GOOD.items()),
    ],
)
def test_nothing_is_noted_of_other_factors(look: Look, program: str) -> None:
    assert noted_of(look, program) == []


MIX: Final = "def mix(x):\n    return torch.block_diag(*blocks()) @ x\nserves(mix)"


@pytest.mark.parametrize(
    ("look", "program", "code"),
    [
        (ZEROS, MIX, "return torch.block_diag(*blocks()) @ x"),
        (
            ADAPTERS,
            "trains(merged)",
            "return F.linear(x, m.weight + 0.5 * (m.up @ m.down), m.bias)",
        ),
    ],
    ids=["zeros", "adapters"],
)
def test_the_line_is_noted(look: Look, program: str, code: str) -> None:
    (seen,) = noted_of(look, program)
    assert [line.strip() for line in code_at(seen.lines, look[1] + program)] == [code]


@pytest.mark.parametrize(
    ("look", "breaks", "program"),
    [
        (ZEROS, "PRODUCTS._zeros.__class__._counted", MIX),
        (ADAPTERS, "PRODUCTS._adapters.__class__._merge", "trains(merged)"),
    ],
    ids=["zeros", "adapters"],
)
def test_an_error_of_ours_does_not_reach_the_program(look: Look, breaks: str, program: str) -> None:
    assert_stops_watching(f"{look[1]}{breaks} = None\n{program}")
