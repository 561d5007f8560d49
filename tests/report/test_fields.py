"""Blocks from rows."""

import polars as pl
import pytest

from nsysflow.base.units import duration
from nsysflow.report.fields import (
    Limits,
    gpu_fields,
    make_block,
    mean_count,
    more_rows,
    named_rows,
    phase_field,
    time_and_share,
    value,
)
from nsysflow.report.layout import figure, words
from nsysflow.report.source_lines import line_at
from tests.report.handmade import MS, Results, handmade, renamed


def test_each_row_has_a_cell_of_each_field() -> None:
    block = make_block("T", [1, 2], ((figure("n"), str), (words("twice"), lambda n: str(2 * n))))
    assert [column.head for column in block.columns] == ["n", "twice"]
    assert block.rows == (("1", "2"), ("2", "4"))


def test_null_is_an_empty_cell_and_no_phase_is_outside_all_ranges() -> None:
    shown = value("ns", duration)
    assert [shown({"ns": ns}) for ns in (None, 0, 3 * MS)] == ["", "0", "3.00 ms"]
    _, cell = phase_field()
    phases = [cell({"phase": phase}) for phase in ("step", "", None)]
    assert phases == ["step", "(outside ranges)", "(outside ranges)"]


def test_the_gpu_has_a_column_only_where_the_rows_are_of_several_and_its_report_too() -> None:
    for devices, named in (([0, 0], False), ([0, 1], True)):
        table = pl.DataFrame({"report": "run.sqlite", "device": devices})
        assert bool(gpu_fields(Results([handmade()]), table)) is named
    run = Results([renamed(handmade(), name) for name in "ab"])
    ((_, cell),) = gpu_fields(run, pl.DataFrame({"report": ["a", "b"], "device": [0, 0]}))
    assert cell({"report": "b", "device": 0}) == "b GPU 0"


def test_what_is_left_out_is_a_line_only_where_there_is_any() -> None:
    assert more_rows(1_200, "gaps") == "1,200 more: --table gaps"
    assert more_rows(0, "gaps") == more_rows(-3, "gaps") == ""


def test_no_time_has_no_share() -> None:
    assert time_and_share(105, 300) == "105 ns 35 %"
    assert time_and_share(0, 300) == "0"


def test_only_the_first_rows_are_taken() -> None:
    rows = named_rows(pl.DataFrame({"n": [1, 2, 3]}), Limits(rows=2))
    assert [row["n"] for row in rows] == [1, 2]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0"), (1, "<0.1"), (25, "0.5"), (50, "1"), (99, "2.0"), (475, "9.5"), (525, "10")],
)  # fmt: skip
def test_a_mean_count_per_step_is_never_rounded_to_none(count: int, said: str) -> None:
    assert mean_count(count, 50) == said


@pytest.mark.parametrize(
    ("cause", "culprit", "source", "said"),
    [
        ("host", "", "train.py:42 in step", "before train.py:42"),  # of the launch after it
        ("host", "", "train.py:42", "before train.py:42"),
        ("sync", "cudaStreamSynchronize", "a.py:1 in f", "a.py:1 in f"),
        ("host", "", "", ""),
    ],
)
def test_the_line_of_a_cause(cause: str, culprit: str, source: str, said: str) -> None:
    assert line_at(cause, culprit, source) == said
