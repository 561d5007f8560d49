"""nsys's progress is taken out of what a program prints, however it comes."""

from typing import Final

import pytest

from nsysflow.nsys.progress_lines import ProgramOutput

BARS: Final = (
    b"\r[1/1] [0%                          ] a.nsys-rep"
    b"\r[1/1] [=====28%                    ] a.nsys-rep"
    b"\r[1/1] [========================100%] a.nsys-rep\n"
)
NSYS: Final = (
    b"Collecting data...\n"
    b"Generating 'nsys-report-474f.qdstrm'\n" + BARS + b"Generated:\n    /runs/my run/a.nsys-rep\n"
)
"""What nsys 2023.4 prints in a run (2026-11-25)."""

PROGRAM: Final = (
    b"Collecting data from 8 workers\nGenerating 'a cat' ...\n[1/10] epoch\n[INFO] 50% done\n"
    b"\r 10%|#   | 1/10\r 20%|##  | 2/10\n    indented.nsys-rep\nGenerated: 3\nwindows\r\n"
    b"WARNING: CPU sampling is not supported.\n[\n\xff\n"
)
"""What looks a little like it, and warnings of nsys."""


def shown(*chunks: bytes) -> bytes:
    output = ProgramOutput()
    return b"".join(output.feed(chunk) for chunk in chunks) + output.end()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_progress_goes_and_every_other_byte_stays(size: int) -> None:
    printed = PROGRAM + NSYS + PROGRAM
    chunks = [printed[at : at + size] for at in range(0, len(printed), size)]
    assert shown(*chunks) == PROGRAM + PROGRAM
    assert shown(*chunks, b"[1/1] [=5") == PROGRAM + PROGRAM + b"[1/1] [=5"


@pytest.mark.parametrize("apart", [True, False])
def test_a_line_of_nsys_may_follow_an_unfinished_one_of_the_program(apart: bool) -> None:
    chunks = [b"step 3 ... ", b"Generating 'nsys-report-1.qdstrm'\n"]
    assert shown(*(chunks if apart else [b"".join(chunks)])).rstrip(b"\n") == b"step 3 ... "


@pytest.mark.parametrize(
    "begun", [b"Password: ", b"\r 10%|#  ", b"[1/10] ep", b"> ", b"Collecting dates"]
)
def test_an_unfinished_line_of_the_program_is_shown_at_once(begun: bytes) -> None:
    assert ProgramOutput().feed(b"line\n" + begun) == b"line\n" + begun
