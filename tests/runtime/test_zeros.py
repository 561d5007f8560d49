"""Factors of products that are mostly zeros: what a look at some steps notes."""

from typing import Any, Final

import pytest

from nsysflow.analysis.observed import SparseProducts
from tests.runtime.programs import assert_stops_watching, code_at, looked_at

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
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

BAD: Final[dict[str, tuple[str, list[Any]]]] = {
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

GOOD: Final[dict[str, str]] = {
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


def noted_of(program: str) -> list[SparseProducts]:
    return looked_at("zeros_in_products", BEGIN + program, SparseProducts)


@pytest.mark.parametrize("name", BAD)
def test_factors_that_are_mostly_zeros_are_noted(name: str) -> None:
    program, expected = BAD[name]
    (seen,) = noted_of(program)
    counts = [seen.steps, seen.calls, seen.learning, [*seen.sizes]]
    assert [*counts, seen.operations, seen.of_zeros] == expected
    assert seen.operations <= seen.of_lines <= seen.of_operations


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_noted_of_other_factors(name: str) -> None:
    assert noted_of(GOOD[name]) == []


def test_the_line_of_the_product_is_noted() -> None:
    program = "def mix(x):\n    return torch.block_diag(*blocks()) @ x\nserves(mix)"
    (seen,) = noted_of(program)
    assert code_at(seen.lines, BEGIN + program) == ["    return torch.block_diag(*blocks()) @ x"]


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    breaks = "PRODUCTS._zeros.__class__._count = None"
    assert_stops_watching(f"{BEGIN}{breaks}\n{BAD['blocks'][0]}")
