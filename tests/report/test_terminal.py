"""The terminal page."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.options import Options, StepPart
from nsysflow.report.layout import Block, words
from nsysflow.report.terminal import page, set_block
from tests.report.handmade import (
    MS,
    Results,
    device,
    handmade,
    part,
    results,
    training,
    valued,
    with_findings,
)

GOLDEN = Path(__file__).parent / "page.txt"


def lines(of: Results, width: int = 110, top: int | None = None) -> list[str]:
    """The page without styles."""
    return [line.plain for line in page(of, width=width, top=top)]


def reviewed() -> Results:
    """The steps of `training` with findings of each kind."""
    title = "value read back in the loop: cudaStreamSynchronize in step/loss"
    wait = valued(4 * MS, title=title, culprit="cudaStreamSynchronize", phase="step/loss", steps=1)
    launches = valued(6 * MS, title="400 launches a step keep the GPU waiting", exact=False)
    kernels = valued(0, title="most kernel time is matmul: 82 %", changes=None, table="kernels")
    return with_findings(wait, launches, kernels, valued(MS), together_ns=8 * MS)


def test_the_page_of_a_small_training_run_reads_as_reviewed() -> None:
    # after a change on purpose: read the new page, then write it to page.txt
    assert "\n".join(lines(reviewed())) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_the_verdict_is_on_top() -> None:
    assert lines(Results([training()]))[2].startswith("compute-bound (49 %, mostly matmul)")


def test_a_finding_has_two_lines_which_are_cut_to_the_width() -> None:
    words = "the GPU waits for data in step/data " * 9
    for line in lines(with_findings(valued(title=words, change=(words,))), width=80):
        assert cell_len(line) <= 80
    first, second = lines(with_findings(valued(steps=1)))[5:7]
    assert first == "  1  save 5.00 ms (10 %)  sync in the loop"
    assert second.split("  ")[0] == ""
    assert second.strip().startswith("remove the wait ")
    assert second.endswith(" in 1 of 2 steps")


@pytest.mark.parametrize("width", [80, 100, 110, 200])
def test_no_number_is_cut_on_any_terminal(width: int) -> None:
    text = "\n".join(lines(Results([training()]), width))
    for number in ("30.0 ms", "8.00 ms", "211 ms", "40.0 ms", "49.0 ms 49 %"):
        assert number in text


def test_the_page_fits_a_screen_however_much_there_is() -> None:
    names = [f"step/{index:02}" for index in range(40)]
    many = results(
        accounting=[device(100 * MS, host_ns=80 * MS)],
        gap_summary=[part("host", 2 * MS, phase=name) for name in names],
        phases=[{"path": "step", "depth": 1, "busy_ns": 20 * MS, "idle_ns": 80 * MS}]
        + [{"path": name, "depth": 2, "busy_ns": MS // 2, "idle_ns": 2 * MS} for name in names],
        syncs=[{"api": f"call{index}", "blocked_ns": MS} for index in range(40)],
        gaps=[{"gap": index, "duration_ns": MS, "cause": "host"} for index in range(40)],
    )
    page_lines = lines(many)
    assert len(page_lines) <= 45
    assert max(map(cell_len, page_lines)) <= 110
    assert "34 more: --table phases" in "\n".join(page_lines)


def test_top_sets_the_rows_of_each_list() -> None:
    assert "1 more: --table syncs" in "\n".join(lines(Results([training()]), top=1))


def test_without_gpu_work_the_page_is_the_verdict_and_the_notes() -> None:
    empty = Results([handmade(notes=(Note(NoteKind.NO_KERNELS, "no kernels were traced"),))])
    assert lines(empty) == [
        "run.sqlite",
        "",
        "no GPU work (no kernel, copy or memset in this report)",
        "next: check that --trace includes cuda, and that the GPU is used during the capture",
        "note: no kernels were traced",
    ]


def test_the_gpus_of_several_reports_are_told_apart() -> None:
    ranks = [
        handmade(accounting=[device(100 * MS, host_ns=40 * MS, report=f"rank{rank}.sqlite")])
        for rank in range(2)
    ]
    text = "\n".join(lines(Results(ranks)))
    assert "rank0.sqlite GPU 0" in text
    assert "rank1.sqlite GPU 0" in text


def test_a_narrowed_window_is_named() -> None:
    options = Options(
        range="train", from_ns=1_500_000_000, steps=(StepPart(2), StepPart(7, 8, out=True))
    )
    some = Results([replace(training(), options=options)])
    assert some.selection == "--range train --from 1.5 --steps 2: --steps '!7'"
    assert "only --range train --from 1.5 --steps 2:" in lines(some)[0]


def test_the_full_page_has_every_finding_and_table_that_people_read() -> None:
    shown = [line.plain for line in page(reviewed(), width=110, length="full", top=None)]
    for head in ("Idle time", "Longest gaps", "Steps", "Copies", "Data quality"):
        assert any(line.startswith(head) for line in shown)
    assert any(line.startswith("  4  save 1.00 ms (2.0 %)") for line in shown)


@pytest.mark.parametrize(("color_system", "escapes"), [(None, False), ("standard", True)])
def test_only_the_console_decides_on_escape_codes(
    color_system: Literal["standard"] | None, escapes: bool
) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system=color_system, width=200)
    for line in page(Results([training()]), width=110, top=None):
        console.print(line)
        assert "\x1b" not in line.plain
    assert ("\x1b" in out.getvalue()) is escapes


def titled(caption: str, rest: str = "", width: int | None = 40) -> list[str]:
    """The lines above the columns of a block."""
    block = Block(title="Phases", caption=caption, rest=rest, columns=(words("a"),), rows=(("b",),))
    return [line.plain for line in set_block(block, width)][1:-2]


def test_a_caption_stands_beside_its_title() -> None:
    assert titled("busy or idle") == ["Phases  busy or idle"]
    assert titled("") == ["Phases"]


def test_a_caption_too_long_for_the_line_of_its_title_goes_below_it() -> None:
    assert titled("x " * 30) == ["Phases", "  " + "x " * 18 + "x", "  " + "x " * 10 + "x"]


def test_what_is_left_out_stands_at_the_right_edge_of_a_line_that_has_room() -> None:
    rest = "3 more: --table phases"
    assert titled("", rest) == [f"Phases{rest:>34}"]
    assert titled("caption", rest) == [f"Phases  caption  {rest:>23}"]
    assert titled("a caption", rest) == ["Phases  a caption", f"{rest:>40}"]
    assert titled("x " * 20, rest) == ["Phases", "  " + "x " * 18 + "x", f"  x{rest:>37}"]
    assert titled("x " * 30, rest)[2:] == ["  " + "x " * 10 + "x", f"{rest:>40}"]


def test_without_a_width_all_of_it_is_on_the_line_of_the_title() -> None:
    assert titled("x", "3 more", width=None) == ["Phases  x  3 more"]


def test_a_block_without_rows_has_no_lines() -> None:
    assert list(set_block(Block(title="Phases", columns=(words("a"),), rows=()), 80)) == []
