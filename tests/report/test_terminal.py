import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nsysflow.analysis.trace import Note, NoteKind
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
from nsysflow.report.text import page_lines, set_block, summary
from tests.report.handmade import MS, Results, device, handmade, results, row, valued, with_findings
from tests.report.test_reviewed_pages import everything


def lines(of: Results, width: int = 110) -> list[str]:
    """The page without styles."""
    return [line.plain for line in page_lines(of, width=width, top=None)]


def test_the_page_fits_a_screen_however_much_there_is() -> None:
    names = [f"step/{index:02}" for index in range(40)]
    many = results(
        accounting=[device(100 * MS, host_ns=80 * MS)],
        gap_summary=[row(cause="host", total_ms=2, phase=name) for name in names],
        phases=[{"path": "step", "depth": 1, "busy_ns": 20 * MS, "idle_ns": 80 * MS}]
        + [{"path": name, "depth": 2, "busy_ns": MS // 2, "idle_ns": 2 * MS} for name in names],
        syncs=[{"api": f"call{index}", "blocked_ns": MS} for index in range(40)],
        gaps=[{"gap": index, "duration_ns": MS, "cause": "host"} for index in range(40)],
    )
    page_lines = lines(many)
    assert len(page_lines) <= 45
    assert max(map(cell_len, page_lines)) <= 110
    assert "35 more: --table phases" in "\n".join(page_lines)
    words = "the GPU waits for data in step/data " * 9
    finding = with_findings(valued(title=words, change=(words,)))
    assert max(map(cell_len, lines(finding, width=80))) <= 80


def test_without_gpu_work_the_page_is_the_verdict_and_the_notes() -> None:
    empty = Results([handmade(notes=(Note(NoteKind.NO_KERNELS, "no kernels were traced"),))])
    assert lines(empty) == [
        "run.sqlite",
        "",
        "No GPU work (no kernel, copy or memset in this report)",
        "next: check that --trace includes cuda, and that the GPU is used during the capture",
        "note: no kernels were traced",
    ]
    page = summary(results())
    assert page.startswith("# run.sqlite\n\n**No GPU work")
    assert "##" not in page
    assert "<details>" not in page


REST = "3 more: --table phases"


@pytest.mark.parametrize(
    ("caption", "rest", "width", "shown"),
    [
        ("busy or idle", "", 40, ["Phases  busy or idle"]),
        ("", "", 40, ["Phases"]),
        # too long for the line of the title
        ("x " * 30, "", 40, ["Phases", "  " + "x " * 18 + "x", "  " + "x " * 10 + "x"]),
        # at the right edge of a line that has room
        ("", REST, 40, [f"Phases{REST:>34}"]),
        ("caption", REST, 40, [f"Phases  caption  {REST:>23}"]),
        ("a caption", REST, 40, ["Phases  a caption", f"{REST:>40}"]),
        ("x " * 20, REST, 40, ["Phases", "  " + "x " * 18 + "x", f"  x{REST:>37}"]),
        ("x", "3 more", None, ["Phases  x  3 more"]),
    ],
)
def test_caption_and_rest_stand_beside_the_title_where_there_is_room(
    caption: str, rest: str, width: int | None, shown: list[str]
) -> None:
    block = Block(title="Phases", caption=caption, rest=rest, columns=(words("a"),), rows=(("b",),))
    assert [line.plain for line in set_block(block, width)][1:-2] == shown


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_line_of_a_page_fits_from_60_columns_on(width: int) -> None:
    printed = [str(line) for line in page_lines(everything(), width=width, length="full", top=None)]
    assert [line for line in printed if cell_len(line) > width] == []


def test_no_name_and_no_finding_can_become_markup() -> None:
    row = {"path": "<b>a|b\n*c*</b> _d_ e_f", "depth": 1, "busy_ns": MS}
    page = summary(results(accounting=[device(MS)], phases=[row]))
    assert r"| \<b\>a\|b·\*c\*\</b\> \_d\_ e_f |" in page
    page = summary(with_findings(valued(title="</details> | *x*", change=("`if` <b>",))))
    assert r"First: save 5.00 ms (10 %): \</details\> \| \*x\*" in page
    assert r"| \</details\> \| \*x\* | \`if\` \<b\> |" in page


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


def test_names_of_a_million_letters_become_as_narrow_as_others() -> None:
    columns = [words("name"), words("phase")]
    million, hundred = ([(count * "a", count * "b")] for count in (1_000_000, 100))
    assert set_in_columns(columns, million, 60) == set_in_columns(columns, hundred, 60)


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


def test_of_a_name_of_a_million_letters_the_ends_are_left() -> None:
    name = f"step/{'x' * 1_000_000}/train.py:7 in f"
    assert shorten(name, 20) == "…xxxxx/train.py:7 in f"[-20:].replace("x", "…", 1)


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
    assert set_in_columns([words("phase")], [("step\n\x1b[31mred",)], 40)[1] == "step··[31mred"


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
