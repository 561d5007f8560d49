"""Idle stacks written by hand."""

from typing import Final

import polars as pl

from tests.report.handmade import MS, frame

TOKENIZE: Final = ("main (train.py:9)", "collate (train.py:88)", "tokenize (tok.py:4)")
SAVE: Final = ("main (train.py:12)", "save (torch/x.py:7)")
NOTHING: Final = ("(not sampled)",)

OWN: Final = frozenset({"train.py", "tok.py"})
"""The files of the program itself."""

Row = tuple[str, str, tuple[str, ...], int]
"""Phase, cause, the stack and ms of idle time."""

ROWS: Final[tuple[Row, ...]] = (
    ("step/data", "host", TOKENIZE, 60),
    ("step/data", "host", (*TOKENIZE[:2], "pad (train.py:90)"), 20),
    ("step/data", "launch", NOTHING, 5),
    ("", "host", SAVE, 15),
)

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</title></svg>",
    "\"quotes' & <![CDATA[ ]]>",
    "x" * 5_000,
    "\u202eevil\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "two\nlines\x00\x1b[31m",
    "",
)
"""Names that a program may choose for its functions and files."""


def idle_stacks(*rows: Row, report: str = "run.sqlite") -> pl.DataFrame:
    """IDLE_STACKS of these rows."""
    columns = ("report", "phase", "cause", "stack", "idle_ns")
    filled = ((report, phase, cause, [*stack], ms * MS) for phase, cause, stack, ms in rows)
    return frame("idle_stacks", *(dict(zip(columns, row, strict=True)) for row in filled))


def hostile_stacks() -> pl.DataFrame:
    """Stacks of functions, files, phases and a report with hostile names."""
    rows = [(name, "host", (f"{name} ({name}:1)", name), 1) for name in HOSTILE]
    return idle_stacks(*rows, report=HOSTILE[0])
