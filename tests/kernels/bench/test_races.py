"""The rivals in benchmarks/races.py compute the same as our kernels."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor
from torch.nn import functional as F

from benchmarks.races import RACES, main, mingru
from nsysflow.kernels.bench.correctness import check
from nsysflow.kernels.bench.problem import Random, call_of
from nsysflow.kernels.mingru_scan import mingru_scan_ref


@pytest.fixture
def precision() -> Iterator[None]:
    """Keep the precision of float32 products, which races lower."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.slow
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("race", RACES)
def test_every_contender_is_correct(race: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rounds = ["--rounds", "2"]
    ran = CliRunner().invoke(
        main, ["--race", race, "--dtype", "float", "--csv", str(rows), *rounds]
    )
    assert ran.exit_code == 0, ran.output
    with rows.open() as file:
        found = list(csv.DictReader(file))
    assert len(found) >= 1
    assert {row["note"] for row in found} == {""}, ran.output
    assert all((row["median_us"] != "") == torch.cuda.is_available() for row in found)


def tf32(tensor: Tensor) -> Tensor:
    """The tensor with 11 bits of each number."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_a_product_in_tf32_changes_no_slope_of_a_layer_of_mingru() -> None:
    problem = mingru(
        {"B": 64, "T": 64, "H": 32}, Random(device=torch.device("cpu"), dtype=torch.float32)
    )

    def layer(x: Tensor, state: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rounded = [each + (tf32(each.detach()) - each.detach()) for each in (x, weight)]
        return mingru_scan_ref(F.linear(*rounded), state)

    call = call_of(problem, layer, "fwd+bwd")
    found = check(problem, "fwd+bwd", call, ours=False, interpreted=False)
    assert found.problem is None
    assert found.error < 0.01  # of a tolerance that is made for two products in TF32
    assert all((slope == 0).float().mean() < 0.02 for slope in problem.slopes)
