"""Products of matrices: what a look at some steps notes, and when it does not look."""

from typing import Any, Final

import msgspec
import pytest

from nsysflow.analysis.observed import OrderedProducts
from tests.runtime.programs import assert_stops_watching, code_at, printed

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
import math, sys
from torch.nn import functional as F
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.regions import SEEN
class Model(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)
        self.mix = mix
    def forward(self, x):
        return self.mix(self.q(x), self.k(x), self.v(x))
ENTERED = []
def watched(torch, see, new=sys.modules["nsysflow.runtime.products"].new_watch):
    ENTERED.append(PRODUCTS._step)
    return new(torch, see)
sys.modules["nsysflow.runtime.products"].new_watch = watched
def heads(x, n=2): return x.unflatten(-1, (n, -1)).transpose(1, 2)
def t(x): return x.transpose(-2, -1)
x = torch.randn(2, 128, 8)
def serves(mix, steps=30, mode=torch.no_grad, x=x):
    global model
    model = Model(mix)
    with mode():
        for _ in range(steps): model(x)
def trains(mix, x=x):
    global model
    model = Model(mix)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for i in range(30):
        opt.zero_grad(); model(x).sum().backward(); opt.step()
def in_place(q, k, v):
    scores = q @ t(k)
    scores *= 0.3
    scores.div_(2)
    return scores @ v
def then(change):
    def mix(q, k, v):
        scores = q @ t(k)
        y = change(scores) @ v
        return y
    return mix
def halved(one):
    one[:, :64].mul_(0.5)
    return one
def later(read):
    def mix(q, k, v):
        scores = q @ t(k)
        y = scores @ v
        return read(scores, y)
    return mix
