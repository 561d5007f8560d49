import pytest
from rich.cells import cell_len

from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.report.layout import Block, words
from nsysflow.report.text import page_lines, set_block
from tests.report.handmade import MS, Results, device, handmade, results, row, valued, with_findings
from tests.report.test_reviewed_pages import everything


def lines(of: Results, width: int = 110, top: int | None = None) -> list[str]:
    """The page without styles."""
    return [line.plain for line in page_lines(of, width=width, top=top)]


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


def titled(caption: str, rest: str = "", width: int | None = 40) -> list[str]:
    """The lines above the columns of a block."""
    block = Block(title="Phases", caption=caption, rest=rest, columns=(words("a"),), rows=(("b",),))
    return [line.plain for line in set_block(block, width)][1:-2]


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
    assert titled(caption, rest, width) == shown


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_line_of_a_page_fits_from_60_columns_on(width: int) -> None:
    printed = [str(line) for line in page_lines(everything(), width=width, length="full", top=None)]
    assert [line for line in printed if cell_len(line) > width] == []
