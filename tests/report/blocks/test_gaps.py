"""The longest gaps."""

from nsysflow.report.blocks.gaps import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, training


def gaps(of: Results, rows: int = 3, at_least_ns: int = 0) -> Block:
    return block(of, Limits(rows=rows, at_least_ns=at_least_ns))


def heads(block: Block) -> list[str]:
    return [column.head for column in block.columns]


def test_the_longest_comes_first_with_its_cause_in_words() -> None:
    rows = gaps(Results([training()])).rows
    assert [row[:3] for row in rows] == [
        ("20.0 ms", "0.050000 s", "host code"),
        ("8.00 ms", "0.090000 s", "waiting in a sync"),
    ]


def test_short_gaps_are_neither_shown_nor_counted() -> None:
    block = gaps(Results([training()]), at_least_ns=10 * MS)
    assert len(block.rows) == 1
    assert block.rest == ""


def test_without_recorded_lines_there_is_no_column_of_them() -> None:
    assert "line" not in heads(gaps(Results([training()])))


def test_the_gpu_is_named_only_where_there_are_several() -> None:
    assert "GPU" not in heads(gaps(Results([training()])))
    assert "GPU" in heads(gaps(Results([training(), training()])))
