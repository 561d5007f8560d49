import re
from pathlib import PurePosixPath
from runpy import run_path
from typing import Final

import click
import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.index import ABOUT, declarations
from tests.analyses import analysed
from tests.cli.running import COMMANDS
from tests.reports import ROOT

README, DESIGN, READING, TOUR, USAGE = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("README.md", "docs/design.md", "docs/reading.md", "docs/tour.md", "docs/usage.md")
)
TOPS: Final = ("action", "benchmarks", "docs", "release", "samples", "tests")
OPTIONS: Final = [
    option
    for command in COMMANDS.values()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


@pytest.mark.parametrize(("page", "lines"), [(README, 200), (DESIGN, 200), (TOUR, 80)])
def test_a_page_is_short(page: str, lines: int) -> None:
    assert len(page.splitlines()) <= lines


def folders() -> list[str]:
    """The folders with modules, and the others at the top, from the root of the tree."""
    product = ("analysis", "kernels", "nsysflow", "workloads")
    files = [file for top in product for file in (ROOT / top).rglob("*.py")]
    inner = {file.parent.relative_to(ROOT).as_posix() for file in files}
    return sorted({*inner, *TOPS} - {"nsysflow"})


def test_no_module_imports_another_in_a_circle() -> None:
    house = run_path(str(ROOT / "docs" / "make_house.py"))
    files = [file for top in house["SHIPPED"] for file in (ROOT / top).rglob("*.py")]
    modules = [
        house["Module"](path=PurePosixPath(file.relative_to(ROOT)), text=file.read_text("utf-8"))
        for file in files
    ]
    arrows = {arrow for arrow in house["arrows_of"](modules) if not house["is_within"](*arrow)}
    assert len(arrows) > 1_000
    assert house["circles"](arrows) == []
    tied = {*arrows, ("nsysflow.base.errors", "nsysflow.cli.main")}
    assert house["circles"](tied) != []


def test_every_folder_is_described() -> None:
    assert [folder for folder in folders() if not re.search(f"[|,] `{folder}/`", DESIGN)] == []


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of docs/reading.md, without its head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", READING, re.MULTILINE | re.DOTALL)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_cause_is_explained_by_its_label() -> None:
    rows = rows_of("Causes, and what helps")
    labels = {name: cause.label for name, cause in CAUSES.items()}
    assert {row[0].strip("`"): row[1] for row in rows} == labels
    assert all(row[2] and row[3] for row in rows)


def test_every_file_that_the_tour_names_is_there() -> None:
    named = re.findall(r"`((?:analysis|nsysflow|samples|tests)/[\w./-]+)`", TOUR)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_row_of_the_tour_and_what_becomes_of_it_are_as_it_says() -> None:
    analysis = analysed("nan_check-sync")
    (call,) = analysis.syncs.filter(pl.col("start_ns") == 20_756_400).rows(named=True)
    assert "20756400" in TOUR
    assert f"{call['blocked_ns'] / 1e6:.2f} ms" in TOUR
    assert f"{call['induced_idle_ns'] / 1e3:.0f} us of idle time" in TOUR
    assert call["phase"] in TOUR
    (gap,) = analysis.gaps.filter(pl.col("end_ns") == 22_774_607).rows(named=True)
    assert f"{gap['sync_ns']:,} of {gap['duration_ns']:,} ns" in TOUR
    first = analysis.findings.row(0, named=True)
    assert f"{first['saving_high_ns'] / 1e3:.0f} us shorter" in TOUR


def test_every_command_and_option_is_described() -> None:
    assert [command for command in COMMANDS if f"`nsysflow {command}" not in USAGE] == []
    names = (option.opts for option in OPTIONS)
    assert [each for each in names if not re.search(rf"(?:{'|'.join(each)})\b", USAGE)] == []


def test_every_file_is_described_and_leads_to_its_columns() -> None:
    files = [table.name for table in declarations(ABOUT) if table.csv != "never"]
    words = ("| `{}.csv` | ", "](tables.md#{})")
    assert [name for name in files for each in words if each.format(name) not in USAGE] == []