def kept(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
class Low(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
low = Low()
adjacency, wide, narrow = torch.randn(128, 128), torch.randn(128, 64), torch.randn(64, 8)
class Graph(nn.Module):
    def __init__(self, rows=64, columns=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
    def forward(self, x): return adjacency @ x @ self.weight
def graph(*sizes):
    model = Graph(*sizes)
    for _ in range(30): model(torch.randn(128, model.weight.shape[0]))
"""

ONE: Final = [2, 2, 0, 2, [128, 8, 128, 8], True, 8 * 2 * 128 * 128 * 8, 16 * 128 * 64]
"""Each of two steps has one such product, of two matrices each. The last two are operations."""

LEARNS: Final = [*ONE[:2], 2, *ONE[3:]]
HEADS: Final = [2, 2, 0, 4, [128, 4, 128, 4], True, 8 * 2 * 128 * 128 * 8, 8 * 128 * 64]

BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "it serves": ("serves(lambda q, k, v: (q @ t(k)) @ v)", ONE),
    "it trains": ("trains(lambda q, k, v: (q @ t(k)) @ v)", LEARNS),
    "inference mode": ("serves(lambda q, k, v: q @ t(k) @ v, mode=torch.inference_mode)", ONE),
    "scaled": ("serves(lambda q, k, v: (q @ t(k) / math.sqrt(8) * 2) @ v / 128)", ONE),
    "scaled by a tensor": ("serves(lambda q, k, v: (torch.tensor(2.0) * (q @ t(k))) @ v)", ONE),
    "scaled in place": ("serves(in_place)", ONE),
    "heads": ("serves(lambda q, k, v: heads(q) @ t(heads(k)) @ heads(v))", HEADS),
    "heads that train": (
        "trains(lambda q, k, v: heads(q) @ t(heads(k)) @ heads(v))",
        [*HEADS[:2], 2, *HEADS[3:]],
    ),
    "torch.bmm": ("serves(lambda q, k, v: torch.bmm(torch.bmm(q, t(k)), v))", ONE),
    "torch.einsum": (
        "serves(lambda q, k, v: torch.einsum('bnm,bmd->bnd', torch.einsum('bnd,bmd->bnm', q, k),"
        " v))",
        ONE,
    ),
    "a copy": ("serves(then(lambda one: one.clone()))", ONE),
    "another type": ("serves(then(lambda one: one.double().float()))", ONE),
    "transposed": ("serves(lambda q, k, v: t(k @ t(q)) @ v)", ONE),
    "added to": ("serves(lambda q, k, v: torch.baddbmm(v, q @ t(k), v))", ONE),
    "from the right": (
        "serves(lambda q, k, v: t(v) @ (q @ t(k)))",
        [2, 2, 0, 2, [8, 128, 8, 128], False, *ONE[6:]],
    ),
    "a vector": (
        "serves(lambda q, k, v: (q[0] @ t(k[0])) @ v[0, :, 0])",
        [2, 2, 0, 1, [128, 8, 128, 1], True, 4 * 128 * 128 * 9, 4 * 128 * 8 * 2],
    ),
    "a graph": (
        "graph(64, 8)",
        [2, 2, 2, 1, [128, 128, 64, 8], True, 4 * 128 * 64 * 136, 4 * 128 * 8 * 192],
    ),
}

GOOD: Final[dict[str, str]] = {
    "softmax": "trains(lambda q, k, v: (q @ t(k) / 3).softmax(-1) @ v)",
    "softmax in place": "serves(lambda q, k, v: torch.softmax(s := q @ t(k), -1, out=s) @ v)",
    "heads with softmax": "trains(lambda q, k, v: (heads(q) @ t(heads(k))).softmax(-1) @ heads(v))",
    "fused": "trains(kept)",
    "a mask": "serves(lambda q, k, v: (q @ t(k)).tril() @ v)",
    "a mask in place": "serves(then(lambda one: one.tril_()))",
    "a mask by multiplication": "serves(then(lambda one: one * torch.ones(128, 128).tril()))",
    "a sum": "serves(then(lambda one: one + 1))",
    "a sum in place": "serves(then(lambda one: one.add_(1)))",
    "written to in parts": "serves(then(halved))",
    "an activation": "trains(then(lambda one: one.relu()))",
    "a part": "serves(lambda q, k, v: (q @ t(k))[:, :, :64] @ v[:, :64])",
    "the sum of it": "serves(later(lambda scores, y: y + scores.sum()))",
    "another product of it": "serves(later(lambda scores, y: scores @ y))",
    "the model returns it": "serves(later(lambda scores, y: (y, scores)))",
    "the model returns a view of it": "serves(later(lambda scores, y: {'y': y, 's': [scores.mT]}))",
    "the other order": "trains(lambda q, k, v: q @ (t(k) @ v))",
    "few rows": "serves(lambda q, k, v: (q[:, :4] @ t(k)) @ v)",
    "an adapter": "trains(lambda q, k, v: model.out(q) + F.linear(F.linear(k, low.down.weight),"
    " low.up.weight))",
    "layers": "trains(lambda q, k, v: model.out(model.v(q)))",
    "other heads": "serves(lambda q, k, v: (q @ t(k)).view(2, 4, 128, 32) @ v.view(2, 4, 32, 8))",
    "another graph": "graph(64, 60)",
    "only in one step": "serves(lambda q, k, v: (q @ t(k)) @ v if PRODUCTS._step % 2 else v)",
    "a few steps": "serves(lambda q, k, v: (q @ t(k)) @ v, steps=3)",
    "not at the second look": "serves(lambda q, k, v: (q @ t(k)) @ v if PRODUCTS._step < 9 else v)",
}

BAD_ONE: Final = BAD["it serves"][0]

UNWATCHED: Final[dict[str, str]] = {
    "a window": f"""
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.steps import AT_STEP
def opens(): THIS_PROCESS.window = 'open'
AT_STEP.append(opens)
{BAD_ONE}
""",
    "torch.compile": f"torch.compile(lambda x: x, backend='eager')\n{BAD_ONE}",
    "tracing": """
net = Model(lambda q, k, v: (q @ t(k)) @ v)
for _ in range(30): torch.jit.trace(net, (x,), check_trace=False)
""",
    "TorchScript": "net = torch.jit.script(nn.Linear(8, 8))\nfor _ in range(30): net(x)",
    "another mode": """
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False): serves(lambda q, k, v: (q @ t(k)) @ v)
""",
    "a default device": f"torch.set_default_device('cpu')\n{BAD_ONE}",
    "a transform": """
net = Model(lambda q, k, v: (q @ t(k)) @ v)
for _ in range(30): torch.vmap(net)(torch.randn(3, 2, 128, 8))
""",
    "another kind of tensor": "class Own(torch.Tensor): pass\n"
    "serves(lambda q, k, v: (q @ t(k)) @ v, x=x.as_subclass(Own))",
    "other kinds of weights": """
class Own(nn.Parameter): pass
net = nn.Linear(8, 8)
net.weight = Own(net.weight.data)
for _ in range(30): net(x)
""",
}


def noted_of(program: str, *, looks: bool = True) -> list[OrderedProducts]:
    ends = "assert PRODUCTS._torch and set(ENTERED) <= {2, 3, 10, 11} and PRODUCTS._watch is None"
    noted, entered, modes = printed(
        f"{BEGIN}{program}\n{ends if looks else ''}",
        "[SEEN['product_order'], ENTERED, torch._C._len_torch_dispatch_stack()]",
    )
    assert modes == 0
    assert bool(entered) == looks
    return msgspec.convert(noted, list[OrderedProducts])


@pytest.mark.parametrize("name", BAD)
def test_products_of_three_matrices_in_the_costly_order_are_noted(name: str) -> None:
    program, expected = BAD[name]
    (seen,) = noted_of(program)
    largest = [seen.batch, [*seen.sizes], seen.left_first]
    counts = [seen.steps, seen.calls, seen.learning]
    assert [*counts, *largest, seen.operations, seen.otherwise] == expected
    assert seen.operations <= seen.of_lines <= seen.of_operations


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_noted_of_other_products(name: str) -> None:
    assert noted_of(GOOD[name]) == []


@pytest.mark.parametrize("name", UNWATCHED)
def test_operators_are_not_watched_where_that_could_change_something(name: str) -> None:
    assert noted_of(UNWATCHED[name], looks=False) == []


LINES: Final = """
def scores(q, k):
    return q @ t(k)
trains(lambda q, k, v: scores(q, k) @ v)
"""


def test_the_lines_that_compute_them_are_noted() -> None:
    (seen,) = noted_of(LINES)
    assert code_at(seen.lines, BEGIN + LINES) == LINES.splitlines()[-2:]


RUNS: Final = """
from torch.utils.checkpoint import checkpoint
class Own(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(a): return a.exp()
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]
class Net(nn.Module):
    def __init__(self, run, *layers):
        super().__init__()
        self.run, self.layers = run, nn.Sequential(*layers)
    def forward(self, x): return self.run(self.layers, x)
def plain(layers, x): return layers(x)
def mixed(layers, x):
    with torch.autocast('cpu', torch.bfloat16): return layers(x).float()
def jagged(layers, x):
    rows = torch.nested.nested_tensor([x[0, :5], x[1, :7]], layout=torch.jagged)
    return layers(rows).to_padded_tensor(0.0)
def transformed(layers, x):
    return torch.vmap(torch.func.grad(lambda y: Own.apply(layers(y)).sum()))(x) + layers(x)
def branched(layers, x):
    return torch.cond(torch.tensor(True), lambda y: y.sin(), lambda y: y.cos(), (layers(x),))
def runs(run, *layers):
    torch.manual_seed(1)
    net = Net(run, *layers)
    opt = torch.optim.Adam(net.parameters())
    for _ in range(14):
        opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); opt.step()
    return [loss.item(), *(p.sum().item() for p in net.parameters())]
"""

RESULTS: Final[dict[str, str]] = {
    "a transformer": "plain, nn.Conv1d(128, 128, 3, padding=1),"
    " nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)",
    "dropout that runs again": "lambda layers, x: checkpoint(layers, x, use_reentrant=False),"
    " nn.Linear(8, 8), nn.Dropout(0.5)",
    "autocast": "mixed, nn.Linear(8, 8), nn.LayerNorm(8)",
    "nested tensors": "jagged, nn.Linear(8, 8)",
    "transforms": "transformed, nn.Linear(8, 8)",
    "operators of a higher order": "branched, nn.Linear(8, 8)",
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_the_same_as_without_looks(name: str) -> None:
    looks, none = (
        printed(f"{BEGIN}{first}\n{RUNS}\nran = runs({RESULTS[name]})", "[ran, bool(ENTERED)]")
        for first in ("", "PRODUCTS.stop()")
    )
    assert looks[0] == none[0]
    assert looks[1] is (name != "operators of a higher order")  # torch.cond calls torch.compile
    assert none[1] is False


@pytest.mark.parametrize("breaks", ["PRODUCTS._operator", "PRODUCTS._returned"])
def test_an_error_of_ours_does_not_reach_the_program(breaks: str) -> None:
    assert_stops_watching(f"{BEGIN}{breaks} = None\n{BAD_ONE}")


def test_an_error_of_the_program_ends_the_watch() -> None:
    program = """
def mix(q, k, v):
    if PRODUCTS.looking: raise KeyError
    return (q @ t(k)) @ v
model, failed = Model(mix), 0
for _ in range(30):
    try: model(x)
    except KeyError: failed += 1
assert failed
"""
    assert noted_of(program) == []


def test_torch_compile_within_a_call_ends_the_watch() -> None:
    program = """
def mix(q, k, v):
    if PRODUCTS.looking: torch.compile(lambda x: x, backend='eager')(q)
    return (q @ t(k)) @ v
serves(mix)
assert ENTERED == [2]
"""
    assert_stops_watching(BEGIN + program)


def test_no_memory_is_kept_longer() -> None:
    program = """
import weakref
class Kept(nn.Linear):
    def forward(self, x):
        y = x @ t(x)
        ref = weakref.ref(y)
        z = y @ x
        del y
        GONE.append(ref() is None)
        return z
GONE, net = [], Kept(8, 8)
with torch.no_grad():
    for _ in range(14): net(x)
assert all(GONE) and len(GONE) == 14, GONE
"""
    noted_of(program)
