import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nsysflow.report.fields import mean_count
from nsysflow.report.layout import (
    Block,
    Column,
    figure,
    set_in_columns,
    shorten,
    without_bars,
    without_empty_columns,
    words,
)

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"


def test_a_narrow_line_shortens_the_names_and_no_number_and_loses_spare_columns_first() -> None:
    columns = [words("kernel"), figure("total"), figure("count", spare=True)]
    rows = [(KERNEL, "23.8 ms", "1,234,567")]
    head, line = set_in_columns(columns, rows, 60)
    assert max(cell_len(head), cell_len(line)) <= 60
    assert head.split() == ["kernel", "total", "count"]
    assert line.split()[-3:] == ["23.8", "ms", "1,234,567"]
    assert "…" in line
    head, line = set_in_columns(columns, rows, 30)
    assert (head.split(), line.split()[-2:]) == (["kernel", "total"], ["23.8", "ms"])
    assert KERNEL in set_in_columns(columns, rows, None)[1]


def test_both_ends_of_a_name_and_the_end_of_a_path_survive() -> None:
    assert shorten("vectorized_elementwise_kernel", 15) == "vectori…_kernel"
    assert shorten("step/forward/block/attention", 15) == "…lock/attention"


def test_a_path_keeps_its_file_and_line() -> None:
    assert shorten("check.py:125 in check, step/metrics", 20) == "check.py:125 in che…"
    assert shorten("forward (transformers/models/llama.py:158)", 20) == "…odels/llama.py:158)"
    columns = [words("what"), words("where"), figure("idle")]
    rows = [("cudaStreamSynchronize", "a/metrics.py:125 in check, step", "1.23 ms")] * 2
    for width in range(40, 70):
        lines = "\n".join(set_in_columns(columns, rows, width)).split("\n")
        assert "metrics.py:125" in "".join(lines)
        assert max(map(cell_len, lines)) <= width


def test_a_bar_gets_shorter_before_it_goes_and_its_letters_go_with_it() -> None:
    columns = (Column(head="", drawn=True, spare=True), Column(head="idle", letter="░"))
    rows = (("█" * 15 + "░" * 15, "7 ms"),)
    assert set_in_columns(columns, rows, 18)[1] == "█████░░░░░  7 ms"
    assert set_in_columns(columns, rows, 12) == ["idle", "7 ms"]


def test_figures_that_are_too_wide_for_a_line_take_several() -> None:
    columns = (words("phase"), *(figure(str(number)) for number in range(5)))
    rows = (("step", *(f"{number}.00 ms" for number in range(5))),)
    head, line = set_in_columns(columns, rows, 30)
    assert line.split() == [word for cell in rows[0] for word in cell.split()]
    assert max(map(len, (head + "\n" + line).split("\n"))) <= 30


@given(st.text(), st.integers(min_value=3, max_value=30))
def test_a_shortened_text_never_takes_more_cells_than_it_may(text: str, width: int) -> None:
    assert cell_len(shorten(text, width)) <= width


def test_a_name_cannot_break_the_line_or_drive_the_terminal() -> None:
    (_, line) = set_in_columns([words("phase")], [("step\n\x1b[31mred",)], 40)
    assert line == "step··[31mred"


def test_a_column_whose_cells_are_all_empty_goes_and_no_other_does() -> None:
    columns = (figure("idle"), words("culprit"), words("line"))
    block = Block(title="", columns=columns, rows=(("7 ms", "", ""), ("1 ms", "", "train.py:3")))
    kept = without_empty_columns(block)
    assert [column.head for column in kept.columns] == ["idle", "line"]
    assert kept.rows == (("7 ms", ""), ("1 ms", "train.py:3"))


def test_a_bar_is_for_a_terminal_only_as_is_its_letter() -> None:
    columns = (Column(head="", drawn=True), Column(head="idle", letter="░"))
    block = Block(title="", columns=columns, rows=(("░░", "7 ms"),))
    assert set_in_columns(columns, block.rows, 40)[0].split() == ["░", "idle"]
    assert [column.head for column in without_bars(block).columns] == ["idle"]
    assert without_bars(block).rows == (("7 ms",),)


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0"), (1, "<0.1"), (25, "0.5"), (50, "1"), (99, "2.0"), (475, "9.5"), (525, "10")],
)  # fmt: skip
def test_a_mean_count_per_step_is_never_rounded_to_none(count: int, said: str) -> None:
    assert mean_count(count, 50) == said
