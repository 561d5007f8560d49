"""A comparison as lines for a terminal and as Markdown for a pull request."""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from nsysflow.compare.comparison import Comparison
from nsysflow.report.diff.blocks import blocks
from nsysflow.report.diff.sentences import headline, remarks, title
from nsysflow.report.layout import printable
from nsysflow.report.markdown import block_lines, escaped
from nsysflow.report.terminal import sentence_lines, set_block


def page(found: Comparison, *, width: int, full: bool) -> Iterator[Text]:
    """The lines of a terminal.

    Args:
        found: the comparison.
        width: columns to fill.
        full: whether to show all rows.
    """
    yield from sentence_lines(printable(title(found)), width)
    yield Text()
    yield from sentence_lines(printable(headline(found)), width, style="bold")
    for remark in remarks(found):
        yield from sentence_lines(printable(remark), width)
    for block in blocks(found, full=full):
        yield from set_block(block, width)


_HEADING: Final = "####"
"""Of a block, below the verdict."""

MARK: Final = "<!-- nsysflow diff -->"
"""The first line of the Markdown: a comment in a pull request is found by it, and updated."""


def markdown(found: Comparison) -> str:
    """The same for a pull request: the verdict and the bridge, the rest folded."""
    first, *rest = blocks(found, full=False)
    lines = [MARK, f"### {escaped(headline(found))}", "", escaped(title(found)), ""]
    lines += [line for remark in remarks(found) for line in (f"- {escaped(remark)}",)]
    lines += ["", *block_lines(first, heading=_HEADING)]
    folded = [line for block in rest for line in block_lines(block, heading=_HEADING)]
    if folded:
        lines += [
            "<details>",
            "<summary>Phases, kernels, waits</summary>",
            "",
            *folded,
            "</details>",
        ]
    return "\n".join(lines).rstrip() + "\n"
