"""What holds for every block."""

import re
from pathlib import Path
from typing import Any

import pytest

from nsysflow.analysis.declared.tables import DECLARED, TABLES, Table
from nsysflow.report import blocks
from nsysflow.report.blocks import block_of
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from nsysflow.report.page import OF_RANKS, rows_shown
from nsysflow.report.results import Results as RealResults
from tests.report.handmade import Results, handmade, measured, renamed, sampled, training, two_ranks
from tests.report.test_ranks import many

SHOWN = [
    table for table in TABLES.values() if rows_shown(table, "page") or rows_shown(table, "full")
]
every_block = pytest.mark.parametrize("table", SHOWN, ids=lambda table: table.name)

STARVED: dict[str, Any] = {"end_ns": 2_000_000, "graph_estimate_ns": 1_000_000, "ops": 8}
ONE_OFF: dict[str, Any] = {"kind": "one-off", "steps": "3", "total_ns": 5, "excess_ns": 1}
RAN: dict[str, Any] = {"function": "tokenize", "cause": "host", "idle_ns": 900_000_000}
COMM: dict[str, Any] = {"name": "ncclDevKernel", "busy_ns": 5, "exposed_ns": 5, "count": 1}


def run_with_everything() -> Results:
    """Runs that have rows in every table together."""
    more = handmade(
        starved=[STARVED],
        comm=[COMM, {**COMM, "device": 1}],
        step_groups=[ONE_OFF, ONE_OFF],
        host_stacks=[RAN, {**RAN, "phase": "step"}],
    )
    runs = (training(), sampled(), measured(), more)
    named = [renamed(run, f"run{index}.sqlite") for index, run in enumerate(runs)]
    return Results([*named, *two_ranks()])


def shown(table: Table, rows: int = 50, of: RealResults | None = None) -> Block:
    run = of or (many() if table.name in OF_RANKS else run_with_everything())
    return block_of(table.name)(run, Limits(rows=rows))


def test_every_table_on_a_page_has_a_block_and_no_block_is_of_another() -> None:
    folder = Path(blocks.__file__).parent
    stems = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert stems == {table.name for table in SHOWN}
    assert {table.name for table in DECLARED if table.page_rows or table.full_rows} == stems


@every_block
def test_a_row_has_a_cell_for_each_column(table: Table) -> None:
    block = shown(table)
    assert block.rows
    assert {len(row) for row in block.rows} == {len(block.columns)}


@every_block
def test_there_are_no_more_rows_than_asked_for(table: Table) -> None:
    outside_ranges = 1 if table.name == "phases" else 0  # they are not one of the phases
    assert len(shown(table, 1).rows) == 1 + outside_ranges


@every_block
def test_what_is_left_out_is_counted_and_can_be_typed(table: Table) -> None:
    all_rows, one = shown(table), shown(table, 1)
    if len(all_rows.rows) > 1 and table.name != "rank_steps":  # a picture of all rows
        assert re.fullmatch(rf"\d+ more: --table {table.name}", one.rest)
    assert all_rows.rest == ""


@every_block
def test_a_run_without_gpu_work_has_no_rows(table: Table) -> None:
    assert shown(table, of=Results([handmade()])).rows == ()


@every_block
def test_a_heading_is_a_few_words_and_a_caption_no_sentence_with_a_full_stop(table: Table) -> None:
    block = shown(table)
    assert 1 <= len(block.title.split()) <= 6
    assert not block.caption.endswith(".")


@every_block
def test_a_row_of_one_gpu_names_its_report_where_there_are_several(table: Table) -> None:
    block = shown(table)
    heads = [column.head for column in block.columns]
    for head in {"GPU", "rank"} & {*heads} if table.name not in OF_RANKS else ():
        names = [row[heads.index(head)] for row in block.rows]
        assert all(name.endswith(("GPU 0", "GPU 1")) and len(name) > 5 for name in names)
