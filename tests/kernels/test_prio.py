"""prio's draws follow p, can be repeated, and have the importance weights of p."""

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import prio as module
from nsysflow.kernels.prio import EPSILON, Draws, prio, probabilities_ref
from tests.kernels.hopper import compiled_for_hopper, shaped

DRAWN_FROM = module._LAUNCH.drawn_from if torch.cuda.is_available() else 2**17
"""Rows that a program holds. The interpreter has no registers, and few programs are faster."""

MANY_DRAWS = module._Launch(draws=256)
"""More draws per program: the interpreter's time depends on the number of programs."""


@pytest.fixture
def many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAUNCH", MANY_DRAWS)


def poisoned(draws: int, device: torch.device) -> Draws:
    """Invalid outputs, each at the start of a longer buffer."""
    return Draws(
        rows=torch.full((draws + 64,), -1, dtype=torch.int64, device=device)[:draws],
        weight=torch.full((draws + 64,), float("nan"), device=device)[:draws],
    )


def behind(tensor: Tensor) -> Tensor:
    """The rest of the buffer of a tensor from `poisoned`."""
    return tensor.as_strided((64,), (1,), len(tensor))


def drawn(advantages: Tensor, draws: int, *, seed: int = 7, at: int = 0, **how: float) -> Draws:
    """One call of `prio` with invalid outputs."""
    offset = torch.tensor([at], device=advantages.device)
    out = poisoned(draws, advantages.device)
    prio(advantages, draws, seed=seed, offset=offset, out=out, **how)
    assert (behind(out.rows) == -1).all()
    assert behind(out.weight).isnan().all()
    return out


def chi_squared(rows: Tensor, p: Tensor) -> float:
    """The chi-squared statistic of the rows, in standard deviations from its mean."""
    share = (p / p.sum()).double().cpu()
    count = torch.bincount(rows.cpu(), minlength=len(p)).double()
    wanted = share * len(rows)
    statistic = ((count - wanted) ** 2 / wanted).sum().item()
    freedom = len(p) - 1
    return float((statistic - freedom) / (2 * freedom) ** 0.5)


@pytest.mark.parametrize(
    ("rows", "steps", "dtype"),
    [
        *((rows, steps, torch.float32) for rows, steps in ((1, 1), (17, 5), (5, 1500), (3, 0))),
        *((100, 64, torch.bfloat16), (33, 40, torch.float16)),
    ],
)
def test_weights_match_p_at_any_size(
    device: torch.device, rows: int, steps: int, dtype: torch.dtype
) -> None:
    advantages = torch.randn(rows, steps, device=device).to(dtype)
    got = drawn(advantages, 19, beta=0.7)
    p = probabilities_ref(advantages.double())
    assert ((got.rows >= 0) & (got.rows < rows)).all()
    # p and its power are float32, computed with logarithms, of sums of up to 1500 steps
    torch.testing.assert_close(
        got.weight.double(), (rows * p[got.rows]) ** -0.7, rtol=2e-5, atol=1e-6
    )


def test_one_draw_of_one_row_takes_it(device: torch.device) -> None:
    one = drawn(torch.randn(1, 3, device=device), 1)
    assert (one.rows.tolist(), one.weight.tolist()) == ([0], [1.0])


@pytest.mark.usefixtures("many_draws")
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_draws_follow_p(device: torch.device, alpha: float) -> None:
    # 40 rows: three groups, the last one partly filled
    scale = torch.linspace(0.1, 2, 40, device=device)[:, None]
    advantages = torch.randn(40, 3, device=device) * scale
    advantages[5] = 0  # 0 ** 0 is 1
    rows = torch.cat([drawn(advantages, 1024, at=at, alpha=alpha).rows for at in range(3)])
    p = probabilities_ref(advantages, alpha=alpha)
    assert abs(chi_squared(rows, p)) < 4
    assert chi_squared(rows, p.flip(0)) > 20 or alpha == 0


@pytest.mark.parametrize(
    "launch",
    [MANY_DRAWS, module._Launch(draws=256, groups=2, tile=64, drawn_from=DRAWN_FROM)],
    ids=["many small groups", "two large groups"],
)
def test_draws_follow_p_with_any_groups(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, launch: module._Launch
) -> None:
    monkeypatch.setattr(module, "_LAUNCH", launch)
    advantages = torch.rand(700, 1, device=device) + 0.5
    rows = drawn(advantages, 3000).rows
    by_hundred = probabilities_ref(advantages).view(7, 100).sum(dim=1)
    assert abs(chi_squared(rows // 100, by_hundred)) < 4


@pytest.mark.usefixtures("many_draws")
def test_a_seed_and_the_number_of_the_call_repeat_their_draws(device: torch.device) -> None:
    advantages = torch.randn(50, 8, device=device)
    offset = torch.full((1,), 4, dtype=torch.int64, device=device)
    calls = [prio(advantages, 64, seed=3, offset=offset) for _ in range(3)]
    assert offset.tolist() == [7]
    again = drawn(advantages, 64, seed=3, at=5)
    assert torch.equal(calls[1].rows, again.rows)
    assert torch.equal(calls[1].weight, again.weight)
    for seed, at in ((4, 5), (3, 4), (3, 6), (3 + 2**40, 5), (3, 5 + 2**40)):
        assert not torch.equal(again.rows, drawn(advantages, 64, seed=seed, at=at).rows)


@pytest.mark.usefixtures("many_draws")
@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_a_row_that_is_not_finite_is_never_drawn(device: torch.device, alpha: float) -> None:
    advantages = torch.ones(20, 6, device=device)
    advantages[[0, 7, 19], 2] = torch.tensor([torch.nan, torch.inf, -torch.inf], device=device)
    got = drawn(advantages, 500, alpha=alpha)
    assert not set(got.rows.tolist()) & {0, 7, 19}
    p = 6**alpha / (17 * 6**alpha + EPSILON)
    torch.testing.assert_close(
        got.weight, torch.full((500,), (20 * p) ** -0.4, device=device), rtol=1e-5, atol=0
    )


def test_no_draws_leave_the_offset_unchanged(device: torch.device) -> None:
    offset = torch.zeros(1, dtype=torch.int64, device=device)
    assert prio(torch.ones(4, 4, device=device), 0, seed=1, offset=offset).rows.numel() == 0
    assert offset.item() == 0


@pytest.mark.slow
def test_on_hopper_everything_fits_into_registers() -> None:
    advantages, offset = shaped(8192, 64, dtype=torch.float32), shaped(1, dtype=torch.int64)
    kernels = compiled_for_hopper(lambda: prio(advantages, 512, seed=2**40, offset=offset))
    assert [kernel.local_bytes for kernel in kernels.values()] == [0, 0]


@pytest.mark.gpu
def test_a_replayed_graph_makes_new_draws(device: torch.device) -> None:
    advantages = torch.randn(512, 64, device=device)
    offset = torch.zeros(1, dtype=torch.int64, device=device)
    out = poisoned(64, device)
    prio(advantages, 64, seed=3, offset=offset, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prio(advantages, 64, seed=3, offset=offset, out=out)
    for at in (1, 2):
        graph.replay()
        assert torch.equal(out.rows, drawn(advantages, 64, seed=3, at=at).rows)
