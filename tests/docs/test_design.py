"""docs/design.md: short, and every folder of the tree is in it."""

from typing import Final

import pytest

from tests.reports import ROOT

DESIGN: Final = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
FOLDERS: Final = [
    *(f"{folder.name}/" for folder in ROOT.glob("analysis/*/")),
    *(f"nsysflow/{each.name}/" for each in ROOT.glob("nsysflow/*/") if not each.is_symlink()),
    *("kernels/", "workloads/", "samples/", "tests/", "benchmarks/", "docs/"),
]


def test_the_page_is_short() -> None:
    assert len(DESIGN.splitlines()) <= 200


@pytest.mark.parametrize("folder", [each for each in FOLDERS if "__" not in each])
def test_a_folder_is_described(folder: str) -> None:
    assert f"| `{folder}`" in DESIGN or f", `{folder}`" in DESIGN
