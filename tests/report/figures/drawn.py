"""What was drawn: the bars and texts of a figure."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from nsysflow.report.figures.style import applied
from nsysflow.report.results import Results
from tests.analyses import analysed

Shown = TypeVar("Shown")

some_reports = pytest.mark.parametrize("name", ["h200-ddp-rank0", "nan_check-sync", "synthetic-1"])

RANKS = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")


def ranks() -> Results:
    """A run of two ranks."""
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


def texts(figure: Figure) -> list[str]:
    """All that can be read in a figure, each text on one line."""
    found = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text.replace("\n", " ") for text in found if text]
