"""What was drawn: the bars and texts of a figure."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from nsysflow.report.figures.style import LINE, applied
from nsysflow.report.results import Results
from tests.analyses import analysed

Shown = TypeVar("Shown")

some_reports = pytest.mark.parametrize("name", ["h200-ddp-rank0", "nan_check-sync", "synthetic-1"])

RANKS = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")


def ranks() -> Results:
    return Results([analysed(name) for name in RANKS])


def drawn(draw: Callable[[Shown], Figure | None], shown: Shown) -> Figure:
    """A figure that is not empty, laid out."""
    with applied():
        figure = draw(shown)
        assert figure is not None
        figure.draw_without_rendering()
    return figure


def bars(axes: Axes) -> list[Rectangle]:
    """The bars, in the order in which they were drawn."""
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def colour(bar: Rectangle) -> str:
    """The colour of a bar as `#rrggbb`."""
    return to_hex(bar.get_facecolor())


def lengths(axes: Axes, parts: Mapping[str, str], *, upright: bool) -> dict[int, dict[str, float]]:
    """How long the bars at each place are, by what their colours stand for; without empty ones, and
    those that only mark where a bar is cut off."""
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for bar in bars(axes):
        x, y, width, height = bar.get_bbox().bounds
        length, middle = (height, x + width / 2) if upright else (width, y + height / 2)
        if length and colour(bar) != LINE:
            found[round(middle)][parts[colour(bar)]] += length
    return {at: dict(found[at]) for at in sorted(found)}


def texts(figure: Figure) -> list[str]:
    """All that can be read in a figure, each text on one line."""
    found = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text.replace("\n", " ") for text in found if text]
