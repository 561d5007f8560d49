"""The terminal page."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from nsysflow.analysis.declared.notes import Note, NoteKind
from nsysflow.analysis.options import Options, StepPart
from nsysflow.report.layout import Block, words
from nsysflow.report.terminal import page, set_block
from tests.report.handmade import MS, Results, device, handmade, part, results, training

GOLDEN = Path(__file__).parent / "page.txt"


def lines(of: Results, width: int = 110, top: int | None = None) -> list[str]:
    """The page without styles."""
    return [line.plain for line in page(of, width=width, top=top)]


def test_the_page_of_a_small_training_run_reads_as_reviewed() -> None:
    # after a change on purpose: read the new page, then write it to page.txt
    assert "\n".join(lines(Results([training()]))) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_the_verdict_is_on_top() -> None:
    assert lines(Results([training()]))[2].startswith("host-bound (50 % idle)")


@pytest.mark.parametrize("width", [80, 100, 110, 200])
def test_no_number_is_cut_on_any_terminal(width: int) -> None:
    text = "\n".join(lines(Results([training()]), width))
    for number in ("30.0 ms", "15.0 ms", "211 ms", "0.050000 s", "49.0 ms 49 %"):
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
    assert len(page_lines) <= 50
    assert max(map(cell_len, page_lines)) <= 110
    assert "33 more: --table gap_summary" in "\n".join(page_lines)


def test_top_sets_the_rows_of_each_list() -> None:
    assert "2 more: --table gap_summary" in "\n".join(lines(Results([training()]), top=1))


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


def test_a_caption_too_long_for_the_line_of_its_title_goes_below_it() -> None:
    block = Block(title="Phases", caption="x " * 40, columns=(words("a"),), rows=(("b",),))
    assert [line.plain.strip()[:6] for line in set_block(block, 60)][:3] == ["", "Phases", "x x x "]


def test_a_block_without_rows_has_no_lines() -> None:
    assert list(set_block(Block(title="Phases", columns=(words("a"),), rows=()), 80)) == []
