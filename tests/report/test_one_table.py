import polars as pl
import pytest
from rich.cells import cell_len

from nsysflow.analysis.tables.index import ABOUT, declaration, declarations
from nsysflow.report.layout import set_in_columns
from nsysflow.report.one_table import columns_that_fit, readable_block
from tests.analyses import analysed
from tests.report.handmade import MS, frame, training

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
        assert name in ("integrity", "comm", "mfu", "starved", "host_stacks")
    for width in (80, 160) if table.height else ():
        chosen = columns_that_fit(table, declaration(name).shown.split(), width)
        assert chosen
        block = readable_block(table.select(chosen), name)
        assert max(map(cell_len, set_in_columns(block.columns, block.rows, width))) <= width
