import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.cells import cell_len

from nsysflow.analysis.tables.index import ABOUT, declaration, declarations
from nsysflow.report import tables
from nsysflow.report.layout import set_in_columns
from nsysflow.report.one_table import columns_that_fit, readable_block
from nsysflow.report.tables import (
    GAPS_CSV,
    GAPS_PARQUET,
    WHERE_THERE,
    GapsFormat,
    write_csv,
    write_files,
)
from tests.analyses import analysed
from tests.report.handmade import (
    MS,
    Results,
    frame,
    handmade,
    measured,
    sampled,
    training,
    two_ranks,
)
from tests.report.test_reviewed_pages import PAGES

SYNC = frame("syncs", {"api": "cudaDeviceSynchronize", "induced_idle_ns": 8 * MS, "blocked_ns": 1})


@pytest.mark.parametrize(
    ("name", "table", "shown", "not_shown"),
    [
        ("copies", training().copies, {"bytes": "4.00 MB"}, ("report", "phase")),
        ("mfu", frame("mfu", {"path": "step", "flops": 2e9, "flops_per_s": 4.47e11}),
         {"flops": "2.00 GFLOP", "flops per s": "447 GFLOP/s"}, ()),
        ("steps", frame("steps", {"steady": True}), {"steady": "yes"}, ()),
        ("syncs", SYNC, {"idle behind it": "8.00 ms"}, ("induced idle",)),
    ],
)  # fmt: skip
def test_a_table_is_in_words_and_without_what_says_nothing(
    name: str, table: pl.DataFrame, shown: dict[str, str], not_shown: tuple[str, ...]
) -> None:
    block = readable_block(table, name)
    cells = dict(zip((column.head for column in block.columns), block.rows[0], strict=True))
    assert shown.items() <= cells.items()
    assert not {*not_shown} & {*cells}


def test_columns_stay_in_the_tables_order_and_the_least_important_go_first() -> None:
    by_weight = ("induced_idle_ns", "api", "blocked_ns")
    assert columns_that_fit(SYNC, by_weight, 80) == ["api", "blocked_ns", "induced_idle_ns"]
    assert columns_that_fit(SYNC, by_weight, 45) == ["api", "induced_idle_ns"]
    assert columns_that_fit(SYNC, by_weight, 1) == ["induced_idle_ns"]


@pytest.mark.parametrize("silent", ["source", "report", "process", "gpu_busy_ns"])
def test_a_column_that_says_nothing_takes_no_room(silent: str) -> None:
    assert columns_that_fit(SYNC, (silent, "api"), 80) == ["api"]


@pytest.mark.parametrize(
    "name", [table.name for table in declarations(ABOUT) if table.scope == "report"]
)
def test_every_table_of_a_real_report_fits_into_a_terminal(name: str) -> None:
    table = getattr(analysed("nan_check-sync-metrics"), name).head(40)
    if table.is_empty():
        rare = (
            *("integrity", "comm", "mfu", "starved", "host_stacks", "serving", "serving_steps"),
            *("serving_work", "operators", "clocks", "traffic", "cpu", "loader_workers"),
            *("memory", "out_of_memory", "peak_memory", "kept_memory", "larger_batch"),
            *("gil", "code"),
        )
        assert name in rare
    for width in (80, 160) if table.height else ():
        chosen = columns_that_fit(table, declaration(name).shown.split(), width)
        assert chosen
        block = readable_block(table.select(chosen), name)
        assert max(map(cell_len, set_in_columns(block.columns, block.rows, width))) <= width


HEADERS = dict(line.split(": ") for line in (PAGES / "columns.txt").read_text("utf-8").splitlines())
"""The promised columns of each CSV file."""

RUN = Results([training(), sampled(), measured(), *two_ranks()])


def csv(name: str, **row: Any) -> str:
    """One row as CSV, without the header."""
    out = io.BytesIO()
    write_csv(frame(name, row), out)
    return out.getvalue().decode().split("\n", 1)[1]


def test_the_promised_files_are_all_there_with_the_promised_columns(tmp_path: Path) -> None:
    write_files(RUN, tmp_path)
    headers = {path.stem: path.read_text().split("\n")[0] for path in tmp_path.glob("*.csv")}
    assert headers == HEADERS
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".csv"] == ["report.json"]


def test_a_table_that_most_reports_lack_has_no_file_without_rows(tmp_path: Path) -> None:
    write_files(Results([handmade()]), tmp_path)
    assert not {path.stem for path in tmp_path.iterdir()} & {*WHERE_THERE}


def test_null_is_empty_and_lines_end_in_a_newline_alone() -> None:
    row = csv("gap_summary", cause="host", culprit=None, per_step_ns=None, window_pct=0.1 + 0.2)
    assert row == "run.sqlite,0,,host,,,,0,0,0,0,,0.3,0\n"


@pytest.mark.parametrize(
    ("value", "text"), [(1e-5, "0.00001"), (123456789.5, "123456789.5"), (float("nan"), "")]
)
def test_a_number_is_never_in_powers_of_ten(value: float, text: str) -> None:
    assert csv("integrity", share_pct=value, check="a", impact="b") == f"run.sqlite,a,0,{text},b\n"


def test_a_name_with_a_comma_and_quotes_survives_csv() -> None:
    out = io.BytesIO()
    write_csv(frame("kernels", {"name": 'f<int, "a">\n'}), out)
    assert pl.read_csv(out.getvalue())["name"].item() == 'f<int, "a">\n'


@pytest.mark.parametrize(
    ("form", "largest", "made"),
    [
        ("auto", 10**6, GAPS_CSV),
        ("auto", 10, GAPS_PARQUET),
        ("csv", 10, GAPS_CSV),
        ("parquet", 10**6, GAPS_PARQUET),
    ],
)
def test_gaps_are_csv_unless_that_is_large_or_parquet_is_asked_for(
    form: GapsFormat, largest: int, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LARGEST_GAPS_CSV_BYTES", largest)
    write_files(Results([training()]), tmp_path, gaps_format=form)
    (gaps,) = tmp_path.glob("gaps.*")
    assert gaps.name == made
    read = (pl.read_csv if made == GAPS_CSV else pl.read_parquet)(gaps)
    assert read["duration_ns"].to_list() == training().gaps["duration_ns"].to_list()
