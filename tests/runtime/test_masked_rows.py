"""Rows that are computed and then multiplied by zero: what a look at some steps notes."""

from typing import Any, Final

import pytest

from nsysflow.analysis.observed import MaskedModule
from tests.runtime.programs import assert_stops_watching, code_at, looked_at

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.regions import SEEN
class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
    def forward(self, x): return self.down(self.up(x).relu())
class Drop(nn.Module):
    def forward(self, x): return x * kept(3, len(x))
class Model(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.first, self.branch, self.drop = nn.Linear(32, 32), Branch(), Drop()
        self.experts = nn.ModuleList([Branch() for _ in range(4)])
        self.norm, self.gain = nn.LayerNorm(32), nn.Parameter(torch.ones(32))
        self.mix = mix
    def forward(self, x): return self.mix(self, self.first(x))
def kept(dims, rows=8, step=0):
    one = torch.zeros(rows)
    one[torch.randperm(rows)[:rows // 4 * 3]] = 4 / 3
    return one.view(rows, *[1] * (dims - 1))
x = torch.randn(8, 20, 32)
def trains(mix, x=x, steps=16):
    model = Model(mix)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        opt.zero_grad(); model(x).sum().backward(); opt.step()
def serves(mix, x=x, mode=torch.no_grad):
    model = Model(mix)
    with mode():
        for _ in range(16): model(x)
def dropped(m, x):
    scale = kept(3)
    return x + m.branch(x) * scale
def dropped_later(m, x):
    y = m.branch(x)
    return x + y * kept(3)
def in_place(m, x): return x + m.branch(x).mul_(kept(3))
def drop_path(m, x): return x + m.drop(m.branch(x))
def scaled(m, x): return x + (m.branch(x) * 0.5 * m.gain).double() * kept(3)
def experts(m, x):
    flat = x.flatten(0, 1)
    chosen = m.first(flat)[:, :4].softmax(-1)
    chosen = chosen * (chosen == chosen.amax(-1, keepdim=True))
    return sum(chosen[:, i : i + 1] * one(flat) for i, one in enumerate(m.experts))
def masked(m, x):
    mask = (torch.arange(20) < 15).float()[None, :, None]
    return m.branch(x) * mask.expand(8, -1, -1)
def channels_first(m, x):
    mask = (torch.arange(20) < 10).float().expand(8, 1, 20)
    return m.turned(x) * mask
class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = Branch()
    def forward(self, x): return self.branch(x).transpose(1, 2)
def turned(m, x):
    if not hasattr(m, 'turned'): m.turned = Turned()
    return channels_first(m, x)
def gated(m, x):
    y = m.branch(x)
    return y * (y.mean(-1, keepdim=True) > 0)
def whole(m, x): return m.branch(x) * torch.zeros(())
def features(m, x): return m.branch(x) * (torch.arange(32) < 8)
def ones(m, x): return m.branch(x) * torch.ones(8, 1, 1)
def few(m, x):
    scale = torch.ones(8, 1, 1)
    scale[0] = 0
    return m.branch(x) * scale
def chosen_first(m, x):
    rows = torch.arange(6)
    return x.index_add(0, rows, m.branch(x[rows]) * torch.ones(6, 1, 1))
def residual(m, x): return (x + m.branch(x)) * kept(3)
def product(m, x): return (x @ m.gain.diag()) * kept(3)
def read(m, x):
    y = m.branch(x)
    return y * kept(3) + y.tanh()
def returned(m, x):
    y = m.branch(x)
    return Outputs(y * kept(3), y)
class Outputs:
    def __init__(self, masked, whole): self.masked, self.whole = masked, whole
    def sum(self): return self.masked.sum()
def composed(m, x):
    y, mask = m.branch(x), kept(3)
    return y * mask, y * (1 - mask)
def once(m, x): return m.branch(x) * (kept(3) if PRODUCTS._step in (2, 10) else torch.ones(8, 1, 1))
"""

OF_BRANCH: Final = 2 * 2 * 2 * 8 * 20 * 32 * 64
"""The operations of a branch in two steps."""

ONE: Final[list[Any]] = ["Branch", 2, 2, OF_BRANCH, OF_BRANCH // 4]

BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "it trains": ("trains(dropped)", ONE),
    "it serves": ("serves(dropped)", ONE),
    "inference mode": ("serves(dropped, mode=torch.inference_mode)", ONE),
    "drawn behind the call": ("trains(dropped_later)", ONE),
    "in place": ("serves(in_place)", ONE),
    "by a module": ("trains(drop_path)", ONE),
    "scaled before": ("trains(scaled)", ONE),
    "experts": ("serves(experts)", ["Branch", 2, 8, 4 * OF_BRANCH, 3 * OF_BRANCH]),
    "masked positions": ("trains(masked)", ONE),
    "channels before positions": (
        "serves(turned)",
        ["Turned", 2, 2, OF_BRANCH, OF_BRANCH // 2],
    ),
}

GOOD: Final[dict[str, str]] = {
    "rows chosen by what was computed": "serves(gated)",
    "one number": "serves(whole)",
    "features": "serves(features)",
    "no zeros": "serves(ones)",
    "few zeros": "serves(few)",
    "rows chosen first": "trains(chosen_first)",
    "a sum": "trains(residual)",
    "no module": "trains(product)",
    "read by another operator": "trains(read)",
    "returned": "trains(returned)",
    "each row is in one of two results": "serves(composed)",
    "one step": "trains(once)",
    "a few steps": "trains(dropped, steps=3)",
}


@pytest.mark.parametrize("name", BAD)
def test_modules_whose_rows_become_zero_are_noted(name: str) -> None:
    code, expected = BAD[name]
    (seen,) = looked_at("masked_rows", BEGIN + code, MaskedModule)
    counts = [seen.classes, seen.steps, seen.calls, seen.operations, seen.of_zeros]
    assert counts == expected
    assert (seen.within, seen.phase, seen.is_whole) == ("Model", "forward", False)
    assert 0 < seen.weights < seen.of
    assert len(seen.places) == 1
    assert all(
        "branch(x)" in line or "one(flat)" in line or "turned(x)" in line
        for line in code_at(seen.lines, BEGIN)
    )


@pytest.mark.parametrize("name", GOOD)
def test_other_programs_have_none(name: str) -> None:
    assert not looked_at("masked_rows", BEGIN + GOOD[name], MaskedModule)


@pytest.mark.parametrize("method", ["enter", "returned", "pass_on", "leave"])
def test_an_error_ends_the_look_and_not_the_program(method: str) -> None:
    breaks = f"PRODUCTS._masked.__class__.{method} = lambda *_: 1 / 0\n"
    assert_stops_watching(f"{BEGIN}{breaks}trains(dropped)")
