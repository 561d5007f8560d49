"""summary.md: the page to paste into a review."""

import re
from collections.abc import Iterator
from typing import Final

from nsysflow.report import details, sections
from nsysflow.report.communication import communication, ranks
from nsysflow.report.fullness import fullness
from nsysflow.report.layout import Block, printable, shorten
from nsysflow.report.odd_steps import odd_step_lines
from nsysflow.report.results import Results
from nsysflow.report.utilization import mfu_lines, rates
from nsysflow.report.verdict import verdicts

_INDENT = "\N{NO-BREAK SPACE}" * 4
"""Markdown drops leading spaces in a cell."""

_MARKUP = re.compile(r"[\\|<>*`\[\]]|(?<!\w)_|_(?!\w)")
"""What Markdown reads; a `_` inside a word it leaves alone."""

_LONGEST: Final = 2_000
"""A name of 100 kB, many times in a page, is no page; C++ templates stay whole."""


def summary(results: Results, *, top: int | None = None, at_least_ns: int = 0) -> str:
    """The whole page.

    Args:
        results: what to show.
        top: rows of each list; None takes what reads well.
        at_least_ns: the shortest gap to list.
    """
    lines = [f"# {_escaped(', '.join(results.reports))}", ""]
    if results.selection:
        lines += [f"Only {_escaped(results.selection)}.", ""]
    for verdict in verdicts(results):
        lines += [f"**{_escaped(verdict.sentence)}**", "", f"Next: {_escaped(verdict.advice)}", ""]
    for line in (*odd_step_lines(results), *mfu_lines(results)):
        lines += [f"{_escaped(line)}.", ""]
    for block in (
        sections.devices(results, bar_width=0),
        sections.dearest(results, top or 15),
        sections.phases(results, top or 30, indent=_INDENT),
        sections.stalls(results, top or 10),
        sections.longest_gaps(results, top or 10, at_least_ns=at_least_ns),
        details.steps(results, top or 20),
        details.kernels(results, top or 20),
        details.starved(results, top or 10),
        details.copies(results, top or 10),
        rates(results, top or 30),
        communication(results, top or 20),
        ranks(results, top or 64),
        fullness(results, top or 20),
        sections.integrity(results),
    ):
        lines += block_lines(block)
    lines += [f"- {_escaped(note.text)}" for note in results.notes]
    return "\n".join(lines).rstrip() + "\n"


def block_lines(block: Block) -> Iterator[str]:
    """A block as a heading and a table; nothing where it has no rows."""
    if not block.rows:
        return
    yield from (f"## {block.title}", "")
    if block.caption:
        yield from (f"{_escaped(block.caption)}.", "")
    yield from table_lines(block)
    yield ""
    for line in block.more:
        yield from (_escaped(line), "")


def table_lines(block: Block) -> Iterator[str]:
    """A block's columns and rows as a Markdown table."""
    yield _row([column.head for column in block.columns])
    yield _row(["---:" if column.right else "---" for column in block.columns])
    for cells in block.rows:
        yield _row(cells)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Names hold `<`, `|` and `*`, which must not turn into markup."""
    short = shorten(text, _LONGEST)
    clean = "".join(letter if letter == "\xa0" else printable(letter) for letter in short)
    return _MARKUP.sub(r"\\\g<0>", clean)
