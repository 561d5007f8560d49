"""Where each GPU's time goes, as bars."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nsysflow.report.about import gpu_label, time_label
from nsysflow.report.notebook.svg import LABEL, WIDTH, Box, box, key, label, picture
from nsysflow.report.parts import ALL, Part, there, timed
from nsysflow.report.results import Results

_ROW: Final = 22
_BAR: Final = 16

GPUS: Final = 16
"""How many have a bar."""


def bars(results: Results) -> str:
    """A bar per GPU, of a judged step's mean, and the legend; empty without GPU work."""
    judged = results.judged
    rows = [row for row in judged.table("accounting").iter_rows(named=True) if row["window_ns"]]
    rows = rows[:GPUS]
    if not rows:
        return ""
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    parts = there(ALL, rows)
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    drawn: list[str] = []
    for at, (row, count) in enumerate(zip(rows, steps, strict=True)):
        name = gpu_label(results, row["report"], row["device"])
        drawn.append(label(name, LABEL - 6, _ROW * at + 12, to_the_left=True))
        drawn += _bar(at, parts, row, count, longest_ns)
    title = f"{time_label(results)} of each GPU, by what it does or waits for"
    return picture(_ROW * len(rows), drawn, title) + _legend(parts, rows, steps)


def _bar(
    at: int, parts: Sequence[Part], row: Mapping[str, Any], steps: int, longest_ns: float
) -> Iterator[str]:
    scale = (WIDTH - LABEL) / longest_ns
    left_ns = 0.0
    for part in parts:
        ns = row[part.column] / steps
        if ns:
            yield box(
                Box(
                    x=round(LABEL + left_ns * scale, 2),
                    y=_ROW * at,
                    width=round(ns * scale, 2),
                    height=_BAR,
                    colour=part.colour,
                    title=timed(part, row, steps),
                )
            )
        left_ns += ns


def _legend(parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> str:
    """The legend, with figures where there is one GPU."""
    alone = len(rows) == 1
    texts = [timed(part, rows[0], steps[0]) if alone else part.label for part in parts]
    keys = (key(part.colour, text) for part, text in zip(parts, texts, strict=True))
    return f"<p>{''.join(keys)}</p>"
