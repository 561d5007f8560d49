"""docs/design.md: short, and every folder of the tree is in it."""

from typing import Final

import pytest

from tests.reports import ROOT

DESIGN: Final = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
OTHERS: Final = ("action", "benchmarks", "docs", "samples", "tests")


def folders() -> list[str]:
    """The folders with modules, and the others at the top, from the root of the tree."""
    product = ("analysis", "kernels", "nsysflow", "workloads")
    files = [file for top in product for file in (ROOT / top).rglob("*.py")]
    inner = {file.parent.relative_to(ROOT).as_posix() for file in files}
    return sorted({*inner, *OTHERS} - {"nsysflow"})


def test_the_page_is_short() -> None:
    assert len(DESIGN.splitlines()) <= 200


@pytest.mark.parametrize("folder", folders())
def test_a_folder_is_described(folder: str) -> None:
    assert f"| `{folder}/`" in DESIGN or f", `{folder}/`" in DESIGN


def test_no_folder_is_described_that_is_not_there() -> None:
    rows = [line.split("|")[1] for line in DESIGN.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in row.split("`")[1::2]]
    assert not [name for name in named if not (ROOT / name).is_dir()]
