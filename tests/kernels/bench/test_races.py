"""The rivals in benchmarks/races.py compute the same as our kernels."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.races import RACES, main


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
