"""`gap_summary.csv` of two real reports, as `analyze` writes it, against reviewed copies.

When they should change, write them again and review the difference:

    for name in h200-train h200-gpt2-eager; do
        nsysflow analyze tests/data/$name.sqlite.xz -o build/$name --force
        cp build/$name/gap_summary.csv tests/analysis/golden/$name.gap_summary.csv
    done
    git diff tests/analysis/golden
"""

from pathlib import Path
from typing import Final

import polars as pl
import pytest
from click.testing import CliRunner

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.gaps import GAP_SUMMARY
from nsysflow.cli.main import main
from tests.analyses import analysed
from tests.reports import DATA, ROOT

GOLDEN: Final = ROOT / "tests" / "analysis" / "golden"
REPORTS: Final = ("h200-gpt2-eager", "h200-train")


def golden(name: str) -> Path:
    return GOLDEN / f"{name}.gap_summary.csv"


@pytest.mark.parametrize("name", REPORTS)
def test_analyze_writes_the_reviewed_summary(name: str, tmp_path: Path) -> None:
    report = DATA / f"{name}.sqlite.xz"
    done = CliRunner().invoke(main, ["analyze", str(report), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    written = (tmp_path / "out" / "gap_summary.csv").read_text()
    assert written.splitlines() == golden(name).read_text().splitlines()


@pytest.mark.parametrize("name", REPORTS)
def test_the_reviewed_summary_holds_all_the_idle(name: str) -> None:
    reviewed = pl.read_csv(golden(name), schema=GAP_SUMMARY)
    (device,) = analysed(name).accounting.to_dicts()
    causes = dict(reviewed.group_by("cause").agg(pl.col("total_ns").sum()).rows())
    assert causes == {c: device[f"{c}_ns"] for c in CAUSES if device[f"{c}_ns"]}
    assert reviewed.select(pl.col("window_pct").sum()).item() == pytest.approx(
        100 * device["idle_ns"] / device["window_ns"], abs=1e-3
    )


def test_nothing_else_is_golden() -> None:
    assert sorted(GOLDEN.iterdir()) == [golden(name) for name in REPORTS]
